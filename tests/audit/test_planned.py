"""Traces without receipts: the real resolver on an engine of sets agrees with the transcript of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcho import After, Agent, Game, Read, RunConfig, Scenario, View
from agentcho.audit import AuditReport, audit_run, audit_traces
from agentcho.audit.planned import SymbolicEngine, plan, planned
from agentcho.audit.report import Edge, Place
from agentcho.audit.verdict import GameVerdict
from agentcho.config import Leakage, Mode, RepairBy, ReusePolicy
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.records.record import find
from agentcho.records.trace import Workflow, workflow, write_traces
from agentcho.reuse.ape import Ape
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.top_k import TopK
from agentcho.testing import FakeEngine

Message = dict[str, Any]
REPAIRS = ("first-k:1", "top-k:0.5", "full")
READ = ("in-place", "ape:0.8,0.9")
WAYS: list[tuple[Mode, Leakage]] = [
    ("choreographed", "audit"),
    ("choreographed", "enforce"),
    ("choreographed", "deny"),
    ("baseline", "audit"),
]


def prefill(id: str, author: str | None, audience: Any, *parents: str, **changes: Any) -> Message:
    message: Message = {"id": id, "kind": "prefill", "role": "user", "author": author, "audience": audience}
    return message | {"parents": list(parents), "text": f"the words of {id}"} | changes


def decode(id: str, author: str, audience: Any, *parents: str, **changes: Any) -> Message:
    spoken = {"kind": "decode", "role": "assistant", "header": "So:"}
    return prefill(id, author, audience, *parents) | spoken | changes


def trace(*messages: Message, id: str = "w0") -> Workflow:
    agents = ["alice", "bob", "carol"]
    head = {"format": "agentcho-trace/1", "workflow": "talk", "id": id, "agents": agents}
    return workflow(head | {"messages": list(messages)})


def whispers() -> Workflow:
    """A secret goes from Alice through Bob to Carol, who reads only public words."""
    return trace(
        prefill("plan", "alice", ["alice"]),
        decode("a", "alice", "everyone", "plan"),
        decode("b", "bob", "everyone", "a"),
        decode("c", "carol", "everyone", "b"),
    )


def eavesdrop() -> Workflow:
    """Bob reads a message that is not for him."""
    return trace(prefill("plan", "alice", ["alice"]), decode("b", "bob", "everyone", "plan"), id="w1")


def audited(tmp_path: Path, *traces: Workflow, mode: Mode = "choreographed", leakage: Leakage = "audit") -> AuditReport:
    file = tmp_path / "traces.jsonl"
    write_traces(file, traces)
    return audit_traces(file, mode, leakage)


def errors(report: AuditReport) -> list[tuple[str, str | None, tuple[str, ...]]]:
    return [(f.rule, f.reader, f.path) for f in report.findings if f.level == "error"]


# -- verdicts ------------------------------------------------------------------------------------------------


def test_audit_finds_the_leaks_that_a_run_would_have(tmp_path: Path) -> None:
    report = audited(tmp_path, whispers(), eavesdrop())
    assert errors(report) == [
        ("AC001", "bob", ("plan",)),
        ("AC002", "bob", ("a", "plan")),
        ("AC002", "carol", ("b", "a", "plan")),
    ]
    assert (report.subject.planned, report.subject.games, report.conclusion) == (True, 2, "findings")
    direct, first, _ = (f for f in report.findings if f.level == "error")
    assert first.place == Place(file=str(tmp_path / "traces.jsonl"), line=1)
    assert direct.place == Place(file=str(tmp_path / "traces.jsonl"), line=2)
    assert "refused" not in direct.message
    assert (direct.places, first.places) == ((None,), (None, None)), "a trace does not say which code asked for what"


@pytest.mark.parametrize(
    ("mode", "leakage"), [("choreographed", "enforce"), ("baseline", "audit"), ("baseline", "deny")]
)
def test_enforce_and_baseline_are_clean(tmp_path: Path, mode: Mode, leakage: Leakage) -> None:
    report = audited(tmp_path, whispers(), mode=mode, leakage=leakage)
    assert (errors(report), report.conclusion, report.exit_code("error")) == ([], "clean", 0)
    assert report.clean_edges >= 3
    assert any("as the resolver plans them" in reason for reason in report.reasons)


@pytest.mark.parametrize(
    ("mode", "leakage", "found"),
    [
        ("choreographed", "deny", [("AC001", "bob", ("plan",)), ("AC002", "bob", ("a", "plan"))]),
        ("choreographed", "enforce", [("AC001", "bob", ("plan",))]),
        ("baseline", "enforce", [("AC001", "bob", ("plan",))]),
        ("baseline", "audit", [("AC001", "bob", ("plan",))]),
    ],
)
def test_a_refused_reading_is_a_finding(tmp_path: Path, mode: Mode, leakage: Leakage, found: list[Any]) -> None:
    report = audited(tmp_path, whispers(), eavesdrop(), mode=mode, leakage=leakage)
    assert errors(report) == found
    leak = next(f for f in report.findings if f.rule == "AC001")
    assert ("refused" in leak.message) is (leakage != "audit")
    assert (leak.owner, leak.carrier, leak.games, leak.place and leak.place.line) == ("alice", "alice", 1, 2)
    assert (report.drawn_game, [said.id for said in report.drawn]) == (1, ["plan", "b"])
    assert report.drawn[0].tokens > 4
    assert "words of" not in report.model_dump_json()
    bob = next(edge for edge in report.edges if edge.game == 1)
    assert (bob.call, bob.message, bob.verdict, bob.secrets) == ("b", "plan", "direct", ("plan",))


def test_a_trace_keeps_its_positions_and_they_count_as_constants(tmp_path: Path) -> None:
    placed = trace(prefill("p", None, "everyone"), decode("a", "alice", "everyone", "p", offsets=[30], new_offset=70))
    report = audited(tmp_path, placed)
    assert (report.conclusion, report.subject.environment["raw offsets"]) == ("clean", "2")


def test_an_empty_file_is_inconclusive_and_blank_lines_count(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text("\n")
    assert audit_traces(file).exit_code("error") == 3
    file.write_text("\n\n" + json.dumps(eavesdrop().to_json()) + "\n")
    (leak,) = (f for f in audit_traces(file).findings if f.level == "error")
    assert leak.place == Place(file=str(file), line=3)


def test_a_cone_that_is_not_what_reached_the_encoding_is_unlabelled(monkeypatch: pytest.MonkeyPatch) -> None:
    influence = SymbolicEngine.influence

    def more(engine: SymbolicEngine, id: int) -> Any:
        return influence(engine, id) | ({(9, 9)} if id == 3 else set())

    monkeypatch.setattr(SymbolicEngine, "influence", more)
    edges = [reading.edge for reading in GameVerdict(0, plan(whispers(), "choreographed", "audit").entries).readings()]
    assert [edge.verdict for edge in edges if edge.reader == "carol"] == ["unlabelled"]


# -- planned and played --------------------------------------------------------------------------------------


class Talker(Agent):
    """Thinks in private, then speaks."""

    role = "talker"
    audience = "everyone"


class Chat(Scenario):
    """Three agents with private thoughts speak in turn, twice; one whispers."""

    name = "chat"

    async def play(self, game: Game) -> Scenario.Outcome:
        said = [await game.announce("Be kind.")]
        cast = [game.cast(Talker, name, system=f"You are {name}.") for name in ("alice", "bob", "carol")]
        for agent in cast * 2:
            await agent.think("What now?", max_tokens=4)
            said.append((await agent.say(max_tokens=4)).id)
        await cast[0].say(to="bob", max_tokens=4)
        await cast[1].say(max_tokens=4)
        reads = (Read(said[0]), Read(said[2], After(said[0], 5)), Read(said[1], 60))
        await cast[2].say(max_tokens=4, view=View(reads, After(said[2], 90)))
        await cast[0].say(max_tokens=4)
        return self.Outcome()


def summary(edges: Sequence[Edge]) -> set[tuple[Any, ...]]:
    return {(e.reader, e.call, e.message, e.recipe, e.verdict, e.secrets, e.path) for e in edges}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "leakage", "repair", "reuse"),
    [(*way, None, "rotate") for way in WAYS if way[1] != "deny"]
    + [("choreographed", leakage, repair, "rotate") for leakage in ("audit", "enforce") for repair in REPAIRS]
    + [("choreographed", leakage, None, way) for leakage in ("audit", "enforce") for way in READ],
)
def test_a_plan_says_what_the_transcript_of_the_run_says(
    tmp_path: Path, mode: Mode, leakage: Leakage, repair: str | None, reuse: str
) -> None:
    how = RunConfig(mode=mode, leakage=leakage, repair=repair, reuse=reuse)
    play(RunRequest(Chat(), how, out=tmp_path, engine=FakeEngine()))
    run = find("last", tmp_path)
    write_traces(tmp_path / "traces.jsonl", run.export())
    played = audit_run(run)
    told = audit_traces(tmp_path / "traces.jsonl", mode, leakage, repair=repair, reuse=reuse)
    leaking = (mode, leakage) == ("choreographed", "audit") and repair != "full"
    assert summary(played.edges) == summary(told.edges)
    assert bool(played.edges) is leaking
    assert {f.fingerprint for f in played.findings} == {f.fingerprint for f in told.findings}
    assert [(c.reader, c.author, c.verdict) for c in played.matrix] == [
        (c.reader, c.author, c.verdict) for c in told.matrix
    ]
    assert int(played.subject.environment["raw offsets"]) > 0
    assert played.conclusion == told.conclusion == ("findings" if leaking else "clean")


def test_what_deny_refuses_is_what_audit_finds(tmp_path: Path) -> None:
    denied = audited(tmp_path, whispers(), leakage="deny").edges
    recorded = audited(tmp_path, whispers(), leakage="audit").edges
    assert denied[0].path in [edge.path for edge in recorded]
    assert denied[0].reader == recorded[0].reader


# -- arbitrary workflows --------------------------------------------------------------------------------------


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Messages of three agents and the scenario, for arbitrary audiences, over anything that their authors may read."""
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 10))):
        author = draw(st.sampled_from(["alice", "bob", "carol", None]))
        to = draw(st.one_of(st.just("everyone"), st.lists(st.sampled_from(["alice", "bob", "carol"]), max_size=2)))
        audience = to if to == "everyone" or author is None else sorted({author, *to})
        readable = [m["id"] for m in messages if m["audience"] == "everyone" or author in m["audience"]]
        chosen = draw(st.lists(st.sampled_from(readable), unique=True, max_size=4)) if readable and author else []
        make = decode if author is not None and draw(st.booleans()) else prefill
        messages.append(make(f"m{number}", author, audience, *chosen))  # type: ignore[arg-type]
    return trace(*messages)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(workflows(), st.booleans(), st.sampled_from([None, FirstK(1), TopK(0.5), "full", "in-place", Ape(0.9, 0.8)]))
def test_enforcement_leaks_nothing_and_audit_finds_what_deny_refuses(
    flow: Workflow, deterministic: bool, how: RepairBy | Ape | Literal["in-place"] | None
) -> None:
    policy = ReusePolicy("choreographed", "enforce", deterministic=deterministic)
    if isinstance(how, Ape) or how == "in-place":
        policy = policy._replace(in_place=True, ape=how if isinstance(how, Ape) else None)
    else:
        policy = policy._replace(repair=how)
    enforced = planned(flow, policy)
    assert enforced.refusal is None
    assert {reading.edge.verdict for reading in GameVerdict(0, enforced.entries).readings()} <= {"clean"}
    recorded = list(GameVerdict(0, plan(flow, "choreographed", "audit").entries).readings())
    assert {reading.edge.verdict for reading in recorded} <= {"clean", "transitive"}
    leaks = any(reading.edge.verdict == "transitive" for reading in recorded)
    refused = plan(flow, "choreographed", "deny").refusal
    assert refused is not None or not leaks
    prompted = {reading.edge.verdict for reading in GameVerdict(0, plan(flow, "baseline", "audit").entries).readings()}
    assert prompted <= {"clean"}
