// One attempt at a game, read from its block: see the package's `talk.py` and `compact_lists.py`.

/** @typedef {{id: string, by: number|null, to: number[]|null, role: string, kind: string, text: string, header?: string,
 * tokens?: number, sampled?: number, stopped?: string, ended?: string, origin?: string, where?: string,
 * choices?: string[], thought?: boolean, at?: number, first?: number, took?: number, steps?: number[], encoded?: number, reused?: number,
 * spent?: any, prompt?: number[], unplaced?: boolean, unreported?: boolean, repaired?: boolean, own?: number, reads?: number[], engine?: string, direct?: number[], shown?: number[], call?: string,
 * use?: {name: string, audience: string|string[], effect: boolean, trusted: boolean, client?: string}, release?: boolean,
 * released?: string, charge?: {by: string, bits: number|null, owed: Object<string, string[]>}}} Message */
/** @typedef {{of: number, recipe: string, start: number, bos: number, context: number[], by?: number, base?: number,
 * anchors?: number[], fault?: string, engine?: string}} Encoding */

class Talk {
  /** @param {any} data */
  constructor(data) {
    /** @type {any[]} */ this.agents = data.agents;
    /** @type {Message[]} */ this.messages = data.messages;
    /** @type {Encoding[]} */ this.encodings = data.encodings;
    /** @type {any[]} */ this.costs = data.costs ?? [];
    /** @type {Map<number, number[]>} */ this.made = new Map();
    this.encodings.forEach((encoding, number) => {
      const known = this.made.get(encoding.of);
      if (known) known.push(number);
      else this.made.set(encoding.of, [number]);
    });
    this.length = this.messages.length;
    this.ids = new Map(this.messages.map((message, number) => [message.id, number]));
  }

  /** Take the words so far of a message that is under way. Returns its number; null: nothing is new, or it is of agents that are not known yet.
   * @param {any} said @returns {number|null} */
  hear({ by, to, ...said }) {
    const at = this.ids.get(said.id);
    const message = at === undefined ? null : this.messages[at];
    if (message && (message.ended !== "died" || message.text === said.text)) return null;
    if (message) message.text = said.text;
    const seat = (/** @type {string} */ name) => this.agents.findIndex((agent) => agent.name === name);
    const [author, readers] = [by === null ? null : seat(by), to === null ? null : to.map(seat)];
    if (at !== undefined) return at;
    if (author === -1 || readers?.includes(-1)) return null;
    this.ids.set(said.id, this.length);
    this.messages.push({ ...said, by: author, to: readers, ended: "died" });
    return this.length++;
  }

  /** Whether an agent may read a message: that it is whole, or its own. @param {number} number @param {number|null} eyes */
  readable(number, eyes) {
    const message = this.messages[number];
    if (eyes === null) return true;
    return (!message.ended || message.by === eyes) && (message.to === null || message.to.includes(eyes));
  }

  /** How a message that an agent may not read reached it, if it did. @param {number} number @param {number} eyes */
  reached(number, eyes) {
    const agent = this.agents[eyes];
    agent.map ??= new Map((agent.reached ?? []).map((/** @type {any[]} */ each) => [each[0], each]));
    const found = agent.map.get(number);
    return found ? { verdict: found[1], call: found[2], through: found[3] } : null;
  }

  /** Whether an agent attended to a message. @param {number} number @param {number} eyes */
  attended(number, eyes) {
    const runs = this.agents[eyes].read ?? [];
    for (let at = 0; at < runs.length; at += 2) if (runs[at] <= number && number <= runs[at + 1]) return true;
    return false;
  }

  /** What an agent got that was not clean, by encoding. @param {number} eyes @returns {Map<number, string>} */
  brought(eyes) {
    const agent = this.agents[eyes];
    agent.bringing ??= new Map(agent.brought ?? []);
    return agent.bringing;
  }

  /** How many pieces the context of an encoding has. @param {number} number */
  size(number) {
    const { context } = this.encodings[number];
    return context[1] + (context.length - 2) / 3;
  }

  /** The context of an encoding: [encoding, offset, length] a piece. @param {number} number @returns {number[][]} */
  context(number) {
    const pieces = new Array(this.size(number));
    for (let here = number, end = pieces.length; here >= 0; ) {
      const { context } = this.encodings[here];
      for (let at = context[1]; at < end; at++) pieces[at] = context.slice(2 + 3 * (at - context[1]), 5 + 3 * (at - context[1]));
      end = Math.min(end, context[1]);
      here = context[0];
    }
    return pieces;
  }

  /** All encodings that one was made over, itself first, nearest first, each with the one that leads back to it.
   * No piece is looked at twice, however many contexts have it. @param {number} start @returns {Map<number, number>} */
  walk(start) {
    const before = new Map([[start, -1]]);
    const done = new Map();
    const queue = [start];
    const take = (/** @type {number} */ id, /** @type {number} */ from) => {
      if (id < 0 || before.has(id)) return;
      before.set(id, from);
      queue.push(id);
    };
    for (let turn = 0; turn < queue.length; turn++) {
      const from = queue[turn];
      const { base, anchors } = this.encodings[from];
      if (base) take(base - 1, from);
      anchors?.forEach((each) => take(each, from));
      for (let here = from, end = this.size(from); here >= 0 && (done.get(here) ?? 0) < end; ) {
        const { context } = this.encodings[here];
        for (let at = Math.max(context[1], done.get(here) ?? 0); at < end; at++) take(context[2 + 3 * (at - context[1])], from);
        done.set(here, end);
        end = Math.min(end, context[1]);
        here = context[0];
      }
    }
    return before;
  }

  /** The messages in the cone of an encoding, ascending. @param {number} number @returns {number[]} */
  cone(number) {
    return [...new Set([...this.walk(number).keys()].map((id) => this.encodings[id].of))].sort((a, b) => a - b);
  }

  /** The messages by whose encodings one was corrected, as they stood in both forms; the nearest first.
   * @param {number} number @returns {number[]} */
  corrected(number) {
    return [...new Set((this.encodings[number].anchors ?? []).filter((id) => id >= 0).map((id) => this.encodings[id].of))];
  }

  /** The messages that the author of a message asked to read, in order. @param {number} number @returns {number[]} */
  reads(number) {
    const message = this.messages[number];
    if (message.reads) return message.reads;
    return message.own ? this.context(message.own - 1).flatMap(([id]) => (id < 0 ? [] : [this.encodings[id].of])) : [];
  }

  /** The messages whose encodings attended to a message. @param {number} number @returns {number[]} */
  readers(number) {
    this.grown ??= this.children();
    const mine = new Set(this.made.get(number));
    const found = new Set();
    this.encodings.forEach(({ context }, id) => {
      for (let at = 2; at < context.length; at += 3) {
        if (!mine.has(context[at])) continue;
        const place = context[1] + (at - 2) / 3;
        const left = [id];
        for (let each = left.pop(); each !== undefined; each = left.pop()) {
          if (this.encodings[each].recipe !== "audience" && this.encodings[each].of !== number) found.add(this.encodings[each].of);
          for (const child of this.grown?.get(each) ?? []) if (this.encodings[child].context[1] > place) left.push(child);
        }
      }
    });
    return [...found].sort((a, b) => a - b);
  }

  /** The encodings whose contexts go on from each. @returns {Map<number, number[]>} */
  children() {
    const found = new Map();
    this.encodings.forEach(({ context }, id) => {
      if (context[0] >= 0) found.set(context[0], [...(found.get(context[0]) ?? []), id]);
    });
    return found;
  }

  /** The messages on a shortest way from what `call` attended to, by an encoding of `through`, to the message `end`.
   * @param {number} call @param {number} through @param {number} end @returns {number[]} */
  way(call, through, end) {
    const own = (this.made.get(call) ?? []).find((id) => this.encodings[id].recipe !== "audience");
    const piece = own === undefined ? undefined : this.context(own).find(([id]) => id >= 0 && this.encodings[id].of === through);
    if (!piece) return through === end ? [end] : [through, end];
    const before = this.walk(piece[0]);
    for (const [id] of before) {
      if (this.encodings[id].of !== end) continue;
      const found = [];
      for (let here = id; here >= 0; here = before.get(here) ?? -1) found.unshift(this.encodings[here].of);
      return found;
    }
    return [through, end];
  }

  /** The results of the tool that a message called. @param {number} number @returns {number[]} */
  results(number) {
    const { id } = this.messages[number];
    return this.messages.flatMap((message, at) => (message.call === id ? [at] : []));
  }

  /** What a message is, in a word or two. @param {number} number */
  what(number) {
    const message = this.messages[number];
    const alone = message.to !== null && message.to.every((each) => each === message.by);
    if (message.thought) return "thinks first";
    if (message.kind === "decode") return message.choices?.length ? "chooses" : alone ? "thinks" : "says";
    if (message.role === "system") return "system prompt";
    if (message.role === "tool") return `result of ${message.use ? visible(message.use.name) : "a tool"}`;
    if (message.role === "user") return message.by === null ? "" : "prompt";
    return message.by === null ? "" : "tells";
  }

  /** To whom it is. @param {number} number */
  whom(number) {
    const { to, by } = this.messages[number];
    if (to === null) return "everyone";
    const others = to.filter((each) => each !== by).map((each) => this.agents[each].name);
    return others.length ? others.join(", ") : by === null ? "nobody" : `${this.agents[by].name} alone`;
  }

  /** Who says it. @param {number} number */
  who(number) {
    const { by } = this.messages[number];
    return by === null ? "scenario" : this.agents[by].name;
  }
}
