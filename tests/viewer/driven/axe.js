const look = async () => {
  for (const step of STEPS) {
    step.forEach(press);
    const { violations, passes } = await axe.run(document, { resultTypes: ["violations"] });
    const where = (node) => `${node.html.slice(0, 150)} ${node.any[0]?.message ?? ""}`;
    const told = violations.map((each) => `${each.id}: ${each.nodes.map(where).slice(0, 3).join(" | ")}`);
    left[step.join("") || "first"] = told;
    left.passed = (left.passed ?? 0) + passes.length;
    left.contrast = (left.contrast ?? 0) + passes.some((each) => each.id === "color-contrast");
  }
  document.body.dataset.left = JSON.stringify(left);
};
look().catch((error) => { left.error = [String(error)]; document.body.dataset.left = JSON.stringify(left); });
