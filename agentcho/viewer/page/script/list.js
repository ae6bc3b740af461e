// A list of which only what can be seen is in the page, whatever its rows are high.

const AROUND = 600;

class Rows {
  /** @param {HTMLElement} scroller @param {{draw: (n: number) => HTMLElement, guess: (n: number) => number, label: string,
   * lanes?: number, after?: (first: number, last: number, rows: Rows) => void}} how */
  constructor(scroller, how) {
    this.scroller = scroller;
    this.how = how;
    this.shelf = make("div", { class: "shelf", role: "feed", "aria-label": how.label, "aria-busy": "false" });
    /** @type {Map<number, HTMLElement>} */ this.there = new Map();
    this.count = 0;
    this.tops = new Float64Array(1);
    this.heights = new Float64Array(0);
    this.onscroll = () => this.fill();
    scroller.addEventListener("scroll", this.onscroll, { passive: true });
    this.watch = new ResizeObserver(() => this.again());
    this.watch.observe(scroller);
  }

  close() {
    this.scroller.removeEventListener("scroll", this.onscroll);
    this.watch.disconnect();
  }

  /** Show so many rows, drawn anew. @param {number} count */
  set(count) {
    this.count = count;
    this.heights = Float64Array.from({ length: count }, (_, n) => this.how.guess(n));
    this.wide = this.scroller.clientWidth;
    for (const row of this.there.values()) row.remove();
    this.there.clear();
    this.place();
    this.fill();
  }

  /** Show more rows behind those that are there. @param {number} count */
  grow(count) {
    if (count <= this.count) return;
    this.heights = Float64Array.from({ length: count }, (_, n) => this.heights[n] ?? this.how.guess(n));
    this.count = count;
    this.place();
    this.fill();
  }

  /** The same rows where the page has another width. */
  again() {
    if (this.scroller.clientWidth !== this.wide) this.set(this.count);
    else this.fill();
  }

  place() {
    this.tops = new Float64Array(this.count + 1);
    for (let n = 0; n < this.count; n++) this.tops[n + 1] = this.tops[n] + this.heights[n];
    this.shelf.style.height = `${this.tops[this.count]}px`;
  }

  /** The row at a height. @param {number} y */
  at(y) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.min(low, Math.max(0, this.count - 1));
  }

  /** Draw what can be seen. Rows that turn out higher than guessed move those below, and nothing that is seen. */
  fill() {
    const top = this.scroller.scrollTop - this.shelf.offsetTop;
    const anchor = this.at(Math.max(0, top));
    const into = top - this.tops[anchor];
    const [first, last] = [this.at(top - AROUND), this.at(top + this.scroller.clientHeight + AROUND)];
    for (const [number, row] of this.there) {
      if (number >= first && number <= last) continue;
      if (row.contains(document.activeElement)) this.scroller.focus({ preventScroll: true });
      row.remove();
      this.there.delete(number);
    }
    if (this.count) for (let number = first; number <= last; number++) if (!this.there.has(number)) this.enter(number);
    if (this.measure() && anchor > 0 && top > 0) this.scroller.scrollTop = this.shelf.offsetTop + this.tops[anchor] + into;
    for (const [number, row] of this.there) row.style.transform = `translateY(${this.tops[number]}px)`;
    this.how.after?.(first, last, this);
  }

  /** @param {number} number */
  enter(number) {
    const row = this.how.draw(number);
    row.setAttribute("aria-posinset", String(number + 1));
    row.setAttribute("aria-setsize", String(this.count));
    this.there.set(number, row);
    let next = null;
    for (const [other, each] of this.there) if (other > number && (next === null || other < next[0])) next = [other, each];
    this.shelf.insertBefore(row, /** @type {any} */ (next)?.[1] ?? null);
  }

  /** Whether a row is another height than was thought. */
  measure() {
    let changed = false;
    for (const [number, row] of this.there) {
      const height = row.offsetHeight;
      if (Math.abs(height - this.heights[number]) > 0.5) [this.heights[number], changed] = [height, true];
    }
    if (changed) this.place();
    return changed;
  }

  /** Bring a row into view. @param {number} number @param {boolean} [focus] */
  show(number, focus = true) {
    if (number < 0 || number >= this.count) return;
    for (let turn = 0; turn < 3; turn++) {
      const [top, bottom] = [this.tops[number] + this.shelf.offsetTop, this.tops[number + 1] + this.shelf.offsetTop];
      const { scrollTop, clientHeight } = this.scroller;
      if (top < scrollTop + 40) this.scroller.scrollTop = top - 40;
      else if (bottom > scrollTop + clientHeight - 16) this.scroller.scrollTop = Math.min(top - 40, bottom - clientHeight + 16);
      this.fill();
    }
    if (focus) this.there.get(number)?.focus({ preventScroll: true });
  }

  /** Draw a row anew. @param {number} number */
  redraw(number) {
    const row = this.there.get(number);
    if (!row) return;
    const focused = row.contains(document.activeElement);
    row.remove();
    this.there.delete(number);
    this.fill();
    if (focused) this.there.get(number)?.focus({ preventScroll: true });
  }
}
