for (let n = 0; n < document.documentElement.dataset.messages; n++) {
  press("j");
  const pane = document.querySelector("#detail");
  const facts = Object.fromEntries([...pane.querySelectorAll("dt")].map((dt) => [dt.textContent, dt.nextSibling.textContent]));
  const lists = {};
  for (const details of pane.querySelectorAll("details")) {
    details.dispatchEvent(new Event("toggle"));
    const summary = details.querySelector("summary");
    const rows = [...details.querySelectorAll("tbody tr")].map((row) => [row.querySelector(".id").textContent, ...[...row.querySelectorAll(".n")].map((cell) => cell.textContent)]);
    lists[summary.firstChild.textContent.trim()] = rows.length ? rows : [...details.querySelectorAll(".id")].map((id) => id.textContent);
  }
  left[pane.querySelector("h2").textContent] = { facts, lists, says: pane.querySelector("p").textContent };
}
