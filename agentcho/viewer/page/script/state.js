// What is looked at, and who is told when that changes.

const state = {
  /** @type {any} */ head: null,
  /** @type {Talk|null} */ talk: null,
  game: 0,
  view: "talk",
  /** @type {number|null} */ other: null,
  /** @type {number|null} */ eyes: null,
  /** @type {number|null} */ chosen: null,
  query: "",
  fold: false,
  /** @type {Set<number>} */ open: new Set(),
};

/** @type {((changed: Set<string>) => void)[]} */
const listeners = [];

/** Look at something else. @param {Partial<typeof state>} changes */
function look(changes) {
  const changed = new Set();
  for (const [key, value] of Object.entries(changes)) {
    if (/** @type {any} */ (state)[key] === value) continue;
    /** @type {any} */ (state)[key] = value;
    changed.add(key);
  }
  if (changed.size) for (const listen of listeners) listen(changed);
}

/** Whether a message has what is searched for. @param {number} number */
function hit(number) {
  const { talk, query } = state;
  if (!talk || !query) return false;
  const message = talk.messages[number];
  if (state.eyes !== null && !talk.readable(number, state.eyes) && !talk.reached(number, state.eyes)) return false;
  return `${message.id}\n${talk.who(number)}\n${visible(message.header ?? "")}${visible(message.text)}`.toLowerCase().includes(query);
}

/** How the title of an attempt ends that was begun anew. */
const GIVEN_UP = /, attempt \d+$/;

/** Whether the game that is looked at is still played: it is the last attempt, in a run that goes on. */
function going() {
  const { head, game } = state;
  const { title, run } = head.talks[game];
  const status = head.runs && run !== undefined ? head.runs[run][1] : head.status;
  return status === "running" && !GIVEN_UP.test(title);
}

/** Whether there is anything to see in a view. @param {string} view */
function has(view) {
  if (view === "figures") return Boolean(state.head.figures);
  if (view === "costs") return Boolean(state.talk?.costs.length);
  if (view === "beside") return state.head.talks.length > 1;
  return state.head.talks.length > 0 || !state.head.figures;
}

/** The messages that have what is searched for. @returns {number[]} */
const hits = () => (state.talk && state.query ? state.talk.messages.flatMap((_, number) => (hit(number) ? [number] : [])) : []);

/** The messages that stay where the rest is folded: what is searched for; the chosen one, what it read, and its leaks;
 * where nothing is searched for or chosen, all leaks, or else what was said. @returns {Set<number>} */
function kept() {
  const { talk, chosen, query } = state;
  if (!talk) return new Set();
  const found = new Set(hits());
  const leaks = leaking(chosen);
  if (chosen !== null) {
    const read = talk.reads(chosen);
    for (const each of [chosen, ...(read.length > FEW ? read.slice(-FEW) : read), ...leaks]) found.add(each);
  } else if (!query) {
    for (const each of leaks) found.add(each);
    if (!leaks.length) talk.messages.forEach((message, number) => message.kind === "decode" && found.add(number));
  }
  return found;
}

const FEW = 40;

/** Secrets that reached somebody, what brought them, and who got them; of one message those that it is part of.
 * @param {number|null} number @returns {number[]} */
function leaking(number) {
  const { talk, eyes } = state;
  const agents = !talk ? [] : eyes === null ? talk.agents : [talk.agents[eyes]];
  const ways = agents.flatMap((agent) => (agent.reached ?? []).map((/** @type {any[]} */ [secret, , call, through]) => [secret, call, through]));
  return ways.filter((way) => number === null || way.includes(number)).flat().filter((each) => each >= 0);
}

/** @typedef {{from: number, to: number}} Row */

/** The rows of a list: a message each, or a run of those that are folded away. @returns {Row[]} */
function rows() {
  const { talk } = state;
  if (!talk) return [];
  const keep = state.fold ? kept() : null;
  /** @type {Row[]} */ const found = [];
  for (let number = 0; number < talk.length; number++) {
    const away = keep && !keep.has(number) && !state.open.has(number);
    const last = found.at(-1);
    if (away && last && folded.has(last)) last.to = number;
    else {
      const row = { from: number, to: number };
      if (away) folded.add(row);
      found.push(row);
    }
  }
  return found;
}

/** Rows that stand for messages that are folded away. @type {WeakSet<Row>} */
const folded = new WeakSet();
