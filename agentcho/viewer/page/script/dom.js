// Elements, made without HTML: no text of a record is ever parsed.

/** An element of this kind with these attributes and children. Text is text.
 * @param {string} kind @param {Object<string, any>} [attributes] @param {...(Node|string|null|undefined)} children */
function make(kind, attributes = {}, ...children) {
  const [space, name] = kind.startsWith("svg:") ? ["http://www.w3.org/2000/svg", kind.slice(4)] : [null, kind];
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("--") || key === "left" || key === "width" || key === "height" || key === "top") {
      if (space && !key.startsWith("--")) element.setAttribute(key, value);
      else element.style.setProperty(key, value);
    } else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element of this id. @param {string} id @returns {any} */
const the = (id) => document.getElementById(id);

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** A text in which nothing is unseen: what turns the direction of a line, or speaks to a terminal, is spelled out.
 * @param {string} text */
const visible = (text) =>
  text.replace(/\r\n/g, "\n").replace(CONTROL, (sign) => {
    const code = sign.codePointAt(0) ?? 0;
    return code < 32 ? String.fromCodePoint(0x2400 + code) : `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
  });

/** Text that keeps its direction to itself, with what is searched for marked. @param {string} text @param {string} [query] */
function words(text, query = "") {
  const shown = visible(text);
  const element = make("bdi", { dir: "auto" });
  const found = query ? shown.toLowerCase().split(query) : [shown];
  if (found.length > 200 || shown.toLowerCase().length !== shown.length) {
    element.append(shown);
    return element;
  }
  let place = 0;
  found.forEach((part, number) => {
    if (number) {
      element.append(make("mark", {}, shown.slice(place, place + query.length)));
      place += query.length;
    }
    element.append(shown.slice(place, place + part.length));
    place += part.length;
  });
  return element;
}

/** "3 messages". @param {number} count @param {string} what */
const many = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

/** Seconds as people read them. @param {number} s */
const seconds = (s) => (s >= 60 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s` : s >= 1 ? `${s.toFixed(1)} s` : `${(1000 * s).toFixed(s < 0.01 ? 1 : 0)} ms`);
