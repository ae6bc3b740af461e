// Two games side by side: what they came to and cost, and their messages in pairs of the same id.

const EQUAL = 160;
const ORDER = ["direct", "transitive", "positional", "unlabelled", "clean"];

/** @typedef {{left: number|null, right: number|null, differs: boolean}} Pair */

class BesideView {
  /** @param {HTMLElement} pane */
  constructor(pane) {
    this.pane = pane;
    this.choices = make("div");
    this.rest = make("div");
    this.top = make("div", { class: "found" }, this.choices, this.rest);
    this.list = new Rows(pane, { draw: (n) => this.row(n), guess: (n) => this.guess(n), label: "Messages of both games" });
    pane.replaceChildren(this.top, this.list.shelf);
    this.refresh();
  }

  close() {
    this.list.close();
  }

  /** @param {Set<string>} [changed] */
  refresh(changed = new Set(["talk"])) {
    const { talk } = state;
    if (!talk) return;
    if (changed.size === 1 && changed.has("chosen")) return;
    const before = this.other;
    this.game = partner();
    this.other = talkAt(this.game);
    const all = this.other ? aligned(talk, this.other) : [];
    /** @type {Pair[]} */ this.pairs = state.fold ? all.filter((pair) => pair.differs) : all;
    const found = this.other ? [sheet(this.summary(talk, this.other), 0), make("p", { class: "soft count" }, this.count(all))] : [make("p", { class: "soft count" }, "Loading this game …")];
    this.choose();
    this.rest.replaceChildren(...found);
    if (this.other !== before || changed.size !== 1 || !changed.has("head")) this.list.set(this.pairs.length);
  }

  /** Show which games can stand on the right. A list that is the same stays, because it may be open. */
  choose() {
    const names = JSON.stringify([state.game, this.game, ...state.head.talks.map((/** @type {any} */ _, /** @type {number} */ place) => called(place))]);
    if (names !== this.names) this.choices.replaceChildren(this.choice());
    this.names = names;
  }

  /** @param {number} number @param {boolean} [focus] */
  show(number, focus = true) {
    this.list.show(this.pairs?.findIndex((pair) => pair.left === number) ?? -1, focus);
  }

  choice() {
    const options = state.head.talks.map((/** @type {any} */ _, /** @type {number} */ number) => make("option", { value: number, selected: number === this.game }, called(number)));
    const chosen = /** @type {any} */ (make("select", { "aria-label": "Game on the right" }, ...options));
    chosen.addEventListener("change", () => look({ other: Number(chosen.value) }));
    return make("p", { class: "choice" }, make("span", {}, called(state.game)), make("span", { class: "soft" }, "beside"), chosen);
  }

  /** @param {Pair[]} pairs */
  count(pairs) {
    const [both, left, right] = [pairs.filter(({ left, right }) => left !== null && right !== null), pairs.filter((pair) => pair.right === null), pairs.filter((pair) => pair.left === null)];
    const differ = both.filter((pair) => pair.differs).length;
    const alone = [left.length ? `${left.length.toLocaleString("en")} only on the left` : "", right.length ? `${right.length.toLocaleString("en")} only on the right` : ""].filter(Boolean).join(", ");
    return `${many(both.length, "message")} in both, ${differ.toLocaleString("en")} with other words${alone ? `; ${alone}` : ""}. Messages are paired by id.`;
  }

  /** What both came to, in a table. @param {Talk} left @param {Talk} right */
  summary(left, right) {
    const [one, other] = [described(state.game, left), described(this.game ?? 0, right)];
    const names = [...new Set([...one.keys(), ...other.keys()])];
    const rows = names.map((name) => [name, one.get(name)?.text ?? "-", other.get(name)?.text ?? "-", change(one.get(name)?.amount, other.get(name)?.amount)]);
    return { title: "Both games", words: 3, columns: ["", called(state.game), called(this.game ?? 0), "change"], rows };
  }

  /** @param {number} n */
  guess(n) {
    const { left, right, differs } = /** @type {Pair[]} */ (this.pairs)[n];
    const long = (/** @type {Talk|null|undefined} */ talk, /** @type {number|null} */ number) => (talk && number !== null ? talk.messages[number].text.length : 0);
    const most = Math.max(long(state.talk, left), long(this.other, right));
    return 50 + 21 * Math.ceil((differs ? most : Math.min(EQUAL, most)) / 60);
  }

  /** @param {number} n */
  row(n) {
    const { left, right, differs } = /** @type {Pair[]} */ (this.pairs)[n];
    const [talk, other] = [/** @type {Talk} */ (state.talk), /** @type {Talk} */ (this.other)];
    const said = (/** @type {Talk} */ of, /** @type {number|null} */ number) => (number === null ? "" : visible((of.messages[number].header ?? "") + of.messages[number].text));
    const [one, two] = left !== null && right !== null ? differing(said(talk, left), said(other, right)) : [whole(said(talk, left)), whole(said(other, right))];
    const named = left === null ? other.messages[/** @type {number} */ (right)].id : talk.messages[left].id;
    return make("article", { class: `row pair${differs ? " differs" : ""}`, tabindex: 0, "aria-label": `${named}: ${left === null ? "only on the right" : right === null ? "only on the left" : differs ? "other words" : "the same words"}` },
      cell(talk, left, state.game, one, differs), cell(other, right, this.game ?? 0, two, differs));
  }
}

/** The game that stands on the right: the one that was chosen, or the one of the same number in another run, or the one
 * before, which stays while more games begin. */
function partner() {
  const { other, game, head: { talks } } = state;
  if (other !== null && other < talks.length) return other;
  const { title, group, side, within } = talks[game];
  const apart = (/** @type {any} */ each) => (side === undefined ? each.group !== group : each.side !== side);
  const fits = [(/** @type {any} */ each) => each.title === title && each.within === within, (/** @type {any} */ each) => each.title === title, () => side !== undefined];
  const same = fits.map((fit) => talks.findIndex((/** @type {any} */ each) => apart(each) && fit(each))).find((found) => found >= 0) ?? -1;
  return same >= 0 ? same : game > 0 ? game - 1 : 1;
}

/** @param {number} game */
function called(game) {
  const { title, group } = state.head.talks[game];
  return visible(group ? `${group}, ${title}` : title);
}

/** The messages of two games in pairs of one id; those of one game alone stand where they were said.
 * @param {Talk} left @param {Talk} right @returns {Pair[]} */
function aligned(left, right) {
  /** @type {Pair[]} */ const found = [];
  let at = 0;
  const alone = (/** @type {number} */ end) => { for (; at < end; at++) if (!left.ids.has(right.messages[at].id)) found.push({ left: null, right: at, differs: true }); };
  left.messages.forEach((message, number) => {
    const other = right.ids.get(message.id);
    if (other === undefined) return found.push({ left: number, right: null, differs: true });
    alone(other);
    const twin = right.messages[other];
    return found.push({ left: number, right: other, differs: (message.header ?? "") + message.text !== (twin.header ?? "") + twin.text });
  });
  alone(right.length);
  return found;
}

/** @param {string} text @returns {Part[]} */
const whole = (text) => [{ text, differs: false }];

/** One message of a pair. @param {Talk} talk @param {number|null} number @param {number} game @param {Part[]} parts @param {boolean} differs */
function cell(talk, number, game, parts, differs) {
  if (number === null) return make("div", { class: "cell missing" }, make("span", { class: "soft" }, state.head.eyes === null ? "not in this game" : `nothing that ${visible(state.head.eyes)} may read`));
  const message = talk.messages[number];
  const eyes = state.eyes === null ? null : talk.agents.findIndex((agent) => agent.name === state.talk?.agents[/** @type {number} */ (state.eyes)].name);
  const away = eyes !== null && (eyes < 0 || !talk.readable(number, eyes));
  const go = () => { look({ game, view: "talk" }); look({ chosen: number }); shown?.show(number); };
  const used = usage(message);
  const shorter = differs ? parts : whole(parts.map((part) => part.text).join("").replace(new RegExp(`^([^]{${EQUAL}})[^]{20,}$`), "$1 …"));
  return make("div", { ...own(message.by), class: `cell ${own(message.by).class}` },
    make("div", { class: "title" }, make("b", { class: "who" }, words(talk.who(number))), make("span", { class: "soft" }, `${talk.what(number)}${message.to === null ? "" : ` to ${talk.whom(number)}`}`), make("button", { class: "id", onclick: go, title: "Go to this message" }, words(message.id))),
    away ? make("p", { class: "soft" }, "not for this agent") : make("div", { class: "text" }, make("bdi", { dir: "auto" }, ...shorter.map((part) => (part.differs ? make("mark", {}, part.text) : part.text)))),
    used ? make("div", { class: "spent", title: sentence(used) }, make("span", { class: "gauge" }, bar(used, longest(talk)))) : null);
}

/** @typedef {{text: string, amount?: number}} Described */

/** What a game is and came to, by name; amounts are compared. @param {number} game @param {Talk} talk @returns {Map<string, Described>} */
function described(game, talk) {
  const head = state.head.talks[game];
  /** @type {Map<string, Described>} */ const found = new Map();
  const set = (/** @type {string} */ name, /** @type {any} */ value) => found.set(name, { text: String(value) });
  const [, status, facts] = state.head.runs?.[head.run] ?? [];
  const others = (state.head.runs ?? []).map((/** @type {any} */ run) => new Map(run[2]));
  for (const [name, value] of facts ?? []) if (others.some((/** @type {Map<string, string>} */ each) => each.get(name) !== value)) set(name, value ?? "-");
  if (status) set("status", status);
  if (talk.agents.some((agent) => agent.verdict)) set("readings", verdicts(talk.agents));
  for (const [name, value] of [...Object.entries(head.outcome ?? {}), ...Object.entries(head.score ?? {}).map(([name, value]) => [`score ${name}`, value])]) {
    if (value !== null && typeof value !== "object") set(name, typeof value === "number" ? value.toLocaleString("en") : value);
  }
  if (head.ended || head.error) set("ended", String(head.error ?? head.ended).slice(0, 120));
  return new Map([...found, ["messages", counted(talk.length)], ...cost(talk)]);
}

/** @param {number} amount @returns {Described} */
const counted = (amount) => ({ text: amount.toLocaleString("en"), amount });

/** @param {number} amount @returns {Described} */
const timed = (amount) => ({ text: seconds(amount), amount });

/** What the calls of a game took, by name. @param {Talk} talk @returns {[string, Described][]} */
function cost(talk) {
  const sum = talk.costs.at(-1);
  if (!sum) return [];
  const share = { text: percent(sum.reused, sum.reused + sum.encoded) };
  return [["calls", counted(sum.calls)], ["prompt tokens", counted(sum.reused + sum.encoded)],
    .../** @type {[string, Described][]} */ (sum.unreported ? [] : [["prompt tokens reused", counted(sum.reused)], ["prompt tokens encoded", counted(sum.encoded)], ["share reused", share]]),
    ["generated tokens", counted(sum.sampled)], ["encoded in all", counted(sum.all)],
    .../** @type {[string, Described][]} */ (sum.first === undefined ? [] : [["first token, median", timed(sum.first)]]), ["time of all calls", timed(sum.seconds)],
    .../** @type {[string, Described][]} */ (sum.price === undefined ? [] : [["price", { text: String(Number(sum.price.toPrecision(4))), amount: sum.price }]])];
}

/** The verdict on what all agents read. @param {any[]} agents */
function verdicts(agents) {
  const sum = (/** @type {string} */ name) => agents.reduce((all, agent) => all + (agent[name] ?? 0), 0);
  const worst = ORDER.find((verdict) => agents.some((agent) => agent.verdict === verdict)) ?? "unlabelled";
  if (worst === "clean") return sum("readings") ? `all ${many(sum("readings"), "reading")} clean` : "no readings";
  return `${sum("unclean").toLocaleString("en")} of ${many(sum("readings"), "reading")} not clean; worst: ${worst === "unlabelled" ? "unknown" : worst}`;
}

/** From one number to another, in percent. @param {number} [one] @param {number} [other] */
function change(one, other) {
  if (one === undefined || other === undefined || one === other || one <= 0) return "";
  const by = (100 * (other - one)) / one;
  return `${by > 0 ? "+" : "−"}${Math.abs(by) < 10 ? Math.abs(by).toFixed(1) : Math.round(Math.abs(by)).toLocaleString("en")}%`;
}
