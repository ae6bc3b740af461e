// What stands around the talk: title, games, eyes, search.

class Frame {
  constructor() {
    the("search").addEventListener("input", () => look({ query: visible(the("search").value).toLowerCase() }));
    the("games").addEventListener("change", () => play(Number(the("games").value)));
    the("fold").addEventListener("click", () => look({ fold: !state.fold, open: new Set() }));
    the("theme").addEventListener("click", theme);
    the("help").addEventListener("click", () => the("keys").showModal());
    for (const tab of tabs()) tab.addEventListener("click", () => look({ view: tab.dataset.view }));
    tabs()[0].parentElement?.addEventListener("keydown", (/** @type {any} */ event) => {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!step) return;
      const found = tabs();
      const next = found[(found.findIndex((tab) => tab.dataset.view === state.view) + step + found.length) % found.length];
      look({ view: next.dataset.view });
      next.focus();
      event.stopPropagation();
    });
  }

  /** What is known of the whole. */
  heads() {
    const { head } = state;
    const facts = [head.run, head.status, head.started?.slice(0, 16).replace("T", " "), ...(head.facts ?? []).map(([name, value]) => `${name} ${value}`)].filter(Boolean);
    the("under").replaceChildren(...facts.flatMap((fact, at) => [...(at ? [" · "] : []), fact === head.status ? make("span", { class: `status ${fact}` }, fact) : words(String(fact))]));
    the("notice").replaceChildren(...notice(head));
    const groups = new Map();
    head.talks.forEach((/** @type {any} */ talk, /** @type {number} */ number) => {
      const scores = Object.entries(talk.score ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
      const option = make("option", { value: number }, visible(`${talk.title} · ${many(talk.messages, "message")}${scores ? ` · ${scores}` : ""}`.slice(0, 90)));
      groups.set(talk.group, [...(groups.get(talk.group) ?? []), option]);
    });
    the("games").replaceChildren(...[...groups].flatMap(([group, options]) => (group ? [make("optgroup", { label: group }, ...options)] : options)));
    the("games").value = String(state.game);
    the("games").hidden = head.talks.length < 2;
  }

  refresh() {
    const { talk, view, eyes, query, fold, head } = state;
    for (const each of ["figures", "talk", "graph", "timeline", "costs", "beside"]) the(`tab-${each}`).hidden = !has(each);
    for (const tab of tabs()) {
      tab.setAttribute("aria-selected", String(tab.dataset.view === view));
      tab.tabIndex = tab.dataset.view === view ? 0 : -1;
    }
    the("pane").setAttribute("aria-labelledby", `tab-${view}`);
    the("fold").setAttribute("aria-pressed", String(fold));
    the("fold").hidden = !["talk", "graph", "beside"].includes(view);
    the("search").hidden = view === "figures" || view === "beside";
    the("seen").hidden = view === "figures";
    const found = hits();
    the("hits").textContent = query && !the("search").hidden ? `${found.length} found` : "";
    if (!talk) return;
    const only = head.eyes !== null;
    const roles = new Set(talk.agents.map((agent) => agent.role)).size;
    the("eyes").hidden = only || view === "figures";
    const chip = (/** @type {string} */ name, /** @type {number|null} */ seat, /** @type {any} */ agent) => {
      const bad = agent && agent.verdict !== "clean";
      const about = agent?.role && agent.role !== "agent" ? `, ${agent.role}` : "";
      return make("button", { ...(seat === null ? {} : own(seat)), class: `chip${seat === null ? "" : " agent"}${bad ? ` bad ${agent.verdict}` : ""}`, "data-eyes": seat === null ? "" : seat, "aria-pressed": String(eyes === seat),
        title: agent ? `${name}${about}: ${bad ? `${agent.unclean} of ${many(agent.readings, "reading")} not clean (${agent.verdict})` : `${many(agent.readings, "reading")}, all clean`}` : "Every message" },
        seat === null ? null : make("i", { class: "dot" }), words(name), agent && roles > 1 ? make("span", { class: "role" }, words(agent.role)) : null, bad ? make("span", { class: "sign", "aria-label": agent.verdict }, "!") : null);
    };
    const focused = /** @type {any} */ (document.activeElement)?.dataset?.eyes;
    the("eyes").replaceChildren(...(only ? [] : [make("span", { class: "soft label" }, "Through the eyes of"), chip("everyone", null, null), ...talk.agents.map((agent, seat) => chip(agent.name, seat, agent))]));
    the("seen").textContent = seen();
    if (focused !== undefined) the("eyes").querySelector(`[data-eyes="${focused}"]`)?.focus();
  }
}

/** What an agent could read, in a sentence. */
function seen() {
  const { talk, eyes } = state;
  if (!talk || eyes === null) return ending();
  const agent = talk.agents[eyes];
  const could = talk.messages.reduce((sum, _, number) => sum + Number(talk.readable(number, eyes)), 0);
  const reached = (agent.reached ?? []).length;
  return `could read ${could.toLocaleString("en")} of ${many(talk.length, "message")}; ${reached ? `${many(reached, "other message")} reached it through encodings` : agent.verdict === "unlabelled" ? "the provenance of some encodings that it read is unknown" : "no other message reached it"}`;
}

/** Of which run the game is, where there are several, and how it came out. */
function ending() {
  const head = state.head.talks[state.game] ?? {};
  const group = head.group ? `${visible(head.group)}: ` : "";
  if (head.error || head.ended) return `${group}ended: ${visible(String(head.error ?? head.ended))}`.slice(0, 200);
  const outcome = Object.entries(head.outcome ?? {}).filter(([, value]) => value !== null && typeof value !== "object").map(([name, value]) => `${name} ${value}`).join(" · ");
  return `${group}${visible(outcome)}`.slice(0, 160);
}

/** What to know before one hands the page on. @param {any} head */
function notice(head) {
  if (head.eyes !== null) return [make("b", {}, `What ${visible(head.eyes)} may read`), ", and nothing else. You can give this page to whoever plays or owns that agent."];
  if (!head.talks.length && head.figures) return [make("b", {}, "Figures only: "), "the games are not next to this file. ", make("span", { class: "how" }, "With the games: ", make("code", {}, "agentcho view FOLDER"))];
  if (head.wordless) return [make("b", {}, "No text: "), "an audit report says who read what, with digests instead of text."];
  return [make("b", {}, "This page holds every message, private ones included. "), make("span", { class: "how" }, "For a page of what one agent may read: ", make("code", {}, "agentcho view --eyes NAME"))];
}

/** @returns {any[]} */
const tabs = () => [...document.querySelectorAll("[role=tab]:not([hidden])")];

/** Dark where it was light, and light where it was dark. */
function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}
