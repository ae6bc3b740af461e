// What each agent cost, and under that a bar for the prompt of every call.

const CALL = 30;

class CostsView {
  /** @param {HTMLElement} pane */
  constructor(pane) {
    this.pane = pane;
    this.top = make("div", { class: "found" });
    this.list = new Rows(pane, { draw: (n) => this.row(n), guess: () => CALL, label: "Prompts" });
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
    /** @type {number[]} */ this.calls = talk.messages.flatMap((message, number) => (message.prompt ? [number] : []));
    if (["head", "talk", "eyes"].some((each) => changed.has(each))) {
      const all = together();
      const tables = [table("Cost by agent", rowsOf(talk)), ...(all ? [table(`Cost by agent, all ${all.games} games`, all.rows)] : [])];
      this.top.replaceChildren(...tables.map(sheet), make("ul", { class: "notes" }, ...notes(all?.rows ?? talk.costs).map((note) => make("li", {}, note))),
        make("h2", {}, many(this.calls.length, "prompt")), legend());
    }
    if (changed.size !== 1 || !changed.has("head")) this.list.set(this.calls.length);
  }

  /** @param {number} number @param {boolean} [focus] */
  show(number, focus = true) {
    this.list.show(this.calls?.indexOf(number) ?? -1, focus);
  }

  /** @param {number} n */
  row(n) {
    const talk = /** @type {Talk} */ (state.talk);
    const number = /** @type {number[]} */ (this.calls)[n];
    const message = talk.messages[number];
    const used = /** @type {Usage} */ (usage(message));
    const by = own(message.by);
    const names = [by.class, "row call", number === state.chosen && "chosen", state.query && (hit(number) ? "hit" : "nohit")];
    return make("article", { ...by, class: names.filter(Boolean).join(" "), tabindex: 0, "data-number": number, "aria-label": `${message.id}: ${sentence(used)}`, "aria-current": number === state.chosen ? "true" : null, title: sentence(used) },
      make("span", { class: "id" }, words(message.id)), make("span", { class: "gauge" }, bar(used, longest(talk))),
      make("span", { class: "n" }, used.unreported ? "?" : percent(used.reused, used.reused + used.encoded)), make("span", { class: "n" }, (used.reused + used.encoded).toLocaleString("en")));
  }
}

/** The rows of one game, each with its name. @param {Talk} talk @returns {any[]} */
const rowsOf = ({ costs, agents }) => costs.map((row) => ({ ...row, name: row.by === undefined ? "all" : row.by === null ? "scenario" : agents[row.by].name }));

/** What all games of the group cost that is looked at; undefined: there is one, or costs are not known. */
const together = () => state.head.costs?.find((/** @type {any} */ each) => each.group === state.head.talks[state.game].group);

/** A row for each agent, and one for all. @param {string} title @param {any[]} costs */
function table(title, costs) {
  const priced = costs.some((row) => row.price !== undefined);
  const count = (/** @type {number} */ value) => value.toLocaleString("en");
  const row = (/** @type {any} */ each) => [each.name, count(each.calls), count(each.reused + each.encoded),
    each.unreported ? "-" : count(each.reused), each.unreported ? "-" : count(each.encoded), each.unreported ? "-" : percent(each.reused, each.reused + each.encoded), count(each.sampled), count(each.all),
    each.first === undefined ? "-" : seconds(each.first), each.calls ? seconds(each.seconds) : "-", ...(priced ? [each.price === undefined ? "-" : String(Number(each.price.toPrecision(4)))] : [])];
  return { title, words: 1, rows: costs.map(row),
    columns: ["agent", "calls", "prompt tokens", "reused", "encoded", "reused %", "generated", "encoded in all", "first token", "time", ...(priced ? ["price"] : [])] };
}

/** How to read the table. @param {any[]} costs */
function notes(costs) {
  const { unknown = 0 } = costs.at(-1) ?? {};
  return [...(unknown ? [`Not counted: ${many(unknown, "call")} whose server did not report how many tokens the prompt had.`] : []),
    "“Encoded in all” also counts generated tokens, encodings for other readers, and messages of others that were encoded with a call. Over all agents it adds up to what the game encoded.",
    "“First token” is the median time to the first token. “Time” sums the calls from request to end, waiting included; calls that ran at once overlap.",
    ...(costs.some((row) => row.unreported) ? ["A dash: a server did not report how much of a prompt it had cached."] : [])];
}
