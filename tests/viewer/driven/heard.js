const soon = () => new Promise((done) => setTimeout(done, 400));
const shown = (id) => all("#pane article").find((row) => row.querySelector(".id").textContent === id);
const text = (id) => shown(id).querySelector(".text").textContent;
const hear = async () => {
  await soon();
  Object.assign(left, { words: [text("alice.2")], rows: [all("#pane article").length] });
  shown("alice.2").click();
  for (const far of ["so far", "so far, so good"]) {
    words = [said("alice.2", far), said("bob.1", "not these"), said("bob.2", "begun"), said("zoe.0", "of an agent that is not known")];
    await soon();
    left.words.push(text("alice.2"));
    left.rows.push(all("#pane article").length);
  }
  left.new = `bob.2 ${text("bob.2")}`;
  left.whole = text("bob.1");
  left.detail = document.querySelector("#detail pre").textContent;
  document.body.dataset.left = JSON.stringify(left);
};
hear().catch((error) => { left.error = String(error); document.body.dataset.left = JSON.stringify(left); });
