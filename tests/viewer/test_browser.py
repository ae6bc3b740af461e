"""The page of a run in a real browser: what is drawn, keys and clicks, and that texts of records have no effect."""

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
from agentcho.audit.wording import many
from agentcho.message import Audience
from agentcho.provenance.views import Act, Charge, ToolUse
from agentcho.records.transcript import MessageUsage
from agentcho.viewer.page import live_page

from ..audit.browser import opened
from ..audit.test_reach import anyhow
from ..audit.transcripts import Talk, anchored, audited, chain
from ..clients.environment import python_of
from .pages import blocks, page_of, policy_of, recorded
from .test_page import hostile, lineless

pytestmark = pytest.mark.browser
DRIVEN = Path(__file__).parent / "driven"
"""The folder of scripts that act on a page and inspect it."""
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
    """The value of `left` after a script has acted on the page, without the page's policy, which forbids it."""
    whole = text.replace(policy_of(text).replace("'", "&#39;"), "").replace("</body>", PRESS + script + LEFT)
    page = folder / "driven.html"
    page.write_text(whole, encoding="utf-8")
    shown = opened(page, folder, *options, at=at)
    assert shown.console == []
    found: dict[str, Any] = json.loads(html.unescape(shown.dom.split('data-left="')[1].split('"')[0]))
    return found


def crowd(count: int, agents: int, private: float = 0.33) -> Talk:
    """A talk with a share of private messages; each reads the last dozen public ones and its author's last six."""
    random, talk, made = Random(3), Talk(), dict[str, list[int]]()
    everyone: list[int] = []
    for number in range(count):
        name = f"agent{number % agents}"
        own = made.setdefault(name, [])
        alone = random.random() < private
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


@pytest.mark.parametrize("view", ["talk", "graph", "timeline"])
def test_what_one_agent_may_read_is_drawn_too(tmp_path: Path, view: str) -> None:
    run = recorded(tmp_path, crowd(20, 3).entries, agent1="agent")
    page = tmp_path / "view.html"
    page.write_text(page_of(run, "agent1"), encoding="utf-8")
    heard = sum(each.message.audience.includes("agent1") for each in crowd(20, 3).entries)
    shown = opened(page, tmp_path, "--window-size=1280,4000", at=f"#view={view}&message=agent1.1")
    assert shown.console == []
    assert shown.told("messages") == heard
    assert view == "timeline" or shown.told("rows") == heard


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


@pytest.mark.parametrize("at", ["#view=talk&eyes=bob", "#view=graph", "#view=graph&message=alice.1"])
def test_what_a_message_without_a_line_had_read_is_drawn(tmp_path: Path, at: str) -> None:
    page = tmp_path / "view.html"
    page.write_text(page_of(recorded(tmp_path, lineless().entries)), encoding="utf-8")
    shown = opened(page, tmp_path, "--window-size=1280,4000", at=at)
    assert shown.console == []
    assert shown.told("rows") == 3
    assert ("a message without a line read it" in shown.dom) == ("eyes" in at)


@pytest.mark.parametrize("talk", [anyhow(1), anyhow(2), anchored()], ids=["1", "2", "anchored"])
def test_eyes_and_cones_are_the_audits(tmp_path: Path, talk: Talk) -> None:
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


def test_the_graph_counts_readings_as_the_audit_does(tmp_path: Path) -> None:
    talk = chain()
    for number in range(1, 4):
        talk.say(f"bob.{number}", "everyone", [2, 2])
    script = """
    document.querySelector("#tab-graph").click();
    left.all = document.querySelector("#pane .key").textContent;
    press("e");
    left.one = document.querySelector("#pane .key").textContent;
    """
    left = driven(page_of(recorded(tmp_path, talk.entries)), script, tmp_path, "--window-size=1280,900")
    rows = audited(talk).readers
    leaking, readings = sum(row.leaking for row in rows), sum(row.readings for row in rows)
    assert left["all"].startswith(f"{leaking} of {readings} readings not clean; ")
    alice = next(row for row in rows if row.reader == "alice")
    assert alice.leaking == 0
    assert left["one"] == f"{many(alice.readings, 'reading')} of alice, all clean"


def test_the_details_say_whose_offsets_an_encoding_took(tmp_path: Path) -> None:
    script = (DRIVEN / "details.js").read_text()
    found = driven(page_of(recorded(tmp_path, anchored().entries)), script, tmp_path, "--window-size=1280,800")
    assert found["alice.0"]["lists"]["Offsets from"] == ["carol.1"]
    assert all("Offsets from" not in each["lists"] for id, each in found.items() if id != "alice.0")


def test_keys_search_and_folds(tmp_path: Path) -> None:
    script = """
    const chosen = () => document.querySelector('article[aria-current="true"]')?.dataset.number ?? null;
    const paper = () => getComputedStyle(document.documentElement).backgroundColor;
    press("j"); press("j"); left.second = chosen();
    press("k"); left.first = chosen();
    press("Enter"); left.focus = document.activeElement.tagName;
    press("Escape"); left.none = [chosen(), document.querySelector("#detail").hidden];
    press("1"); press("/"); left.search = document.activeElement.id;
    const search = document.querySelector("#search");
    search.value = "AGENT7.67"; search.dispatchEvent(new Event("input"));
    left.hits = document.querySelector("#hits").textContent;
    search.blur(); press("n"); left.sought = document.querySelector("#detail h2").textContent;
    left.marked = all("mark").map((each) => each.textContent);
    press("f"); left.folded = all(".folded").length;
    const before = all("#pane article[data-number]").length;
    document.querySelector(".folded button").click(); left.more = all("#pane article[data-number]").length - before;
    left.themes = [paper()];
    for (const turn of [1, 2]) { press("t"); left.themes.push(document.documentElement.dataset.theme, paper()); }
    press("?"); left.help = document.querySelector("#keys").open;
    """
    page = page_of(recorded(tmp_path, crowd(120, 20).entries))
    left = driven(page, script, tmp_path, "--window-size=1280,9000", at="#theme=light")
    assert (left["second"], left["first"], left["focus"], left["none"]) == ("1", "0", "H2", [None, True])
    assert (left["search"], left["hits"], left["sought"]) == ("search", "1 found", "agent7.67")
    assert set(left["marked"]) == {"agent7.67"}
    assert left["folded"] > 0
    assert left["more"] > 0
    light, *others = left["themes"]
    assert others == ["dark", others[1], "light", light]
    assert light != others[1]
    assert left["help"]


def test_the_graph_has_a_line_for_each_reading_of_few_and_of_many_those_of_the_chosen_message(tmp_path: Path) -> None:
    script = """
    press("2"); left.all = all(".edge").length;
    for (let n = 0; n <= 13; n++) press("j");
    left.chosen = document.querySelector("#detail h2").textContent;
    left.reads = all(".edge.reads").length; left.read = all(".edge.read").length;
    """
    for count, agents in ((24, 5), (120, 20)):
        entries = crowd(count, agents, private=0).entries
        folder = tmp_path / str(count)
        left = driven(page_of(recorded(folder, entries)), script, folder, "--window-size=1280,9000")
        chosen = entries[13].message.id
        readings = {(id, entry.message.id) for entry in entries for id in entry.message.parents}
        assert left["chosen"] == chosen
        assert left["reads"] == sum(reader == chosen for _, reader in readings) > 5
        assert left["read"] == sum(id == chosen for id, _ in readings) > 0
        assert left["all"] == (0 if len(readings) > 260 else len(readings))


def timed() -> Talk:
    """Four messages of two agents, with the steps and seconds at which they were submitted, started and ended."""
    talk = Talk()
    rules = talk.say("alice.0", "everyone", kind="prefill")
    first = talk.say("alice.1", "everyone", [rules])
    second = talk.say("bob.0", ["bob"], [rules, first])
    talk.say("bob.1", "everyone", [rules, first, second])
    usages = (
        MessageUsage(4, 0, 0.0, 0.0, at=0.0),
        MessageUsage(11, 4, 0.5, 2.0, at=0.5, steps=(1, 3, 10)),
        MessageUsage(7, 15, 0.25, 1.0, at=2.5, steps=(11, 12, 20)),
        MessageUsage(8, 22, 2.0, 3.0, at=4.0, steps=(21, 29, 40)),
    )
    for entry, usage in zip(list(talk.entries), usages, strict=True):
        talk.change(entry.message.id, usage=usage)
    return talk


def test_the_timeline_says_who_waited_what_was_encoded_and_who_spoke(tmp_path: Path) -> None:
    script = (DRIVEN / "timeline.js").read_text()
    entries = timed().entries
    left = driven(page_of(recorded(tmp_path, entries)), script, tmp_path, "--window-size=1280,800")
    assert left["chosen"] == "bob.0"
    took = [entry.usage for entry in entries]
    ends: dict[str, list[tuple[float, float, float]]] = {
        "steps": [(use.steps[0] - 1, use.steps[1] - 1, use.steps[2]) for use in took if use.steps],
        "seconds": [(use.at, use.at + use.ttft, use.at + use.seconds) for use in took[1:] if use.at is not None],
    }
    for unit, three in ends.items():
        told, *spans = left[unit]["spans"]
        assert (told["told"], [span["told"] for span in spans]) == (True, [False] * 3), "what was known is told"
        assert [span["row"] for span in spans] == [0, 1, 1], "a row an agent"
        scale = (left[unit]["width"] - 16) / three[-1][-1]
        for span, (asked, spoke, end) in zip(spans, three, strict=True):
            assert span["waits"] == pytest.approx([8 + asked * scale, (spoke - asked) * scale], abs=0.01)
            assert span["speaks"] == pytest.approx([8 + spoke * scale, (end - spoke) * scale - 1], abs=0.01)


def test_words_that_come_are_added_and_messages_that_begin_are_shown(tmp_path: Path) -> None:
    talk = timed()
    talk.say("alice.2", "everyone", text="so", header="To all: ")
    talk.change("alice.2", ended="died")
    text = page_of(recorded(tmp_path, talk.entries))
    server = (DRIVEN / "fetch.js").read_text().replace("DATA", json.dumps(blocks(text)).replace("</", "<\\/"))
    page = live_page({"title": "talk"}).replace("<head>", f"<head><script>{server}</script>", 1)
    left = driven(page, (DRIVEN / "heard.js").read_text(), tmp_path, "--window-size=1280,900")
    assert left["words"] == ["To all: so", "To all: so far", "To all: so far, so good"]
    assert left["rows"] == [5, 6, 6]
    assert left["new"] == "bob.2 begun"
    assert left["whole"] == "the words of bob.1", "a message that is whole stays as it is"
    assert left["detail"] == "To all: so far, so good"


def called() -> Talk:
    """Alice calls a tool that informs Bob, which a release permits; Bob, a person, answers publicly."""
    talk = timed()
    secret = talk.say("carol.0", ["carol"])
    call = talk.say("alice.2", ["alice"], [2, secret])
    use = ToolUse("post", Audience(frozenset({"bob"})), effect=True, trusted=False)
    act = Act("play.py:9", call="alice.2", use=use, release=True)
    result = talk.say("scenario.0", ["alice"], [call], "audience", author=None, kind="prefill", act=act)
    charge = Charge("choices", 1.0, (("carol", ("alice", "bob")),))
    typed = Act("play.py:11", choices=("yes", "no"), charge=charge, shown=("alice.1",))
    talk.say("bob.2", "everyone", [1], act=typed)
    talk.change("bob.2", origin="human")
    talk.say("alice.3", "everyone", [result], act=Act("play.py:12", released="carol.0"))
    return talk


def test_the_details_say_what_a_message_came_of_what_it_attended_to_and_what_it_took(tmp_path: Path) -> None:
    script = (DRIVEN / "details.js").read_text()
    entries = called().entries
    found = driven(page_of(recorded(tmp_path, entries, raced=True)), script, tmp_path, "--window-size=1280,800")
    own, said = "E, in the context of its author", {entry.encoding: entry.message.id for entry in entries}
    for entry in entries:
        assert entry.own is not None
        rows = [[said[id], str(offset), f"+{length}"] for id, offset, length in entry.own.receipt.context]
        name = own if entry.own.recipe == "author" else "X, for all of its readers"
        assert found[entry.message.id]["lists"][name] == rows
    third = found["bob.1"]["facts"]
    assert (third["tokens"], third["requested at"], third["first token after"], third["took"]) == (
        "3",
        "4.0 s",
        "2.0 s",
        "3.0 s",
    )
    assert (third["steps"], third["encoded in all"]) == (
        "requested at 21, generated from 29 to 40",
        "8 tokens",
    )
    result = found["scenario.0"]
    assert result["lists"]["Result of"] == ["alice.2"]
    assert result["facts"]["tool"] == "post: arguments reach bob; has side effects; results untrusted"
    assert result["facts"]["release"].startswith("the code allows the call")
    assert found["alice.2"]["lists"]["Called"] == ["scenario.0"]
    assert found["bob.2"]["facts"]["charged"] == "at most 1 bit of carol to alice, bob (one of a fixed set of choices)"
    assert found["bob.2"]["lists"]["Shown before"] == ["alice.1"]
    assert found["alice.3"]["lists"]["Repeats"] == ["carol.0"]
    assert all("whichever of several calls ended first" in each["facts"]["race"] for each in found.values())


def test_of_two_thousand_messages_of_twenty_agents_what_can_be_seen_is_made(tmp_path: Path) -> None:
    page = tmp_path / "view.html"
    page.write_text(page_of(recorded(tmp_path, crowd(2000, 20).entries)), encoding="utf-8")
    script = """
    left.first = all("#pane *").length;
    let made = 0;
    for (const name of ["createElement", "createElementNS"]) {
      const create = document[name].bind(document);
      document[name] = (...words) => { made += 1; return create(...words); };
    }
    press("2"); left.graph = made; made = 0;
    press("k"); left.chosen = made; made = 0;
    press("3"); left.timeline = made;
    press("2"); left.last = document.querySelector("#detail h2").textContent;
    left.rows = all("#pane article").length;
    """
    left = driven(page.read_text(), script, tmp_path, "--window-size=1280,800")
    assert left["last"] == "agent19.1999"
    assert left["rows"] < 90
    assert left["first"] < 2500, "elements of the talk"
    assert (left["graph"] < 2500, left["chosen"] < 5000) == (True, True), left
    assert left["timeline"] < 4.5 * 2000, "once a group, a title and two bars a message"
    assert page.stat().st_size < 3_000_000


@pytest.mark.parametrize(("width", "least"), [(1280, 11), (400, 9)])
def test_the_graph_of_two_thousand_messages_of_twenty_agents_can_be_read(
    tmp_path: Path, width: int, least: int
) -> None:
    script = (DRIVEN / "readable.js").read_text()
    page = page_of(recorded(tmp_path, crowd(2000, 20).entries))
    left = driven(page, script, tmp_path, f"--window-size={width},800")
    assert 10 <= left["rows"] <= 40
    assert left["labels"] >= 2 * left["rows"]
    assert (left["over"], left["knots"], left["cut"], left["later"]) == (0, 0, 0, 0)
    assert left["small"] >= least
    assert left["edges"] < 120, "leaks that cross what can be seen"
    assert 0 < left["lines"] < 120, "what the last message read"
    assert len(set(left["heads"])) >= 20, "columns are told apart"


def judged(text: str, steps: list[list[str]], folder: Path, theme: str) -> dict[str, Any]:
    """What axe reports on a page after each step of keys, with counts of passed checks and of contrast checks."""
    (axe,) = python_of("axe").parents[1].glob("lib/python*/site-packages/axe_playwright_python/axe.min.js")
    library = axe.read_text(encoding="utf-8").replace("</body>", "")
    script = (DRIVEN / "axe.js").read_text().replace("STEPS", json.dumps(steps))
    text = text.replace("</body>", f"<script>{library}</script></body>", 1)
    return driven(text, script, folder, "--window-size=1280,800", "--virtual-time-budget=20000", at=f"#theme={theme}")


@pytest.mark.parametrize("agents", [2, 20])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(tmp_path: Path, agents: int, theme: str) -> None:
    page = page_of(recorded(tmp_path, crowd(40, agents).entries))
    left = judged(page, [[], ["j"], ["e"], ["2"], ["3"], ["?"]], tmp_path, theme)
    assert left.pop("passed") > 60
    assert left.pop("contrast") >= 5
    assert {step: found for step, found in left.items() if found} == {}
