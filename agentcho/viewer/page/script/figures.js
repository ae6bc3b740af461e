// What was found over all games: tables of figures, and what to know of them.

class FiguresView {
  /** @param {HTMLElement} pane */
  constructor(pane) {
    this.pane = pane;
    this.refresh();
  }

  close() {}

  show() {}

  refresh() {
    const { title, tables, notes } = state.head.figures;
    this.pane.replaceChildren(make("div", { class: "found" },
      make("p", { class: "soft" }, words(title)),
      ...tables.map((/** @type {any} */ each, /** @type {number} */ at) => sheet(each, at)),
      ...(notes.length ? [make("ul", { class: "notes" }, ...notes.map((/** @type {string} */ note) => make("li", {}, words(note))))] : [])));
  }
}

/** One table; a row whose first word is empty belongs to the one above it.
 * @param {{title: string, columns: string[], rows: string[][], words: number}} table @param {number} at */
function sheet(table, at) {
  const place = (/** @type {number} */ column) => (column < table.words ? null : "n");
  const row = (/** @type {string[]} */ each) => make("tr", { class: each[0] ? "first" : null },
    ...each.map((word, column) => make(column || !word ? "td" : "th", { class: place(column), scope: column || !word ? null : "row" }, words(word))));
  const heads = table.columns.map((word, column) => make(word ? "th" : "td", { class: place(column), scope: word ? "col" : null }, words(word)));
  const name = table.title || "figures";
  return make("div", { class: "sheet", role: "region", tabindex: 0, "aria-label": visible(name) },
    make("table", { id: `figures-${at}` }, make("caption", {}, words(name)), make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...table.rows.map(row))));
}
