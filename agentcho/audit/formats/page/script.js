"use strict";
(() => {
  const graph = document.querySelector("svg.graph");
  const root = document.documentElement;
  // For whoever opens the page without eyes: how much of each drawing has a size.
  const measure = () => {
    let empty = 0;
    for (const svg of document.querySelectorAll("svg.graph, svg.plot")) {
      const box = svg.getBBox();
      svg.dataset.width = Math.round(box.width);
      svg.dataset.height = Math.round(box.height);
      empty += !(box.width > 0 && box.height > 0);
    }
    const lines = graph ? [...graph.querySelectorAll("path.line")] : [];
    const nodes = graph ? [...graph.querySelectorAll("g.node")] : [];
    root.dataset.lines = lines.filter((line) => line.getTotalLength() > 0).length;
    root.dataset.leaks = lines.filter((line) => line.classList.contains("leaks") && line.getTotalLength() > 0).length;
    root.dataset.nodes = nodes.filter((node) => node.getBBox().width > 0).length;
    root.dataset.empty = empty;
  };
  // A cell of the table leads to what may be folded.
  const unfold = () => {
    const aim = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = aim; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    aim?.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  if (location.hash) unfold();
  const line = (source, target) =>
    [...graph.querySelectorAll("path.line")].filter(
      (each) => each.dataset.source === source && (target === null || each.dataset.target === target),
    );
  const clear = () => {
    graph.classList.remove("marking");
    for (const each of graph.querySelectorAll(".on")) each.classList.remove("on");
  };
  const mark = (nodes, lines) => {
    clear();
    graph.classList.add("marking");
    for (const node of graph.querySelectorAll("g.node")) node.classList.toggle("on", nodes.has(node.dataset.id));
    for (const each of lines) each.classList.add("on");
  };
  // A message: all that it reads and all that reads it.
  const around = (id) => {
    const lines = [...graph.querySelectorAll("path.line")].filter(
      (each) => each.dataset.source === id || each.dataset.target === id,
    );
    mark(new Set([id, ...lines.flatMap((each) => [each.dataset.source, each.dataset.target])]), lines);
  };
  // A finding: from the secret through what carried it to every call of the reader that took it up.
  const along = (path, reader) => {
    const lines = path.slice(1).flatMap((source, at) => line(source, path[at]));
    const taken = line(path[0], null).filter(
      (each) => each.classList.contains("leaks") && each.dataset.reader === reader,
    );
    mark(new Set([...path, ...taken.map((each) => each.dataset.target)]), [...lines, ...taken]);
    document.getElementById("graph").scrollIntoView({ behavior: "smooth", block: "start" });
  };
  if (graph) {
    for (const node of graph.querySelectorAll("g.node")) {
      node.addEventListener("pointerenter", () => around(node.dataset.id));
      node.addEventListener("pointerleave", clear);
      node.addEventListener("focus", () => around(node.dataset.id));
      node.addEventListener("blur", clear);
    }
    for (const button of document.querySelectorAll("button.show")) {
      const path = JSON.parse(button.dataset.path);
      const there = path.every((id) => graph.querySelector(`g.node[data-id="${CSS.escape(id)}"]`));
      button.hidden = !there;
      button.addEventListener("click", () => along(path, button.dataset.reader));
    }
  }
  measure();
})();
