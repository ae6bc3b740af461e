// The same page while a run goes on: it asks its own server, next to its address, whether there is more.

const EVERY = 1000;
const SOON = 150;

class Live {
  constructor() {
    this.version = "";
    this.heard = "";
    this.failed = 0;
  }

  /** Ask until nothing more can come. @param {(data: any) => void} take @param {(words: any[]) => void} hear */
  async follow(take, hear) {
    this.listen(hear);
    for (;;) {
      const { game } = state;
      const answer = await this.ask("data", this.version);
      if (answer && game === state.game) {
        [this.version, this.heard] = [answer.version, ""];
        take(answer);
      }
      document.body.classList.toggle("lost", this.failed > 2);
      const over = state.head && state.head.status !== "running";
      await new Promise((done) => setTimeout(done, (over ? 4 : 1) * EVERY * Math.min(8, 1 + this.failed)));
    }
  }

  /** Ask for the words that are being said, while somebody looks and the run goes on. @param {(words: any[]) => void} hear */
  async listen(hear) {
    for (;;) {
      const going = state.head?.status === "running" && !document.hidden && !this.failed;
      const { game } = state;
      const answer = going ? await this.ask("words", this.heard) : null;
      if (answer && game === state.game) {
        this.heard = answer.version;
        hear(answer.words);
      }
      await new Promise((done) => setTimeout(done, SOON));
    }
  }

  /** What is new for the game that is looked at; null: nothing. @param {string} what @param {string} version */
  async ask(what, version) {
    try {
      const response = await fetch(`${what}?game=${state.game}&version=${encodeURIComponent(version)}`, { cache: "no-store" });
      this.failed = response.ok || response.status === 204 ? 0 : this.failed + 1;
      return response.status === 200 ? await response.json() : null;
    } catch {
      this.failed += 1;
      return null;
    }
  }
}
