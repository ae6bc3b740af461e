const number = (element, name) => Number(element?.getAttribute(name));
const drawn = () => ({ width: number(document.querySelector(".bars"), "width"), spans: all(".span").map((span) => {
  const [waits, speaks, told] = ["waits", "speaks", "told"].map((name) => span.querySelector(`.${name}`));
  return { number: Number(span.dataset.number), told: told !== null, row: Math.floor(number(told ?? speaks, "y") / 26),
    ...(told ? {} : { waits: [number(waits, "x"), number(waits, "width")], speaks: [number(speaks, "x"), number(speaks, "width")] }) };
}) });
press("3"); left.steps = drawn();
all(".controls button").find((button) => button.textContent === "seconds").click(); left.seconds = drawn();
document.querySelector('.span[data-number="2"] .speaks').dispatchEvent(new MouseEvent("click", { bubbles: true }));
left.chosen = document.querySelector("#detail h2").textContent;
