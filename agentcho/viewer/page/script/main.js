// Puts it together, and hears keys and clicks.

const VIEWS = { figures: FiguresView, talk: TalkView, graph: GraphView, timeline: TimelineView, costs: CostsView, beside: BesideView };
const frame = new Frame();
const detail = new Detail(the("detail"));
/** @type {any} */ let shown = null;

const live = document.body.hasAttribute("data-live") ? new Live() : null;

/** The data of a block of the page. @param {string} id */
const data = (id) => JSON.parse(the(id).textContent);

/** The game at this place of the list; null: it is still to come. @param {number} place @returns {Talk|null} */
const talkAt = (place) => (live ? live.talk(place) : new Talk(data(`talk-${place}`)));

function open() {
  state.talk = state.head.talks.length ? talkAt(state.game) : null;
}

function enter() {
  shown?.close();
  the("pane").className = state.view;
  the("pane").scrollTop = 0;
  shown = state.talk || state.view === "figures" ? new VIEWS[/** @type {keyof typeof VIEWS} */ (state.view)](the("pane")) : null;
  if (!shown) the("pane").replaceChildren(make("p", { class: "empty soft" }, "No messages yet."));
  if (shown && state.chosen !== null) shown.show(state.chosen, false);
}

listeners.push((changed) => {
  if (changed.has("game")) {
    open();
    if (!has(state.view)) state.view = "talk";
    Object.assign(state, { chosen: null, other: null, open: new Set(), eyes: state.talk && (state.eyes ?? -1) < state.talk.agents.length ? state.eyes : null });
  }
  if (live && ["game", "other", "view"].some((each) => changed.has(each))) {
    if (changed.has("game")) live.heard = "";
    live.wake();
  }
  frame.refresh();
  if (changed.has("game")) frame.heads();
  if (["game", "chosen", "eyes", "talk", "view"].some((each) => changed.has(each))) detail.refresh();
  if (changed.has("game") || changed.has("view") || !shown) enter();
  else shown.refresh(changed);
  told();
});

/** For whoever opens the page without eyes: what is there. */
function told() {
  const root = document.documentElement.dataset;
  const { talk, eyes } = state;
  root.messages = String(talk?.length ?? 0);
  root.rows = String(document.querySelectorAll("#pane article").length);
  root.reached = talk && eyes !== null ? (talk.agents[eyes].reached ?? []).map((/** @type {any[]} */ each) => talk.messages[each[0]].id).join(" ") : "";
}

/** Choose the message so many further, of those that can be seen. @param {number} by */
function step(by) {
  const talk = state.talk;
  if (!talk) return;
  if (state.view === "figures") look({ view: "talk" });
  const next = state.chosen === null ? (by > 0 ? 0 : talk.length - 1) : Math.max(0, Math.min(talk.length - 1, state.chosen + by));
  go(next);
}

/** @param {number} number */
function go(number) {
  look({ chosen: number });
  shown?.show(number);
}

/** Look at another game, once it is there; from the figures that is its talk. @param {number} game */
function play(game) {
  const view = state.view === "figures" ? "talk" : state.view;
  const place = within(game);
  const number = state.head.talks[place]?.number;
  if (!live || live.talk(place) || number === undefined) look({ view, game: place });
  else live.get(number).then(() => live.held.has(number) && look({ view, game: within(placeOf(number)) }));
}

/** A place in the list of games. @param {any} game */
const within = (game) => Math.min(Math.max(0, Number(game) || 0), Math.max(0, state.head.talks.length - 1));

/** The place of a game in the list, -1 if it is not in it. @param {number} number */
const placeOf = (number) => state.head.talks.findIndex((/** @type {any} */ each) => each.number === number);

/** @param {number} by */
function seek(by) {
  const found = hits();
  if (!found.length) return;
  const here = state.chosen ?? -1;
  const next = by > 0 ? found.find((each) => each > here) ?? found[0] : found.findLast((each) => each < here) ?? found.at(-1);
  go(/** @type {number} */ (next));
}

/** @param {number} by */
function turn(by) {
  const count = state.talk?.agents.length ?? 0;
  if (state.head.eyes !== null || !count) return;
  const place = ((state.eyes ?? -1) + 1 + by + count + 1) % (count + 1);
  look({ eyes: place === 0 ? null : place - 1 });
}

const KEYS = {
  j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
  Enter: () => (state.chosen === null ? null : detail.focus()),
  Escape: () => { const { chosen } = state; look({ chosen: null }); if (chosen !== null) shown?.show(chosen); },
  "/": () => the("search").focus(), n: () => seek(1), N: () => seek(-1),
  0: () => (state.head.figures ? look({ view: "figures" }) : null), 1: () => look({ view: "talk" }), 2: () => look({ view: "graph" }), 3: () => look({ view: "timeline" }), 4: () => (has("costs") ? look({ view: "costs" }) : null), 5: () => (has("beside") ? look({ view: "beside" }) : null),
  e: () => turn(1), E: () => turn(-1), f: () => the("fold").click(), t: theme, "?": () => the("keys").showModal(),
  "[": () => play(state.game - 1), "]": () => play(state.game + 1),
};

document.addEventListener("keydown", (event) => {
  const target = /** @type {any} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || the("keys").open) return;
  if (target.matches?.("input, select")) {
    if (event.key === "Escape") target.blur();
    if (event.key === "Enter" && target === the("search")) seek(event.shiftKey ? -1 : 1);
    return;
  }
  if ((event.key === "Enter" || event.key === " ") && target.matches?.("button, summary, a")) return;
  if (event.key === "Enter" && target.dataset?.open) return unfold(target.dataset.open);
  if (event.key === "Enter" && target.dataset?.number && Number(target.dataset.number) !== state.chosen) return look({ chosen: Number(target.dataset.number) });
  const act = /** @type {any} */ (KEYS)[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

document.addEventListener("click", (event) => {
  const at = (/** @type {string} */ what) => /** @type {any} */ (event.target).closest?.(what);
  const found = at("[data-go], [data-eyes], [data-more], [data-open], [data-number]");
  if (!found) return;
  const { go: where, eyes, more, open: range, number } = found.dataset;
  if (where !== undefined) go(Number(where));
  else if (eyes !== undefined) look({ eyes: eyes === "" ? null : Number(eyes) });
  else if (more !== undefined) shown?.widen?.(Number(more));
  else if (range !== undefined) unfold(range);
  else if (getSelection()?.isCollapsed !== false) look({ chosen: Number(number) === state.chosen ? null : Number(number) });
});

/** Show again what was folded away. @param {string} range */
function unfold(range) {
  const [from, to] = range.split("-").map(Number);
  look({ open: new Set([...state.open, ...Array.from({ length: to - from + 1 }, (_, n) => from + n)]) });
}

/** Take what a server says. @param {Answer} answer */
function take(answer) {
  const first = state.head === null || state.talk === null;
  const { scrollTop, scrollHeight, clientHeight } = the("pane");
  const end = !first && (scrollTop > 0 || state.view === "talk") && scrollTop + clientHeight > scrollHeight - 60;
  const before = state.talk;
  if (answer.head) relist(answer.head);
  open();
  if (first) {
    if (asked.has("game")) state.game = within(asked.get("game"));
    asked.delete("game");
    open();
    if (state.talk || !state.head.talks.length) arrive();
    live?.wake();
  }
  if (state.talk !== before && live) live.heard = "";
  if ((state.eyes ?? -1) >= (state.talk?.agents.length ?? 0)) state.eyes = null;
  const changed = new Set(answer.talk ? ["head", "talk"] : ["head"]);
  const fits = has(state.view);
  if (!fits) state.view = "talk";
  frame.heads();
  frame.refresh();
  if (first || !shown || !fits) {
    enter();
    if (state.view === "talk" && state.head.status === "running") shown?.show((state.talk?.length ?? 0) - 1, false);
  } else {
    shown.refresh(changed);
    the("pane").scrollTop = end ? the("pane").scrollHeight : scrollTop;
  }
  if (state.chosen !== null) detail.refresh();
  told();
}

/** Take a new list of games, in which those that are looked at may have another place. @param {any} head */
function relist(head) {
  const [game, other] = [state.game, state.other].map((place) => state.head?.talks[place ?? -1]?.number);
  state.head = head;
  state.game = within(placeOf(game));
  state.other = placeOf(other) < 0 ? null : placeOf(other);
}

/** Take the words of messages that are under way. @param {any[]} said */
function hear(said) {
  const { talk, view, chosen } = state;
  if (!talk) return;
  const heard = said.flatMap((each) => talk.hear(each) ?? []);
  if (view !== "talk" || !shown || !heard.length) return;
  const { scrollTop, scrollHeight, clientHeight } = the("pane");
  shown.hear?.(heard);
  if (scrollTop + clientHeight > scrollHeight - 60) the("pane").scrollTop = the("pane").scrollHeight;
  if (chosen !== null && heard.includes(chosen)) detail.hear(chosen);
  told();
}

/** Look at what the address asks for, beside a game. */
function arrive() {
  const view = asked.get("view") ?? (precise ? "talk" : state.head.beside ? "beside" : "figures");
  const seat = state.talk?.agents.findIndex((agent) => agent.name === asked.get("eyes")) ?? -1;
  if (seat >= 0) state.eyes = seat;
  if (asked.get("with")) state.other = within(asked.get("with"));
  if (Object.hasOwn(VIEWS, view) && has(view)) state.view = view;
  if (asked.get("theme")) document.documentElement.dataset.theme = /** @type {string} */ (asked.get("theme"));
  if (asked.get("message")) state.chosen = state.talk?.ids.get(asked.get("message") ?? "") ?? null;
  if (asked.get("search")) { the("search").value = asked.get("search"); state.query = visible(asked.get("search") ?? "").toLowerCase(); }
  if (asked.get("fold")) state.fold = true;
}

const asked = new URLSearchParams(location.hash.slice(1));
const precise = ["game", "message", "search", "eyes"].some((each) => asked.has(each));
if (live) live.follow(take, hear);
else {
  state.head = data("head");
  state.game = within(asked.get("game"));
  open();
  arrive();
  frame.heads();
  frame.refresh();
  detail.refresh();
  enter();
  told();
}
