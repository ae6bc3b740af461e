// What a prompt was made of, as a bar and in words: tokens reused, tokens encoded, tokens generated.

/** @typedef {{reused: number, encoded: number, sampled: number, runs: number[], unplaced: boolean, unreported: boolean}} Usage */

/** What the call of a message took; null: it is no call, or that is not known. @param {Message} message @returns {Usage|null} */
function usage(message) {
  const { prompt: runs, sampled = 0, spent, unplaced = false, unreported = false } = message;
  if (!runs) return null;
  const sum = (/** @type {number} */ odd) => runs.reduce((all, run, at) => all + (at % 2 === odd ? run : 0), 0);
  return { runs, reused: sum(0), encoded: sum(1), sampled: sampled || spent?.completion || 0, unplaced, unreported };
}

/** A share of a whole; never 100 where something is missing, or 0 where something is there. @param {number} part @param {number} whole */
function percent(part, whole) {
  if (!whole) return "-";
  const rounded = Math.round((100 * part) / whole);
  return `${part && part < whole ? Math.min(99, Math.max(1, rounded)) : rounded}%`;
}

/** A bar: the prompt in its order, then what was generated. `most`: the tokens of the longest bar beside it.
 * @param {Usage} used @param {number} most */
function bar({ runs, sampled }, most) {
  const total = runs.reduce((all, run) => all + run, sampled);
  const part = (/** @type {string} */ kind, /** @type {number} */ tokens) => (tokens ? make("i", { class: kind, width: `${(100 * tokens) / total}%` }) : null);
  return make("span", { class: "usage", "aria-hidden": "true", width: `${(100 * total) / Math.max(1, most)}%` },
    ...runs.map((run, at) => part(at % 2 ? "encoded" : "reused", run)), part("sampled", sampled));
}

/** The tokens of the longest bar of a talk. @param {Talk} talk */
function longest(talk) {
  talk.most ??= talk.messages.reduce((most, message) => {
    const used = usage(message);
    return used ? Math.max(most, used.reused + used.encoded + used.sampled) : most;
  }, 1);
  return talk.most;
}

/** The same in a line. @param {Usage} used */
function sentence({ reused, encoded, sampled, unreported }) {
  const all = reused + encoded;
  const prompt = unreported ? `${many(all, "prompt token")}, reuse not reported` : `${percent(reused, all)} of ${many(all, "prompt token")} reused, ${encoded.toLocaleString("en")} encoded`;
  return `${prompt}; ${sampled.toLocaleString("en")} generated`;
}

/** What the colours of bars mean. */
const legend = () => make("p", { class: "soft legend" }, make("i", { class: "swatch reused" }), " reused ", make("i", { class: "swatch encoded" }), " encoded ", make("i", { class: "swatch sampled" }), " generated, in the colour of the agent");

/** The prompt of a message, for its panel. @param {number} number */
function prompt(number) {
  const { messages } = /** @type {Talk} */ (state.talk);
  const used = usage(messages[number]);
  if (!used) return [];
  const all = used.reused + used.encoded;
  const row = (/** @type {string} */ kind, /** @type {string} */ name, /** @type {string} */ value) => [make("dt", {}, make("i", { class: `swatch ${kind}` }), ` ${name}`), make("dd", {}, value)];
  const of = (/** @type {number} */ tokens) => (used.unreported ? "not reported" : `${many(tokens, "token")}, ${percent(tokens, all)}`);
  return [make("section", { class: own(messages[number].by).class, "--hue": hue(messages[number].by) }, make("h3", {}, `Prompt of ${many(all, "token")}`), bar(used, all + used.sampled),
    make("dl", { class: "facts" }, ...row("reused", "reused", of(used.reused)), ...row("encoded", "encoded", of(used.encoded)), ...row("sampled", "generated", many(used.sampled, "token"))),
    used.unplaced ? make("p", { class: "soft" }, "The record does not say where in the prompt the reused tokens stand.") : null,
    messages[number].repaired ? make("p", { class: "soft" }, "Repaired encodings count as encoded, although some of their tokens are kept from other encodings.") : null)];
}
