"""The text of a run's page: its content, that nothing in it can be executed, and the version for one agent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agentcho.audit import audit_run
from agentcho.audit.reach import reach
from agentcho.audit.verdict import GameVerdict
from agentcho.errors import AudienceError, ConfigError, RecordBroken, RecordNotFound
from agentcho.message import Audience
from agentcho.provenance.views import Charge, ToolUse
from agentcho.records.trace import write_traces
from agentcho.viewer.audit_pages import of_report, of_traces
from agentcho.viewer.page import block, live_page, page, parts
from agentcho.viewer.page_content import PageSelection, page_content, target

from ..audit.test_reach import anyhow
from ..audit.transcripts import Talk, anchored
from .pages import Tags, blocks, page_of, policy_of, recorded

HOSTILE = (
    "</script><script>alert(1)</script>",
    "</script x='",
    "<!--<script>",
    "]]>",
    "a\u2028b\u2029c",
    "\u202eevil\u202c",
    "\x1b[31mred\x1b[0m",
    "\ud800 lone",
    "\x00\x7f",
    "&lt;b&gt;",
    "{{ 7 * 7 }}",
    "\ufeff",
    "<img src=x onerror=alert(1)>",
    "\r\n",
)


def hostile() -> Talk:
    talk = Talk()
    for number, text in enumerate(HOSTILE):
        talk.say(f"a.{number}", "everyone" if number % 2 else ["a"], text=text, header=text)
    return talk


def test_texts_are_data_and_never_tags(tmp_path: Path) -> None:
    text = page_of(recorded(tmp_path, hostile().entries))
    tags = Tags(text.encode("utf-8").decode()).tags
    scripts = [attributes for tag, attributes in tags if tag == "script"]
    assert [each.get("id") for each in scripts] == ["head", "talk-0", None]
    assert not [tag for tag, _ in tags if tag in ("img", "link", "iframe", "base", "object")]
    assert not [
        name for _, attributes in tags for name in attributes if name in ("src", "style") or name.startswith("on")
    ]
    said = [message["text"] for message in blocks(text)["talk-0"]["messages"]]
    assert said == list(HOSTILE)


def test_no_block_can_be_left() -> None:
    assert json.loads(block(list(HOSTILE))) == list(HOSTILE)
    assert not set(block(list(HOSTILE))) & set("<>&\u2028\u2029\ud800")


def test_the_policy_allows_its_own_script_and_style_alone(tmp_path: Path) -> None:
    text = page_of(recorded(tmp_path, hostile().entries))
    policy, live = policy_of(text), policy_of(live_page({"title": "talk"}))
    style, script = parts().hashes
    assert policy.split("; ")[:3] == ["default-src 'none'", f"style-src '{style}'", f"script-src '{script}'"]
    assert "connect-src" not in policy
    assert "http" not in re.sub(r"http-equiv|http://www.w3.org/2000/svg", "", parts().script + policy)
    assert "connect-src 'self'" in live.split("; ")


@pytest.mark.parametrize("seed", range(12))
def test_eyes_are_the_audits_message_by_message(tmp_path: Path, seed: int) -> None:
    talk = anyhow(seed)
    data = blocks(page_of(recorded(tmp_path, talk.entries)))["talk-0"]
    found = reach(GameVerdict(0, talk.entries))
    ids = [message["id"] for message in data["messages"]]
    assert ids == [entry.message.id for entry in talk.entries]
    for agent in data["agents"]:
        own = found.get(agent["name"])
        reached = {ids[secret]: (verdict, ids[call]) for secret, verdict, call, _ in agent["reached"]}
        runs = list(zip(agent["read"][::2], agent["read"][1::2], strict=True))
        read = {ids[number] for first, last in runs for number in range(first, last + 1)}
        if own is None:
            assert not reached
            assert not read
            continue
        assert reached == {secret: (how.verdict, how.call) for secret, how in own.reached.items()}
        assert read == own.read
        assert (agent["verdict"], agent["readings"], agent["unclean"]) == (own.worst, own.readings, own.unclean)
        assert len(agent["brought"]) == len(own.brought)


def lineless() -> Talk:
    """Bob's own prompt has a message of Carol's whose line is missing; it was encoded over Alice's secret, and over her
    greeting at an odd position."""
    talk = Talk()
    hello = talk.say("alice.0", "everyone")
    secret = talk.say("alice.1", ["alice"])
    talk.say("carol.0", "everyone")
    talk.say("bob.0", "everyone")
    talk.also("carol.0", [secret, (hello, 50)], "baseline", "bob")
    talk.drop("carol.0")
    return talk


def test_what_reached_an_agent_by_a_message_without_a_line_names_no_message(tmp_path: Path) -> None:
    data = blocks(page_of(recorded(tmp_path, lineless().entries)))["talk-0"]
    [bob] = (agent for agent in data["agents"] if agent["name"] == "bob")
    assert (bob["reached"], bob["felt"]) == ([[1, "direct", -1, 1]], [])
    assert reach(GameVerdict(0, lineless().entries))["bob"].felt == {"carol.0"}


def test_an_encoding_names_those_whose_offsets_it_took(tmp_path: Path) -> None:
    talk = anchored()
    data = blocks(page_of(recorded(tmp_path, talk.entries)))["talk-0"]
    ids, encodings = [message["id"] for message in data["messages"]], data["encodings"]
    (corrected,) = (each for each in encodings if "anchors" in each)
    assert (ids[corrected["of"]], corrected["by"]) == ("alice.0", [a["name"] for a in data["agents"]].index("bob") + 1)
    taken = [encodings[number] for number in corrected["anchors"]]
    assert [(ids[each["of"]], each["recipe"]) for each in taken] == [("carol.1", "repaired"), ("carol.1", "author")]


def canaries() -> Talk:
    """Words that Bob may read begin with "for", all others with "canary"."""
    talk = Talk()
    rules = talk.say("scenario.0", "everyone", author=None, kind="prefill", text="forall0")
    secret = talk.say("alice.0", ["alice"], [rules], kind="prefill", text="canary1", header="canary2")
    both = talk.say("alice.1", ["alice", "bob"], [rules, secret], text="forbob1", header="forbob2")
    talk.say("carolcanary.0", ["carolcanary"], [rules], text="canary3")
    talk.say("bob.0", ["bob"], [rules, secret, both], text="forbob3")
    talk.say("alice.2", "everyone", [rules, secret, both], text="forall4")
    talk.say("alice.3", "everyone", [rules], text="canary5")
    talk.change("alice.3", ended="cancelled")
    for entry in list(talk.entries):
        act = entry.act._replace(where="canary.py:7", choices=("canary6",), call="canary7", released="canary8")
        use = ToolUse("canary9", Audience(frozenset({"canary10"})), effect=True, trusted=False, client="canary11")
        charge = Charge("words", 17.5, (("canary12", ("canary13",)),))
        talk.change(entry.message.id, act=act._replace(use=use, release=True, charge=charge, shown=("alice.0",)))
    return talk


def test_what_bob_may_read_is_all_that_his_page_has(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries, alice="rolecanary", bob="forbobrole", carolcanary="rolecanary")
    whole, his = page_of(run), page_of(run, "bob")
    for number in range(14):
        assert f"canary{number}" in whole or number in (0, 4)
    for word in ("optioncanary", "outcomecanary", "scorecanary", "rolecanary", "carolcanary", "canary.py"):
        assert word in whole
    assert "canary" not in his
    assert set(re.findall(r"for(?:all|bob)(?:\d|role)", his)) == {
        "forall0",
        "forbob1",
        "forbob2",
        "forbob3",
        "forall4",
        "forbobrole",
    }
    data = blocks(his)
    assert [agent["name"] for agent in data["talk-0"]["agents"]] == ["bob", "alice"]
    known = {"id", "by", "to", "role", "kind", "text", "header", "tokens"}
    assert all(set(message) <= known for message in data["talk-0"]["messages"])
    assert data["talk-0"]["encodings"] == []
    assert run.info.id not in his
    assert "41" not in json.dumps(data["head"])
    assert "17.5" in whole
    assert "17.5" not in his


def test_bad_input_is_one_clear_error(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries)
    with pytest.raises(AudienceError, match="no agent named 'bert'"):
        page_of(run, "bert")
    with pytest.raises(ConfigError, match="no game 7"):
        page_content([run], PageSelection(game=7))
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordNotFound):
        target(str(tmp_path / "empty"), tmp_path)
    with pytest.raises(RecordNotFound):
        target("nowhere", tmp_path)


def test_a_folder_of_columns_is_one_page(tmp_path: Path) -> None:
    for column in ("baseline", "choreographed-audit"):
        recorded(tmp_path / "compared" / column, hostile().entries)
    runs = target(str(tmp_path / "compared"), tmp_path)
    head = page_content(runs).heads()
    assert [talk["group"] for talk in head["talks"]] == ["baseline", "choreographed-audit"]
    assert (head["run"], head["status"]) == ("compared", "done")


def test_traces_are_planned_and_reports_are_drawn_without_words(tmp_path: Path) -> None:
    run = recorded(tmp_path, canaries().entries, alice="rolecanary")
    traces, report = tmp_path / "traces.jsonl", tmp_path / "report.json"
    write_traces(traces, run.export())
    data = blocks(page(of_traces(traces, PageSelection())))["talk-0"]
    ids = [message["id"] for message in data["messages"]]
    reached = {agent["name"]: {ids[each[0]] for each in agent["reached"]} for agent in data["agents"]}
    assert reached["bob"] == {"alice.0"}
    times = {"at", "first", "took", "steps", "encoded", "reused", "prompt"}
    assert data["costs"] == [], "those of the plan are not those of the run"
    assert not times & {name for message in data["messages"] for name in message}
    assert "canary" not in page(of_traces(traces, PageSelection("bob")))
    found = audit_run(run)
    report.write_text(found.model_dump_json())
    drawn = blocks(page(of_report(report, PageSelection())))
    assert drawn["head"]["wordless"]
    assert "canary1" not in json.dumps(drawn)
    bob = next(agent for agent in drawn["talk-0"]["agents"] if agent["name"] == "bob")
    ids = [message["id"] for message in drawn["talk-0"]["messages"]]
    told = {secret for edge in found.edges if edge.reader == "bob" for secret in edge.secrets}
    assert {ids[each[0]] for each in bob["reached"]} == told == {"alice.0"}
    with pytest.raises(ConfigError):
        of_report(report, PageSelection("bob"))
    with pytest.raises(RecordBroken):
        of_report(traces, PageSelection())
