// Which words of two texts differ.

const WORD = /\s+|[\p{L}\p{N}_'’]+|[^\s\p{L}\p{N}_'’]/gu;
const WORK = 400000;

/** @typedef {{text: string, differs: boolean}} Part */

/** Both texts in parts that stand in the other too and parts that do not. @param {string} one @param {string} other @returns {[Part[], Part[]]} */
function differing(one, other) {
  const [a, b] = [one, other].map((text) => text.match(WORD) ?? []);
  let [first, ends] = [0, 0];
  while (first < Math.min(a.length, b.length) && a[first] === b[first]) first++;
  while (ends < Math.min(a.length, b.length) - first && a[a.length - 1 - ends] === b[b.length - 1 - ends]) ends++;
  const [mine, theirs] = [a, b].map((words) => words.slice(first, words.length - ends));
  const kept = mine.length * theirs.length > WORK ? [new Set(), new Set()] : common(mine, theirs);
  const parts = (/** @type {string[]} */ words, /** @type {Set<number>} */ same) =>
    joined(words.map((text, at) => ({ text, differs: at >= first && at < words.length - ends && !same.has(at - first) })));
  return [parts(a, kept[0]), parts(b, kept[1])];
}

/** The places of a longest common subsequence, in both. @param {string[]} a @param {string[]} b @returns {Set<number>[]} */
function common(a, b) {
  const wide = b.length + 1;
  const best = new Uint32Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) best[i * wide + j] = a[i] === b[j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
  }
  const found = [new Set(), new Set()];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) { found[0].add(i++); found[1].add(j++); }
    else if (best[(i + 1) * wide + j] >= best[i * wide + j + 1]) i++;
    else j++;
  }
  return found;
}

/** Parts with those of a kind in one; space between two that differ belongs to them. @param {Part[]} parts @returns {Part[]} */
function joined(parts) {
  const found = /** @type {Part[]} */ ([]);
  parts.forEach(({ text, differs }, at) => {
    const between = !text.trim() && parts[at - 1]?.differs && parts[at + 1]?.differs;
    const last = found.at(-1);
    if (last && last.differs === (differs || Boolean(between))) last.text += text;
    else found.push({ text, differs: differs || Boolean(between) });
  });
  return found;
}
