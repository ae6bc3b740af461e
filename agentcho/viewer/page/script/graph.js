// Messages as knots in the lanes of their authors, and what was read, by whom, as lines between them.

const HIGH = 30;
const CROWD = 260;

class GraphView {
  /** @param {HTMLElement} pane */
  constructor(pane) {
    this.pane = pane;
    this.lines = make("svg:svg", { class: "edges", "aria-hidden": "true" });
    this.list = new Rows(pane, { draw: (n) => this.row(n), guess: () => HIGH, label: "The graph of messages", after: (first, last) => this.edges(first, last) });
    this.list.shelf.append(this.lines);
    pane.replaceChildren(make("div", { class: "heads wide", "aria-hidden": "true" }), this.list.shelf);
    this.refresh();
  }

  close() {
    this.list.close();
  }

  /** @param {Set<string>} [changed] */
  refresh(changed = new Set(["talk"])) {
    const { talk } = state;
    if (!talk) return;
    const first = changed.has("talk") || !this.rows?.length ? null : this.rows[this.list.at(this.pane.scrollTop)]?.from;
    this.rows = rows();
    this.place = new Map(this.rows.flatMap((row, at) => Array.from({ length: row.to - row.from + 1 }, (_, n) => [row.from + n, at])));
    this.known = this.all();
    this.pane.style.setProperty("--lanes", String(talk.agents.length + 1));
    const room = this.lane();
    this.pane.firstElementChild?.replaceChildren(make("span", { class: "nobody" }, room < 56 ? "·" : "scenario"),
      ...talk.agents.map((agent, seat) => make("span", { ...own(seat), title: agent.name }, initials(agent.name, 1, room))), make("span", { class: "key soft" }, this.says()));
    this.list.set(this.rows.length);
    if (first !== null && (changed.has("fold") || changed.has("eyes"))) this.show(state.chosen ?? first, false);
  }

  /** @param {number} number @param {boolean} [focus] */
  show(number, focus = true) {
    this.list.show(this.place?.get(number) ?? -1, focus);
  }

  /** What the lines are, in words. */
  says() {
    const { talk, chosen, eyes } = state;
    if (!talk) return "";
    if (chosen !== null) return `${many(talk.reads(chosen).length, "message")} read by ${talk.messages[chosen].id}, which ${many(talk.readers(chosen).length, "message")} read`;
    const told = this.counted(eyes === null ? talk.agents : [talk.agents[eyes]]);
    return told || (this.known?.length ? "lines show who read what" : "choose a message to see what it read and who read it");
  }

  /** How many readings are not clean, as an audit counts them; of one agent also that none is. @param {any[]} agents */
  counted(agents) {
    const sum = (/** @type {string} */ name) => agents.reduce((all, agent) => all + (agent[name] ?? 0), 0);
    const unclean = sum("unclean");
    const readings = many(sum("readings"), "reading") + (state.eyes === null ? "" : ` of ${agents[0].name}`);
    if (unclean) return `${unclean.toLocaleString("en")} of ${readings} not clean; lines show where each message came first`;
    return state.eyes === null ? "" : `${readings}, all clean`;
  }

  /** The lines: of the chosen message, or else leaks, and all readings where they are few.
   * @returns {{from: number, to: number, kind: string}[]} */
  all() {
    const talk = /** @type {Talk} */ (state.talk);
    const { chosen, eyes } = state;
    /** @type {Map<string, {from: number, to: number, kind: string}>} */ const found = new Map();
    const add = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ kind) => {
      if (from >= 0 && from !== to && (kind === "leaks" || !found.has(`${from}-${to}`))) found.set(`${from}-${to}`, { from, to, kind });
    };
    talk.agents.forEach((agent, seat) => {
      if (eyes !== null && eyes !== seat) return;
      for (const [secret, , call, through] of agent.reached ?? []) {
        if (call < 0 || (chosen !== null && ![secret, call, through].includes(chosen))) continue;
        add(through < 0 ? secret : through, call, "leaks");
        if (through >= 0 && secret !== through && (chosen !== null || agent.reached.length < CROWD)) add(secret, through, "carries");
      }
    });
    if (chosen !== null) {
      for (const each of talk.reads(chosen)) add(each, chosen, "reads");
      for (const each of talk.readers(chosen)) add(chosen, each, "read");
    } else if (eyes === null) {
      let count = 0;
      for (let number = 0; number < talk.length && count <= CROWD; number++) count += talk.messages[number].own ? talk.size(/** @type {number} */ (talk.messages[number].own) - 1) : 0;
      if (count <= CROWD) for (let number = 0; number < talk.length; number++) for (const each of talk.reads(number)) add(each, number, "reads");
    }
    return [...found.values()];
  }

  /** Draw the lines that cross what can be seen. @param {number} first @param {number} last */
  edges(first, last) {
    if (!this.place || !this.known) return;
    const { tops } = this.list;
    const y = (/** @type {number} */ number) => tops[this.place?.get(number) ?? 0] + HIGH / 2;
    const lane = this.lane();
    const drawn = [];
    for (const { from, to, kind } of this.known) {
      const [above, below] = [this.place.get(from) ?? 0, this.place.get(to) ?? 0];
      if (Math.max(above, below) < first || Math.min(above, below) > last || above === below) continue;
      const [x1, y1, x2, y2] = [lane * (this.seat(from) + 0.5), y(from), lane * (this.seat(to) + 0.5), y(to)];
      const bend = Math.min(Math.abs(y2 - y1) / 2, 260);
      const side = x1 === x2 ? lane * 0.42 : 0;
      drawn.push(make("svg:path", { class: `edge ${kind}`, d: `M${x1} ${y1}C${x1 + side} ${y1 + bend} ${x2 + side} ${y2 - bend} ${x2} ${y2}` }));
    }
    this.lines.classList.toggle("dense", drawn.length > 90);
    this.lines.replaceChildren(...drawn);
    this.lines.setAttribute("width", String(lane * ((state.talk?.agents.length ?? 0) + 1)));
    this.lines.setAttribute("height", String(tops[this.list.count] || 1));
    document.documentElement.dataset.edges = String(drawn.length);
  }

  /** @param {number} number */
  seat(number) {
    return (state.talk?.messages[number].by ?? -1) + 1;
  }

  /** The width of a lane. */
  lane() {
    const lanes = (state.talk?.agents.length ?? 0) + 1;
    const strip = this.list.shelf.querySelector(".strip");
    if (strip) return strip.clientWidth / lanes;
    const narrow = matchMedia("(max-width: 720px)").matches;
    return narrow ? Math.max(7, Math.min(60, (0.4 * innerWidth) / lanes)) : Math.max(18, Math.min(110, (0.46 * innerWidth) / lanes));
  }

  /** @param {number} n */
  row(n) {
    const row = /** @type {Row} */ (this.rows?.[n]);
    const talk = /** @type {Talk} */ (state.talk);
    if (folded.has(row)) {
      const article = fold(row);
      article.classList.add("knots");
      article.firstElementChild?.replaceWith(make("div", { class: "strip" }));
      return article;
    }
    const number = row.from;
    const message = talk.messages[number];
    const away = state.eyes !== null && !talk.readable(number, state.eyes);
    const reached = away && state.eyes !== null ? talk.reached(number, state.eyes) : null;
    const behind = this.behind();
    const by = own(message.by);
    const names = [by.class, "row knots", kind(number), away && !reached && "away", reached && `reached ${reached.verdict}`,
      number === state.chosen && "chosen", behind && (behind.has(number) ? "on" : "off"), state.query && (hit(number) ? "hit" : "nohit")];
    return make("article", { ...by, class: names.filter(Boolean).join(" "), tabindex: 0, "data-number": number, "aria-label": label(number), "aria-current": number === state.chosen ? "true" : null },
      make("div", { class: "strip", "aria-hidden": "true" }, make("i", { class: "knot", left: `calc(100% / var(--lanes) * ${this.seat(number) + 0.5})` })),
      make("div", { class: "line" }, make("span", { class: "id" }, words(message.id)), make("b", { class: "who" }, words(talk.who(number))),
        make("span", { class: "soft" }, talk.what(number)), away && !reached ? null : make("span", { class: "snippet" }, words(message.text.slice(0, 160).replace(/\s+/g, " "), state.query))));
  }

  /** The cone of the chosen message, and who reads it. @returns {Set<number>|null} */
  behind() {
    const { talk, chosen } = state;
    if (!talk || chosen === null) return null;
    if (this.of !== `${state.game} ${chosen}` || this.talk !== talk) {
      const message = talk.messages[chosen];
      this.set = new Set([chosen, ...(message.own ? talk.cone(message.own - 1) : talk.reads(chosen)), ...talk.readers(chosen)]);
      [this.of, this.talk] = [`${state.game} ${chosen}`, talk];
    }
    return this.set ?? null;
  }
}
