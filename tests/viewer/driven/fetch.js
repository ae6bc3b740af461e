// A server whose run goes on: the data once, then the words that are set.
const served = DATA;
const said = (id, text) => ({ id, by: id.split(".")[0], to: null, role: "assistant", kind: "decode", header: "", text });
let version = 0;
let words = null;
const talks = served.head.talks.map((talk, number) => ({ ...talk, number }));
let first = { game: 0, versions: { head: "0", talk: "0" }, head: { ...served.head, talks, status: "running" }, talk: served["talk-0"] };
window.fetch = async (what) => {
  let body = words;
  if (what.startsWith("data")) [body, first] = [first, null];
  else if (words) [body, words] = [{ version: String(++version), words }, null];
  return { ok: true, status: body ? 200 : 204, json: async () => body };
};
