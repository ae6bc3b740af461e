// The same page while a run goes on: it asks its own server, next to its address, whether there is more.

const EVERY = 1000;
const SOON = 150;

/** What a server says: the versions of the head and of a game, and what the page did not have of them.
 * @typedef {{game: number|null, versions: {head: string, talk?: string}, head?: any, talk?: any}} Answer */

class Live {
  constructor() {
    this.head = "";
    this.heard = "";
    this.failed = 0;
    this.awake = false;
    /** The games that were looked at, by number. @type {Map<number, {version: string, talk: Talk}>} */ this.held = new Map();
  }

  /** Ask until nothing more can come. @param {(answer: Answer) => void} take @param {(words: any[]) => void} hear */
  async follow(take, hear) {
    this.take = take;
    this.listen(hear);
    for (;;) {
      this.awake = false;
      for (const number of this.wanted()) await this.get(number);
      document.body.classList.toggle("lost", this.failed > 2);
      const over = state.head && state.head.status !== "running";
      await this.pause((over ? 4 : 1) * EVERY * Math.min(8, 1 + this.failed));
    }
  }

  /** The numbers of the games that are looked at; null: whichever is first. @returns {(number|null)[]} */
  wanted() {
    const { head, game, view } = state;
    if (!head?.talks.length) return [null];
    const places = view === "beside" && has("beside") ? [game, partner()] : [game];
    return places.map((place) => head.talks[place].number);
  }

  /** Ask for what is new of a game and of the head, and take it. @param {number|null} number */
  async get(number) {
    const talk = this.held.get(number ?? -1)?.version ?? "";
    /** @type {Answer|null} */ const answer = await this.ask("data", { game: String(number ?? ""), head: this.head, talk });
    if (!answer) return;
    if (answer.head) this.head = answer.versions.head;
    if (answer.talk && answer.game !== null) this.held.set(answer.game, { version: answer.versions.talk ?? "", talk: new Talk(answer.talk) });
    this.take?.(answer);
  }

  /** The game at this place of the list; null: it is still to come. @param {number} place @returns {Talk|null} */
  talk(place) {
    return this.held.get(state.head.talks[place]?.number)?.talk ?? null;
  }

  /** Ask for the words that are being said, while somebody looks and the run goes on. @param {(words: any[]) => void} hear */
  async listen(hear) {
    for (;;) {
      const { talk, head, game } = state;
      const number = head?.talks[game]?.number;
      const going = talk && head.status === "running" && !document.hidden && !this.failed;
      const answer = going ? await this.ask("words", { game: String(number), version: this.heard }) : null;
      if (answer && number === state.head.talks[state.game]?.number) {
        this.heard = answer.version;
        hear(answer.words);
      }
      await new Promise((done) => setTimeout(done, SOON));
    }
  }

  /** Wait so long, or until something else is looked at. @param {number} time */
  async pause(time) {
    if (!this.awake) await new Promise((done) => { this.rise = done; setTimeout(done, time); });
  }

  /** Ask again at once. */
  wake() {
    this.awake = true;
    this.rise?.(null);
  }

  /** What is new; null: nothing. @param {string} what @param {Object<string, string>} query */
  async ask(what, query) {
    try {
      const response = await fetch(`${what}?${new URLSearchParams(query)}`, { cache: "no-store" });
      this.failed = response.ok || response.status === 204 ? 0 : this.failed + 1;
      return response.status === 200 ? await response.json() : null;
    } catch {
      this.failed += 1;
      return null;
    }
  }
}
