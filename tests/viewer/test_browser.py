"""The page of a run in a real browser: what is drawn, what keys and clicks do, and that texts do nothing."""

from __future__ import annotations

import html
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentcho.audit.cones import Cones
from agentcho.audit.reach import reach
from agentcho.audit.verdict import GameVerdict

from ..audit.browser import opened
from ..audit.test_reach import anyhow
from ..audit.transcripts import Talk
from ..clients.environment import python_of
from .pages import page_of, policy_of, recorded
from .test_page import hostile

pytestmark = pytest.mark.browser
LEFT = "document.body.dataset.left = JSON.stringify(left); </script></body>"
PRESS = """<script>
const press = (key) => {
  const event = new KeyboardEvent("keydown", { key, bubbles: true });
  (document.activeElement ?? document.body).dispatchEvent(event);
};
const all = (what) => [...document.querySelectorAll(what)];
const left = {};
"""


def driven(text: str, script: str, folder: Path, *options: str, at: str = "") -> dict[str, Any]:
    """What a script that acts on a page leaves in `left`. The page's own policy would not let it run."""
    whole = text.replace(policy_of(text).replace("'", "&#39;"), "").replace("</body>", PRESS + script + LEFT)
    page = folder / "driven.html"
    page.write_text(whole, encoding="utf-8")
    shown = opened(page, folder, *options, at=at)
    assert shown.console == []
    found: dict[str, Any] = json.loads(html.unescape(shown.dom.split('data-left="')[1].split('"')[0]))
    return found


def crowd(count: int, agents: int) -> Talk:
    """A talk of so many messages of so many agents, a third of them private; each reads the last dozen and its own."""
    random, talk, made = Random(3), Talk(), dict[str, list[int]]()
    everyone: list[int] = []
    for number in range(count):
        name = f"agent{number % agents}"
        own = made.setdefault(name, [])
        alone = random.random() < 0.33
        id = talk.say(f"{name}.{number}", [name] if alone else "everyone", sorted({*own[-6:], *everyone[-12:]}))
        own.append(id)
        if not alone:
            everyone.append(id)
    return talk


@pytest.mark.parametrize(("count", "agents"), [(6, 2), (120, 20)])
@pytest.mark.parametrize("view", ["talk", "graph", "timeline"])
def test_it_draws_under_its_policy_and_logs_nothing(tmp_path: Path, count: int, agents: int, view: str) -> None:
    page = tmp_path / "view.html"
    page.write_text(page_of(recorded(tmp_path, crowd(count, agents).entries)), encoding="utf-8")
    for width in ("1280,800", "400,800"):
        shown = opened(page, tmp_path, f"--window-size={width}", at=f"#view={view}&message=agent1.1")
        assert shown.console == []
        assert shown.told("messages") == count
        assert f'id="tab-{view}" aria-controls="pane" data-view="{view}" aria-selected="true"' in shown.dom
        if view != "timeline":
            assert 3 <= shown.told("rows") <= min(count, 60)


def test_no_text_of_a_record_does_anything(tmp_path: Path) -> None:
    page = tmp_path / "view.html"
    page.write_text(page_of(recorded(tmp_path, hostile().entries)), encoding="utf-8")
    shown = opened(page, tmp_path, "--window-size=1280,4000")
    assert shown.console == []
    assert shown.told("rows") == len(hostile().entries)
    words = shown.dom[shown.dom.index('id="pane"') : shown.dom.index("<aside")]
    assert "<img" not in words
    assert "<script" not in words
    assert not {"\u202e", "\u2028", "\x1b", "\ufeff"} & set(words)
    for told in (
        "U+202E",
        "U+2028",
        "\u241b[31m",
        "U+FEFF",
        "U+D800",
        "\u2400",
        "&lt;/script&gt;&lt;script&gt;alert(1)",
    ):
        assert told in words


@pytest.mark.parametrize("seed", [1, 2])
def test_eyes_and_cones_are_the_audits(tmp_path: Path, seed: int) -> None:
    talk = anyhow(seed)
    cones, found = Cones(talk.entries), reach(GameVerdict(0, talk.entries))
    script = """
    left.cones = {}; left.reached = {}; left.away = {};
    for (let n = 0; n < document.documentElement.dataset.messages; n++) {
      press("j");
      left.cones[document.querySelector("#detail h2").textContent] = document.documentElement.dataset.cone;
    }
    press("Escape");
    for (const chip of all(".chip.agent").map((each) => each.dataset.eyes)) {
      press("e");
      const name = document.querySelector('.chip[aria-pressed="true"] bdi').textContent;
      left.reached[name] = document.documentElement.dataset.reached;
      left.away[name] = all("#pane article.away").map((each) => each.querySelector(".id").textContent);
    }"""
    left = driven(page_of(recorded(tmp_path, talk.entries)), script, tmp_path, "--window-size=1280,9000")
    own = {entry.message.id: entry.encoding for entry in talk.entries}
    assert {id: set(told.split()) for id, told in left["cones"].items()} == {
        id: set(cones.cones[encoding]) for id, encoding in own.items() if encoding is not None
    }
    assert left["reached"].keys() >= found.keys()
    for name, told in left["reached"].items():
        mine = found[name].reached.keys() if name in found else set()
        assert set(told.split()) == set(mine)
        hidden = {id for id, message in cones.messages.items() if not message.audience.includes(name)}
        assert set(left["away"][name]) == hidden - mine


def test_keys_search_and_folds(tmp_path: Path) -> None:
    script = """
    const chosen = () => document.querySelector('article[aria-current="true"]')?.dataset.number ?? null;
    press("j"); press("j"); left.second = chosen();
    press("k"); left.first = chosen();
    press("Enter"); left.focus = document.activeElement.tagName;
    press("Escape"); left.none = [chosen(), document.querySelector("#detail").hidden];
    press("2"); left.graph = all(".edge").length; press("j"); press("3"); left.bars = all(".span").length > 20;
    press("1"); press("/"); left.search = document.activeElement.id;
    const search = document.querySelector("#search");
    search.value = "AGENT7.67"; search.dispatchEvent(new Event("input"));
    left.hits = document.querySelector("#hits").textContent;
    search.blur(); press("n"); left.sought = document.querySelector("#detail h2").textContent;
    left.marked = all("mark").length > 0;
    const before = all("#pane article").length;
    press("f"); left.folded = all(".folded").length > 0;
    document.querySelector(".folded button").click();
    press("t"); left.theme = document.documentElement.dataset.theme;
    press("?"); left.help = document.querySelector("#keys").open;
    """
    left = driven(page_of(recorded(tmp_path, crowd(120, 20).entries)), script, tmp_path, "--window-size=1280,800")
    assert (left["second"], left["first"], left["focus"], left["none"]) == ("1", "0", "H2", [None, True])
    assert left["bars"]
    assert (left["search"], left["hits"], left["sought"]) == ("search", "1 found", "agent7.67")
    assert left["marked"]
    assert left["folded"]
    assert left["theme"] in ("light", "dark")
    assert left["help"]


def test_two_thousand_messages_of_twenty_agents_are_there_in_a_second(tmp_path: Path) -> None:
    page = tmp_path / "view.html"
    page.write_text(page_of(recorded(tmp_path, crowd(2000, 20).entries)), encoding="utf-8")
    script = """
    const began = performance.now();
    press("2");
    press("k");
    left.last = document.querySelector("#detail h2").textContent;
    left.rows = all("#pane article").length;
    left.ready = Number(document.documentElement.dataset.ready); left.took = performance.now() - began;
    """
    left = driven(page.read_text(), script, tmp_path, "--window-size=1280,800")
    assert left["last"] == "agent19.1999"
    assert left["rows"] < 90
    assert page.stat().st_size < 3_000_000


@pytest.mark.parametrize("agents", [2, 20])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(tmp_path: Path, agents: int, theme: str) -> None:
    (axe,) = python_of("axe").parents[1].glob("lib/python*/site-packages/axe_playwright_python/axe.min.js")
    script = """
    const look = async () => {
      for (const step of [[], ["j"], ["e"], ["2"], ["3"], ["?"]]) {
        step.forEach(press);
        const { violations, passes } = await axe.run(document, { resultTypes: ["violations"] });
        const where = (node) => `${node.html.slice(0, 150)} ${node.any[0]?.message ?? ""}`;
        const told = violations.map((each) => `${each.id}: ${each.nodes.map(where).slice(0, 3).join(" | ")}`);
        left[step.join("") || "talk"] = told;
        left.passed = (left.passed ?? 0) + passes.length;
        left.contrast = (left.contrast ?? 0) + passes.some((each) => each.id === "color-contrast");
      }
      document.body.dataset.left = JSON.stringify(left);
    };
    look().catch((error) => { left.error = [String(error)]; document.body.dataset.left = JSON.stringify(left); });
    """
    text, library = page_of(recorded(tmp_path, crowd(40, agents).entries)), axe.read_text(encoding="utf-8")
    text = text.replace("</body>", f"<script>{library.replace('</body>', '')}</script></body>", 1)
    left = driven(text, script, tmp_path, "--window-size=1280,800", "--virtual-time-budget=20000", at=f"#theme={theme}")
    assert left.pop("passed") > 60
    assert left.pop("contrast") >= 5
    assert {step: found for step, found in left.items() if found} == {}
