// The talk as a chat: a lane an agent, a knot for whoever may read a message.

const LONG = 560;
const SHORT = 120;

class TalkView {
  /** @param {HTMLElement} pane */
  constructor(pane) {
    this.pane = pane;
    this.wide = new Set();
    this.list = new Rows(pane, { draw: (n) => this.row(n), guess: (n) => this.guess(n), label: "Messages" });
    pane.replaceChildren(this.heads(), this.list.shelf);
    this.refresh();
  }

  close() {
    this.list.close();
  }

  /** @param {Set<string>} [changed] */
  refresh(changed = new Set(["talk"])) {
    const talk = state.talk;
    if (!talk) return;
    this.pane.style.setProperty("--lanes", String(talk.agents.length));
    if (changed.size === 1 && changed.has("chosen") && !state.fold) {
      for (const row of [...this.list.there.keys()]) this.list.redraw(row);
      return;
    }
    const first = changed.has("talk") || !this.rows?.length ? null : this.rows[this.list.at(this.pane.scrollTop)]?.from;
    if (changed.has("talk") || changed.has("eyes")) this.pane.firstElementChild?.replaceWith(this.heads());
    this.rows = rows();
    this.list.set(this.rows.length);
    if (first !== null && (changed.has("fold") || changed.has("eyes"))) this.show(state.chosen ?? first, false);
  }

  /** Draw messages anew that are under way, and those that have begun. @param {number[]} numbers */
  hear(numbers) {
    const known = this.rows?.length ?? 0;
    this.rows = rows();
    this.list.grow(this.rows.length);
    if (this.rows.length < known) this.list.set(this.rows.length);
    for (const number of numbers) this.list.redraw(this.rows.findIndex((row) => row.from === number));
  }

  /** @param {number} number @param {boolean} [focus] */
  show(number, focus = true) {
    this.list.show(this.rows?.findIndex((row) => row.from <= number && number <= row.to) ?? -1, focus);
  }

  heads() {
    const { talk } = state;
    return make("div", { class: "heads", "aria-hidden": "true" },
      ...(talk?.agents ?? []).map((agent, seat) => make("span", { ...own(seat), title: agent.name }, initials(agent.name, talk?.agents.length ?? 0))));
  }

  /** @param {number} n */
  guess(n) {
    const { talk } = state;
    const row = this.rows?.[n];
    if (!row || !talk || folded.has(row)) return 34;
    if (state.eyes !== null && !talk.readable(row.from, state.eyes) && !talk.reached(row.from, state.eyes)) return 34;
    const message = talk.messages[row.from];
    const most = message.thought ? 0 : kind(row.from).endsWith("setting") ? SHORT : LONG;
    return 62 + (message.prompt ? 20 : 0) + 21 * Math.ceil(Math.min(most, message.text.length + (message.header ?? "").length) / 90);
  }

  /** @param {number} n */
  row(n) {
    const row = /** @type {Row} */ (this.rows?.[n]);
    return folded.has(row) ? fold(row) : this.message(row.from);
  }

  /** @param {number} number */
  message(number) {
    const talk = /** @type {Talk} */ (state.talk);
    const message = talk.messages[number];
    const away = state.eyes !== null && !talk.readable(number, state.eyes);
    const reached = away && state.eyes !== null ? talk.reached(number, state.eyes) : null;
    const hidden = away && !reached;
    const names = ["row", kind(number), hidden && "away", reached && `reached ${reached.verdict}`, number === state.chosen && "chosen", state.query && (hit(number) ? "hit" : "nohit")];
    const by = own(message.by);
    const article = make("article", {
      ...by, class: [by.class, ...names].filter(Boolean).join(" "), tabindex: 0, "data-number": number, "aria-label": label(number),
      "aria-current": number === state.chosen ? "true" : null,
    }, lanes(number), make("div", { class: "body" }, title(number, hidden), hidden ? null : this.text(number), hidden ? null : spent(number), ...(reached ? [brought(number, reached)] : [])));
    return article;
  }

  /** @param {number} number */
  text(number) {
    const { messages } = /** @type {Talk} */ (state.talk);
    const { text, header, ended, thought } = messages[number];
    const most = thought ? 0 : kind(number).endsWith("setting") ? SHORT : LONG;
    const long = text.length > 1.3 * most && !this.wide.has(number);
    const shown = !long ? text : thought ? "" : `${text.slice(0, Math.max(most / 2, text.lastIndexOf(" ", most)))} …`;
    const more = text.length > 1.3 * most ? make("button", { class: "more", "data-more": number, "aria-expanded": String(!long) }, long ? `show all ${many(text.length, "character")}` : "show less") : null;
    const running = ended === "died" && going();
    return make("div", { class: "text" }, header ? make("span", { class: "header" }, words(header, state.query)) : null, words(shown, state.query), running ? make("span", { class: "caret", "aria-label": "being generated" }) : null, more);
  }

  /** Show all of a long message, or less of it. @param {number} number */
  widen(number) {
    if (!this.wide.delete(number)) this.wide.add(number);
    this.list.redraw(this.rows?.findIndex((row) => row.from === number) ?? -1);
  }
}

/** What its prompt was made of. @param {number} number */
function spent(number) {
  const talk = /** @type {Talk} */ (state.talk);
  const used = usage(talk.messages[number]);
  return used ? make("div", { class: "spent", title: sentence(used) }, make("span", { class: "gauge" }, bar(used, longest(talk))), make("span", { class: "told" }, sentence(used))) : null;
}

/** What a row looks like. @param {number} number */
function kind(number) {
  const { messages } = /** @type {Talk} */ (state.talk);
  const message = messages[number];
  if (message.by === null) return message.to === null ? "scene" : "scene some";
  const setting = message.thought || (message.kind === "prefill" && message.role !== "assistant") ? " setting" : "";
  if (message.to === null) return `public${setting}`;
  return `${message.to.every((each) => each === message.by) ? "private" : "some"}${setting}`;
}

/** One line that says it all. @param {number} number */
function label(number) {
  const talk = /** @type {Talk} */ (state.talk);
  return `${talk.messages[number].id}: ${talk.who(number)} ${talk.what(number)} to ${talk.whom(number)}`;
}

/** As much of a name as has room. @param {string} name @param {number} count @param {number} [space] pixels */
function initials(name, count, space) {
  const room = space ?? Math.min(26, (matchMedia("(max-width: 720px)").matches ? 96 : 200) / count);
  if (room < 6.5) return "";
  const letters = Math.max(1, Math.floor(room / 7.2));
  const found = name.match(/^(\p{L}+)[^\p{L}\d]*(\d+)$/u);
  if (found && name.length > letters) return room < 14 ? found[2].slice(-2) : `${found[1].slice(0, 1)}${found[2]}`.slice(0, 3);
  return [...name].slice(0, letters).join("");
}

/** Where it stands among the lanes: the knot of its author, a ring for whoever else may read it. @param {number} number */
function lanes(number) {
  const talk = /** @type {Talk} */ (state.talk);
  const message = talk.messages[number];
  const to = message.to ?? talk.agents.map((_, seat) => seat);
  const all = [...to, ...(message.by === null ? [] : [message.by])];
  const at = (/** @type {number} */ seat) => `calc(var(--gap) * ${seat + 0.5})`;
  const strip = make("div", { class: `lanes${message.to === null ? " all" : ""}`, "aria-hidden": "true" });
  if (all.length > 1 || message.to === null) {
    const [low, high] = [Math.min(...all), Math.max(...all)];
    strip.append(make("i", { class: "bar", left: at(low), width: `calc(var(--gap) * ${high - low})` }));
  }
  if (message.to !== null) for (const seat of to) if (seat !== message.by) strip.append(make("i", { ...own(seat), class: "agent ring", left: at(seat) }));
  if (message.by !== null) strip.append(make("i", { ...own(message.by), class: "agent knot", left: at(message.by) }));
  return strip;
}

/** Who, what, to whom. @param {number} number @param {boolean} hidden */
function title(number, hidden) {
  const talk = /** @type {Talk} */ (state.talk);
  const message = talk.messages[number];
  const whom = message.to === null ? (message.by === null ? "to everyone" : "") : `to ${talk.whom(number)}`;
  const marks = make("span", { class: "marks" });
  const unfinished = message.ended === "died" && going() ? "" : message.ended;
  for (const mark of [message.origin && message.origin !== "sampled" ? message.origin : "", unfinished]) if (mark) marks.append(make("span", { class: "mark" }, mark));
  const leaks = state.eyes === null ? talk.agents.flatMap((agent, seat) => (talk.reached(number, seat) ? [agent.name] : [])) : [];
  if (leaks.length) marks.append(make("span", { class: "mark leak", title: `It reached ${leaks.join(", ")}, who may not read it` }, leaks.length > 2 ? `reached ${leaks.length} who may not read it` : `reached ${leaks.join(", ")}`));
  const private_ = message.to !== null;
  return make("div", { class: "title" },
    make("b", { class: "who" }, words(talk.who(number))),
    make("span", { class: "soft" }, [talk.what(number), private_ && talk.what(number) === "thinks" ? "" : whom].filter(Boolean).join(" ")),
    hidden ? make("span", { class: "soft" }, `· not for ${talk.agents[/** @type {number} */ (state.eyes)].name}`) : null,
    marks, make("span", { class: "id" }, words(message.id)));
}

/** How a message that is not for whoever looks reached them. @param {number} number @param {{verdict: string, call: number, through: number}} how */
function brought(number, how) {
  const talk = /** @type {Talk} */ (state.talk);
  const name = talk.agents[/** @type {number} */ (state.eyes)].name;
  const call = how.call < 0 ? "a message without a line" : talk.messages[how.call].id;
  const way = how.verdict === "direct" || how.through < 0 ? `${call} read it` : `it came with ${talk.messages[how.through].id} to ${call}`;
  return make("p", { class: "brought", title: `Not for ${name}: ${MEANING[/** @type {keyof typeof MEANING} */ (how.verdict)]}` }, make("b", {}, how.verdict), ` · not for ${name}; ${way}`);
}

/** A row for messages that are folded away. @param {Row} row */
function fold(row) {
  const count = row.to - row.from + 1;
  return make("article", { class: "row folded", tabindex: 0, "data-open": `${row.from}-${row.to}`, "aria-label": `${many(count, "message")} folded` },
    make("div", { class: "lanes", "aria-hidden": "true" }), make("button", { class: "more", tabindex: -1 }, `${many(count, "message")} folded`));
}
