// A colour for each agent, far from those of its neighbours, and light or dark as the page is.

/** The hue of an agent, in degrees. @param {number|null} seat */
const hue = (seat) => (seat === null ? "0" : String(Math.round((28 + 137.508 * seat) % 360)));

/** The class and the hue of whoever speaks. @param {number|null} seat */
const own = (seat) => ({ class: seat === null ? "nobody" : "agent", "--hue": hue(seat) });

/** The signs of verdicts. */
const MEANING = {
  direct: "the agent read it",
  transitive: "an encoding that the agent read carries it",
  positional: "a position depends on it",
  unlabelled: "its provenance is unknown",
  clean: "",
};
