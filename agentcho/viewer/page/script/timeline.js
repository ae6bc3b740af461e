// Who waited, who was encoded and who spoke: a row an agent, steps of the engine or seconds to the right.

const BAR = 26;

class TimelineView {
  /** @param {HTMLElement} pane */
  constructor(pane) {
    this.pane = pane;
    this.unit = null;
    this.zoom = 1;
    this.names = make("div", { class: "names", "aria-hidden": "true" });
    this.track = make("div", { class: "track", tabindex: 0, role: "group", "aria-label": "The timeline" });
    this.bar = make("div", { class: "controls" });
    this.drawing = make("svg:svg", { class: "bars" });
    this.track.append(this.drawing);
    this.track.addEventListener("scroll", () => this.draw(), { passive: true });
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.track);
    pane.replaceChildren(this.bar, make("div", { class: "chart" }, this.names, this.track), make("p", { class: "soft legend" }));
    this.refresh();
  }

  close() {
    this.watch.disconnect();
  }

  /** @param {Set<string>} [changed] */
  refresh(changed = new Set(["talk"])) {
    const { talk } = state;
    if (!talk) return;
    if (changed.has("talk")) {
      const has = (/** @type {"steps"|"at"} */ field) => talk.messages.some((message) => message[field] && message.kind === "decode");
      const several = new Set(talk.messages.map((message) => message.engine ?? "")).size > 1;
      this.units = [...(has("steps") && !several ? ["steps"] : []), ...(has("at") ? ["seconds"] : [])];
      if (!this.units.includes(this.unit ?? "")) this.unit = this.units[0] ?? "order";
    }
    this.spans = this.measure(talk);
    this.end = Math.max(1e-9, ...this.spans.map((span) => span.end));
    this.begin = Math.min(this.end, ...this.spans.map((span) => span.asked));
    this.names.replaceChildren(...talk.agents.map((agent, seat) => make("span", { ...own(seat), class: `agent${state.eyes === seat ? " on" : ""}`, title: agent.name }, words(agent.name))));
    this.controls();
    this.draw();
  }

  controls() {
    const button = (/** @type {string} */ text, /** @type {() => void} */ act, /** @type {boolean|null} */ pressed, /** @type {string} */ name) =>
      make("button", { class: "plain", onclick: () => { act(); this.refresh(new Set()); }, "aria-pressed": pressed === null ? null : String(pressed), "aria-label": name || null }, text);
    const units = (this.units ?? []).length > 1 ? this.units ?? [] : [];
    this.bar.replaceChildren(...units.map((unit) => button(unit, () => { this.unit = unit; this.zoom = 1; }, unit === this.unit, "")),
      button("−", () => { this.zoom = Math.max(1, this.zoom / 2); }, null, "Zoom out"), button("+", () => { this.zoom = Math.min(512, this.zoom * 2); }, null, "Zoom in"),
      make("span", { class: "soft" }, this.sentence()));
    const legend = this.pane.querySelector(".legend");
    legend?.replaceChildren(make("i", { class: "swatch waits" }), " waiting and encoding  ", make("i", { class: "swatch speaks" }), " generating  ", make("i", { class: "swatch told" }), " known text");
  }

  sentence() {
    if (this.unit === "order") return "The record has no times; this shows the order.";
    const span = (this.end ?? 0) - (this.begin ?? 0);
    return this.unit === "steps" ? `${many(Math.round(span), "step")} of the engine` : seconds(span);
  }

  /** @param {Talk} talk */
  measure(talk) {
    const found = [];
    let [now, last] = [0, 0];
    for (let number = 0; number < talk.length; number++) {
      const { by, steps, at, first = 0, took = 0, kind } = talk.messages[number];
      if (by === null) continue;
      if (this.unit === "steps") {
        const [asked, spoke, end] = steps ?? [last + 1, last + 1, last];
        if (steps) last = Math.max(last, end);
        found.push({ number, by, asked: asked - 1, spoke: steps ? spoke - 1 : asked - 1, end: steps ? end : asked - 1, told: kind === "prefill" });
      } else if (this.unit === "seconds") {
        now = at ?? now;
        found.push({ number, by, asked: now, spoke: now + first, end: now + took, told: kind === "prefill" });
      } else found.push({ number, by, asked: number, spoke: number, end: number + 0.8, told: kind === "prefill" });
    }
    return found;
  }

  draw() {
    const { talk } = state;
    if (!talk || !this.spans || this.end === undefined || this.begin === undefined) return;
    const { clientWidth, scrollLeft } = this.track;
    const width = Math.max(200, (clientWidth - 4) * this.zoom);
    const scale = (width - 16) / Math.max(1e-9, this.end - this.begin);
    const x = (/** @type {number} */ value) => 8 + (value - /** @type {number} */ (this.begin)) * scale;
    const bars = [];
    const [left, right] = [scrollLeft - 100, scrollLeft + clientWidth + 100];
    for (const mark of this.ticks(scale, clientWidth)) if (x(mark) >= left && x(mark) <= right) bars.push(make("svg:line", { class: "tick", x1: x(mark), x2: x(mark), y1: 0, y2: BAR * talk.agents.length }),
      make("svg:text", { class: "ticktext", x: x(mark) + 3, y: BAR * talk.agents.length + 13 }, this.unit === "seconds" ? seconds(mark) : String(Math.round(mark))));
    for (const span of this.spans) {
      if (x(span.end) < left || x(span.asked) > right) continue;
      bars.push(this.span(span, x));
    }
    this.drawing.replaceChildren(...bars);
    this.drawing.setAttribute("width", String(width));
    this.drawing.setAttribute("height", String(BAR * talk.agents.length + 18));
  }

  /** @param {{number: number, by: number, asked: number, spoke: number, end: number, told: boolean}} span @param {(value: number) => number} x */
  span(span, x) {
    const talk = /** @type {Talk} */ (state.talk);
    const y = BAR * span.by + 4;
    const away = state.eyes !== null && !talk.readable(span.number, state.eyes);
    const group = make("svg:g", { class: `span ${own(span.by).class}${span.number === state.chosen ? " chosen" : ""}${away ? " away" : ""}${state.query && !hit(span.number) ? " nohit" : ""}`, "--hue": hue(span.by), "data-number": span.number },
      make("svg:title", {}, `${label(span.number)}`));
    if (span.told) group.append(make("svg:rect", { class: "told", x: x(span.asked) - 1.5, y: y + 3, width: 3, height: BAR - 14, rx: 1.5 }));
    else {
      const [from, to, end] = [x(span.asked), x(span.spoke), x(span.end)];
      group.append(make("svg:rect", { class: "waits", x: from, y: y + 6, width: Math.max(0, to - from), height: BAR - 20, rx: 2 }),
        make("svg:rect", { class: "speaks", x: to, y, width: Math.max(2.5, end - to - 1), height: BAR - 8, rx: 3 }));
    }
    return group;
  }

  /** Where lines stand: at round numbers, about each 120 pixels. @param {number} scale @param {number} width */
  ticks(scale, width) {
    const rough = 120 / scale;
    const ten = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= rough) ?? rough;
    if (this.unit !== "seconds") step = Math.max(1, step);
    const found = [];
    for (let mark = Math.ceil((this.begin ?? 0) / step) * step; mark <= (this.end ?? 0) && found.length < 5000; mark += step) found.push(mark);
    return found;
  }

  /** @param {number} number */
  show(number) {
    const span = this.spans?.find((each) => each.number === number);
    if (!span || this.begin === undefined || this.end === undefined) return;
    const width = Math.max(200, (this.track.clientWidth - 4) * this.zoom);
    const x = 8 + ((span.asked - this.begin) * (width - 16)) / Math.max(1e-9, this.end - this.begin);
    if (x < this.track.scrollLeft + 20 || x > this.track.scrollLeft + this.track.clientWidth - 60) this.track.scrollLeft = x - this.track.clientWidth / 3;
  }
}
