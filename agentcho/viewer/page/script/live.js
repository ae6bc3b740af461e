// The same page while a run goes on: it asks its own server, next to its address, whether there is more.

const EVERY = 1000;

class Live {
  constructor() {
    this.version = "";
    this.failed = 0;
  }

  /** Ask until nothing more can come. @param {(data: any) => void} take */
  async follow(take) {
    for (;;) {
      const answer = await this.ask();
      if (answer) {
        this.version = answer.version;
        take(answer);
      }
      document.body.classList.toggle("lost", this.failed > 2);
      const over = state.head && state.head.status !== "running";
      await new Promise((done) => setTimeout(done, (over ? 4 : 1) * EVERY * Math.min(8, 1 + this.failed)));
    }
  }

  /** What is new for the game that is looked at; null: nothing. */
  async ask() {
    try {
      const response = await fetch(`data?game=${state.game}&version=${encodeURIComponent(this.version)}`, { cache: "no-store" });
      this.failed = response.ok || response.status === 204 ? 0 : this.failed + 1;
      return response.status === 200 ? await response.json() : null;
    } catch {
      this.failed += 1;
      return null;
    }
  }
}
