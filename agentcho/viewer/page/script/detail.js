// What is known of one message: its words, what it read, its encodings with their receipts, its cone, what it took.

const LISTED = 60;

class Detail {
  /** @param {HTMLElement} aside */
  constructor(aside) {
    this.aside = aside;
  }

  refresh() {
    const { talk, chosen } = state;
    this.aside.hidden = chosen === null || !talk || state.view === "figures" || state.view === "beside";
    document.body.classList.toggle("detailed", !this.aside.hidden);
    if (this.aside.hidden || !talk || chosen === null) return;
    const message = talk.messages[chosen];
    const away = state.eyes !== null && !talk.readable(chosen, state.eyes);
    const close = make("button", { class: "plain close", "aria-label": "Close", onclick: () => look({ chosen: null }) }, "✕");
    const heading = make("h2", { class: own(message.by).class, "--hue": hue(message.by), tabindex: -1 }, words(message.id));
    this.aside.replaceChildren(
      make("div", { class: "head" }, heading, close),
      make("p", { class: "soft" }, `${talk.who(chosen)} ${talk.what(chosen)} · for ${talk.whom(chosen)}`),
      make("pre", { class: "said" }, message.header ? make("span", { class: "header" }, words(message.header)) : null, words(message.text)),
      ...(away ? [make("p", { class: "soft" }, `${talk.agents[/** @type {number} */ (state.eyes)].name} may not read this message.`)] : []),
      facts(chosen), ...prompt(chosen), ...came(chosen), ...leaks(chosen), ...list("Read", "messages that its author asked to read", talk.reads(chosen)),
      ...list("Shown before", "messages that the person had been shown, outside the context of this one", message.shown ?? []), ...receipts(chosen), ...cone(chosen),
      ...list("Read by", "messages whose authors read it, through any encoding", talk.readers(chosen)));
    this.aside.scrollTop = 0;
  }

  /** Show more words of a message that is under way. @param {number} number */
  hear(number) {
    const message = /** @type {Talk} */ (state.talk).messages[number];
    this.aside.querySelector("pre.said > bdi:last-child")?.replaceWith(words(message.text));
  }

  focus() {
    this.aside.querySelector("h2")?.focus();
  }
}

/** Figures. @param {number} number */
function facts(number) {
  const message = /** @type {Talk} */ (state.talk).messages[number];
  const [asked, spoke, last] = message.steps ?? [];
  const spent = message.spent ? Object.entries(message.spent).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value}`).join(", ") : "";
  const found = [
    ["tokens", message.tokens ? `${message.tokens}${message.sampled ? `, ${message.sampled} of them sampled` : ""}` : ""],
    ["origin", message.origin], ["ended by", message.stopped], ["incomplete", message.ended],
    ["requested at", message.at === undefined ? "" : seconds(message.at)],
    ["first token after", message.first ? seconds(message.first) : ""],
    ["took", message.took ? seconds(message.took) : ""],
    ["steps", message.steps ? `requested at ${asked}, generated from ${spoke} to ${last}` : ""],
    ["encoded in all", message.encoded ? many(message.encoded, "token") : ""],
    ["tool", message.use ? declared(message.use) : ""], ["release", message.release ? (message.call || message.use ? "the code allows the call, whatever its arguments were made from" : "the rules of the game reveal it") : ""],
    ["charged", message.charge ? charged(message.charge) : ""], ["race", state.head.talks[state.game]?.raced ? "the game used whichever of several calls ended first" : ""],
    ["model", message.engine], ["server reports", spent], ["choices", message.choices?.map(visible).join(" · ")], ["called from", message.where],
  ].filter(([, value]) => value);
  if (!found.length) return make("span");
  return make("dl", { class: "facts" }, ...found.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, words(String(value)))]));
}

/** What a tool declares: who learns of the arguments of its calls, whether it changes something outside, and whether
 * its results are trusted. @param {any} use */
function declared({ name, audience, effect, trusted, client }) {
  const told = audience === "everyone" ? "anyone" : audience.length ? audience.join(", ") : "nobody";
  return `${name}: arguments reach ${told}; ${effect ? "has side effects" : "no side effects"}; results ${trusted ? "trusted" : "untrusted"}${client ? `; through the client ${client}` : ""}`;
}

const BY = { choices: "one of a fixed set of choices", schema: "a value of a schema", release: "released by the code", words: "free text" };

/** What words can tell of secrets, and whom. @param {any} charge */
function charged({ by, bits, owed }) {
  const whom = Object.entries(owed).map(([owner, readers]) => `of ${owner} to ${/** @type {string[]} */ (readers).join(", ")}`).join("; ");
  return `${bits === null ? "no bound" : `at most ${Number(bits.toFixed(2))} ${bits === 1 ? "bit" : "bits"}`}${whom ? ` ${whom}` : ""} (${BY[/** @type {keyof typeof BY} */ (by)] ?? by})`;
}

/** Of which messages it came otherwise than by reading: the call of its tool, the words that it says again; and the
 * results of what it called. @param {number} number */
function came(number) {
  const talk = /** @type {Talk} */ (state.talk);
  const { call, released } = talk.messages[number];
  const one = (/** @type {string|undefined} */ id) => { const at = id === undefined ? undefined : talk.ids.get(id); return at === undefined ? [] : [at]; };
  return [...list("Result of", "the message that called the tool", one(call)), ...list("Called", "results of the tool call", talk.results(number)),
    ...list("Repeats", "the message whose words it repeats to another audience", one(released))];
}

/** A message that can be gone to. @param {number} number @param {...(string|Node)} more */
function link(number, ...more) {
  const talk = /** @type {Talk} */ (state.talk);
  const message = talk.messages[number];
  const away = state.eyes !== null && !talk.readable(number, state.eyes);
  return make("button", { ...own(message.by), class: `link ${own(message.by).class}${away ? " away" : ""}`, "data-go": number }, make("span", { class: "id" }, words(message.id)),
    make("span", { class: "snippet" }, away ? `not for ${talk.agents[/** @type {number} */ (state.eyes)].name}` : words(message.text.slice(0, 60).replace(/\s+/g, " "))), ...more);
}

/** Messages under a heading. @param {string} name @param {string} why @param {number[]} numbers */
function list(name, why, numbers) {
  if (!numbers.length) return [];
  const items = make("ul", { class: "links" }, ...numbers.slice(0, LISTED).map((number) => make("li", {}, link(number))));
  const rest = numbers.slice(LISTED);
  const more = rest.length ? make("button", { class: "more", onclick: () => { items.append(...rest.map((number) => make("li", {}, link(number)))); more?.remove(); } }, `and ${rest.length.toLocaleString("en")} more`) : null;
  return [make("details", { open: numbers.length <= 12 }, make("summary", {}, `${name} `, make("span", { class: "soft" }, `${numbers.length.toLocaleString("en")} · ${why}`)), items, more)];
}

/** Who learned of it although it is not for them, and what it brought its own author. @param {number} number */
function leaks(number) {
  const talk = /** @type {Talk} */ (state.talk);
  const found = [];
  talk.agents.forEach((agent, seat) => {
    const how = talk.reached(number, seat);
    if (!how) return;
    const way = how.call < 0 ? [number] : [...talk.way(how.call, how.through < 0 ? number : how.through, number).reverse(), how.call];
    found.push(leak(`Reached ${agent.name}, who may not read it: ${MEANING[/** @type {keyof typeof MEANING} */ (how.verdict)]}`, how.verdict, way));
  });
  const { by } = talk.messages[number];
  const brought = by === null ? [] : (talk.agents[by].reached ?? []).filter((/** @type {any[]} */ each) => each[2] === number && each[0] !== number);
  for (const [secret, verdict, , through] of brought.slice(0, LISTED)) {
    found.push(leak(`Brought ${talk.who(number)} a message that it may not read: ${MEANING[/** @type {keyof typeof MEANING} */ (verdict)]}`, verdict, [...talk.way(number, through < 0 ? secret : through, secret).reverse(), number]));
  }
  return found.length ? [make("h3", {}, "Leaks"), ...found] : [];
}

/** One leak, from the secret to its reader. @param {string} text @param {string} verdict @param {number[]} way */
function leak(text, verdict, way) {
  const steps = way.map((each, at) => make("li", { class: at === 0 ? "secret" : at === way.length - 1 ? "reader" : "carrier" }, link(each)));
  return make("div", { class: `leak ${verdict}` }, make("p", {}, make("b", {}, verdict), ` ${text}`), make("ol", { class: "way" }, ...steps));
}

const RECIPES = { author: "E, in the context of its author", audience: "X, for all of its readers", baseline: "in the prompt of", repaired: "repaired, in the prompt of" };

/** The encodings of a message, each with what it really attended to. @param {number} number */
function receipts(number) {
  const talk = /** @type {Talk} */ (state.talk);
  const made = talk.made.get(number) ?? [];
  return made.length ? [make("h3", {}, many(made.length, "encoding")), ...made.map((id) => receipt(id))] : [];
}

/** @param {number} id */
function receipt(id) {
  const talk = /** @type {Talk} */ (state.talk);
  const { recipe, by, start, bos, fault, base, engine } = talk.encodings[id];
  const name = `${RECIPES[/** @type {keyof typeof RECIPES} */ (recipe)] ?? recipe}${recipe === "baseline" || recipe === "repaired" ? ` ${by ? talk.agents[by - 1]?.name ?? "nobody" : "nobody"}` : ""}`;
  const body = make("div");
  const anchors = talk.corrected(id);
  const fill = () => {
    if (body.childElementCount) return;
    const reader = by ? by - 1 : null;
    const bad = reader === null || recipe === "audience" ? new Map() : talk.brought(reader);
    const pieces = talk.context(id);
    const row = ([each, offset, length]) => make("tr", { class: bad.get(each) ?? null },
      make("td", {}, each < 0 ? "not in the record" : link(talk.encodings[each].of)), make("td", { class: "n" }, String(offset)), make("td", { class: "n" }, `+${length}`), make("td", {}, bad.get(each) ?? (each < 0 ? "" : talk.encodings[each].recipe)));
    const rows = make("tbody", {}, ...pieces.slice(0, LISTED).map(row));
    const rest = pieces.slice(LISTED);
    const more = rest.length ? make("button", { class: "more", onclick: () => { rows.append(...rest.map(row)); more?.remove(); } }, `and ${rest.length} more`) : null;
    body.append(make("table", {}, make("thead", {}, make("tr", {}, ...["attended to", "at", "tokens", "as"].map((each) => make("th", { scope: "col" }, each)))), rows));
    if (more) body.append(more);
    const kept = anchors.length ? " It is another encoding of the same words with the offsets below added." : " It keeps some tokens of another encoding.";
    body.append(make("p", { class: "soft" }, `Its tokens begin at position ${start}${bos ? ", after the start token at 0" : ""}.${base ? kept : ""}${engine ? ` Encoded by the model ${engine}.` : ""}`));
  };
  const details = make("details", { ontoggle: fill }, make("summary", {}, name, " ", make("span", { class: "soft" }, `over ${many(talk.size(id), "piece")}`)), fault ? make("p", { class: "leak unlabelled" }, `Unknown: ${fault}`) : null, body,
    ...list("Offsets from", "messages whose encodings gave the correction, in this prompt and as they were reused", anchors));
  return details;
}

/** All that could have influenced it. @param {number} number */
function cone(number) {
  const talk = /** @type {Talk} */ (state.talk);
  const { own: mine } = talk.messages[number];
  const found = mine ? talk.cone(mine - 1) : [];
  document.documentElement.dataset.cone = found.map((each) => talk.messages[each].id).join(" ");
  return found.length ? list("Cone", "messages that could have influenced it", found) : [];
}
