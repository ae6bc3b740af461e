const seen = (element) => { const box = element.getBoundingClientRect(); return box.width > 0 && box.bottom > 0 && box.top < innerHeight; };
const labels = () => all(".heads.wide span:not(.key), .line > .id, .line > .who, .line > .soft, .line > .snippet").filter(seen);
const apart = (boxes) => boxes.flatMap((a, at) => boxes.slice(at + 1).filter((b) =>
  a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5)).length;
const box = (element) => {
  const range = document.createRange(); range.selectNodeContents(element);
  const [text, own] = [range.getBoundingClientRect(), element.getBoundingClientRect()];
  return { left: Math.max(text.left, own.left), right: Math.min(text.right, own.right), top: text.top, bottom: text.bottom };
};
press("2");
const pane = document.querySelector("#pane").getBoundingClientRect();
left.labels = labels().length; left.rows = all(".knots").filter(seen).length; left.edges = all(".edge").length;
left.over = apart(labels().map(box)); left.knots = apart(all(".strip .knot").filter(seen).map((each) => each.getBoundingClientRect()));
left.small = Math.min(...labels().map((each) => parseFloat(getComputedStyle(each).fontSize)));
left.heads = all(".heads.wide span:not(.key)").filter((each) => each.textContent !== "·").map((each) => each.textContent);
left.cut = all(".line > .id, .line > .who").filter(seen).filter((each) => each.getBoundingClientRect().right > pane.right + 0.5).length;
press("k");
left.lines = all(".edge").length; left.later = apart(labels().map(box));
