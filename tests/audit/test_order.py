"""Who can tell from the order of messages how long private ones were: hand-written transcripts, and recorded runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

import agentcho
from agentcho import Agent
from agentcho.audit import AuditReport, audit_run, order
from agentcho.audit.order import Raced
from agentcho.audit.report import Finding
from agentcho.audit.wording import headline
from agentcho.provenance.views import Act, Move
from agentcho.records.names import TRANSCRIPT
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine

from .transcripts import Talk

Said = tuple[str, str | list[str], Act]


def lines(*acts: Said) -> list[TranscriptEntry]:
    """A game of these messages."""
    talk = Talk()
    for id, to, act in acts:
        talk.say(id, to, act=act)
    return talk.entries


def test_what_is_written_by_hand_is_judged_alike() -> None:
    plan, ready = ("alice.0", ["alice"], Act(after=())), ("alice.1", "everyone", Act(after=("alice.0",)))
    said = "bob.0", "everyone", Act(after=())
    assert list(order.raced(lines(plan, said, ready), ["bob"])) == [Raced("bob", "alice", "alice.1", ("alice.0",))]
    awaited = "bob.0", "everyone", Act(after=("alice.1",))
    assert not list(order.raced(lines(plan, ready, awaited), ["bob"]))


def test_a_thought_is_a_private_message_before_what_is_said_after_it() -> None:
    """If agents run concurrently, the length of Alice's thought decides who comes first."""
    thought = "alice.0.thought", ["alice"], Act(after=())
    said = "alice.0", "everyone", Act(after=(), thought="alice.0.thought")
    beside = "bob.0", "everyone", Act(after=())
    told = [Raced("bob", "alice", "alice.0", ("alice.0.thought",))]
    assert list(order.raced(lines(thought, said, beside), ["bob"])) == told
    assert list(order.raced(lines(beside, thought, said), ["bob"])) == told
    awaited = "bob.0", "everyone", Act(after=("alice.0",))
    assert not list(order.raced(lines(thought, said, awaited), ["bob"]))
    shared = "alice.0.thought", "everyone", Act(after=())
    assert not list(order.raced(lines(shared, said, beside), ["bob"]))


def test_what_has_no_length_of_its_own_races_with_nothing() -> None:
    """Known text takes no step, so it may come before a plan that has just begun."""
    plan, ready = ("alice.0", ["alice"], Act(after=())), ("alice.1", "everyone", Act(after=("alice.0",)))
    talk = Talk()
    talk.say("bob.0", "everyone", kind="prefill", act=Act(after=()))
    for id, to, act in (plan, ready):
        talk.say(id, to, act=act)
    assert not list(order.raced(talk.entries, ["bob"]))


def test_moves_of_one_round_do_not_race_and_rounds_do() -> None:
    def act(round: int, move: int) -> Act:
        return Act(after=(), moves=(Move(round, move),))

    one: list[Said] = [
        ("alice.0", ["alice"], act(1, 0)),
        ("alice.1", "everyone", act(1, 0)),
        ("bob.0", "everyone", act(1, 1)),
    ]
    assert not list(order.raced(lines(*one), ["bob"]))
    two = [*one[:2], ("bob.0", "everyone", act(2, 0))]
    [told] = order.raced(lines(*two), ["bob"])
    assert (told.owner, told.message) == ("alice", "alice.1")


def test_a_line_that_does_not_say_what_was_awaited_is_not_judged() -> None:
    assert not order.known(lines(("alice.0", "everyone", Act()), ("bob.0", "everyone", Act(after=()))))


@pytest.mark.parametrize("many", [300])
def test_many_messages_one_by_one_are_not_compared(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(order._Level, "_compared")
    said = [(f"bob.{n}", "everyone", Act(after=(f"bob.{n - 1}",) if n else ())) for n in range(many)]
    assert not list(order.raced(lines(*said), ["alice"]))


@pytest.mark.parametrize("awaited", [("alice.0", "dave.0"), ("alice.0",)], ids=["both", "one"])
def test_after_one_overlap_few_units_are_compared(awaited: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two messages are said side by side, all others one by one."""
    many, seen = 300, list[order._Unit]()
    fixed, unfixed = order._Level._fixed, order._Level._unfixed

    def seen_fixed(level: order._Level, one: order._Unit, other: order._Unit) -> bool:
        seen.append(other)
        return fixed(level, one, other)

    def seen_unfixed(level: order._Level, unit: order._Unit, span: order._Span) -> Iterator[order._Unit]:
        seen.append(span.first)
        return unfixed(level, unit, span)

    monkeypatch.setattr(order._Level, "_fixed", seen_fixed)
    monkeypatch.setattr(order._Level, "_unfixed", seen_unfixed)
    plan, beside = ("alice.0", ["alice"], Act(after=())), ("dave.0", "everyone", Act(after=()))
    said: list[Said] = [plan, beside, ("bob.0", "everyone", Act(after=awaited))]
    said += [(f"bob.{n}", "everyone", Act(after=(f"bob.{n - 1}",))) for n in range(1, many)]
    found = list(order.raced(lines(*said), ["carol"]))
    told = [Raced("carol", "alice", f"bob.{n}", ("alice.0",)) for n in range(many)]
    assert found == ([] if "dave.0" in awaited else told)
    assert len(seen) < 30 * many


def anyhow(seed: int) -> list[TranscriptEntry]:
    """A few messages of three agents, in private or not, in rounds or not, that awaited any of those before them."""
    random, talk = Random(seed), Talk()
    ids = list[str]()
    for number in range(random.randrange(2, 14)):
        who = random.choice("abc")
        ended: list[str | int] = [*ids[-4:], *range(number // 3)]
        after = tuple(random.sample(ended, min(len(ended), random.randrange(3))))
        moves = (Move(number // 3, random.randrange(2)),) if random.random() < 0.3 else ()
        audiences: list[str | list[str]] = ["everyone", "everyone", [who], ["a", "b"]]
        kind = random.choice(("decode", "decode", "decode", "prefill"))
        ids.append(f"{who}.{number}")
        talk.say(ids[-1], random.choice(audiences), kind=kind, act=Act(after=after, moves=moves))
    return talk.entries


def by_definition(level: order._Level, reader: str, units: Sequence[order._Unit]) -> Iterator[Raced]:
    """The races of each two units that a reader reads."""
    decoded = [(n, entry.message) for n, entry in enumerate(level._entries) if entry.message.kind == "decode"]
    hidden = sum(1 << n for n, message in decoded if not message.audience.includes(reader))
    read = [unit for unit in units if level._shown(unit, reader)]
    for unit in read:
        told = 0
        for other in read:
            if other is not unit and not level._fixed(unit, other):
                told |= level._told(unit, other, unit.behind & hidden)
        yield from level._named(reader, unit, told)


def test_no_race_is_missed_where_not_all_units_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    games = [anyhow(seed) for seed in range(100)]
    found = [list(order.raced(entries, "abc")) for entries in games]
    monkeypatch.setattr(order._Level, "_of", by_definition)
    assert found == [list(order.raced(entries, "abc")) for entries in games]
    assert any(found)


# -- recorded runs -----------------------------------------------------------------------------------------


class Plans(Agent):
    """Thinks in private, and then says the same to everyone regardless of the thought."""

    async def run(self) -> None:
        await self.think(max_tokens=5)
        await self.tell("I am ready.", to="everyone")


class Talks(Agent):
    """Speaks repeatedly."""

    async def run(self) -> None:
        for _ in range(4):
            await self.say(to="everyone", max_tokens=2)


def played(out: Path, *agents: Agent, lockstep: bool = False, engine: FakeEngine | None = None) -> SavedRun:
    """A recorded run of these agents, run concurrently."""
    engine = FakeEngine() if engine is None else engine
    over = agentcho.run(*agents, engine=engine, out=out, lockstep=lockstep, deterministic=True, display="none")
    assert over.record is not None
    return SavedRun(over.record)


def ordered(report: AuditReport) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == "AC019"]


def test_agents_side_by_side_are_named_and_in_lockstep_they_are_not(tmp_path: Path) -> None:
    report = audit_run(played(tmp_path, Plans("alice"), Talks("bob")))
    [finding] = ordered(report)
    assert (finding.level, finding.reader, finding.owner, finding.carrier) == ("warning", "bob", "alice", "alice")
    assert (finding.secrets, finding.path, finding.edges) == (("alice.0",), ("alice.1", "alice.0"), 1)
    assert finding.place is not None
    assert finding.place.file.endswith("test_order.py")
    said = "no agent reads what it may not read; the order of messages can reveal how long private ones were"
    assert str(headline(report)) == f"CLEAN (encodings): {said}; words: 1 release"
    assert (report.exit_code("error"), report.exit_code("warning")) == (0, 1)
    beside = audit_run(played(tmp_path, Plans("alice"), Talks("bob"), lockstep=True))
    assert {finding.rule for finding in beside.findings} == {"AC007", "AC008"}
    assert headline(beside).sentence == "no agent reads what it may not read"


@pytest.mark.parametrize("raced", [True, False])
def test_an_earlier_record_cannot_tell_where_messages_were_side_by_side(tmp_path: Path, raced: bool) -> None:
    run = played(tmp_path, *((Plans("alice"), Talks("bob")) if raced else (Talks("bob"),)))
    lines = [json.loads(line) for line in (run.path / TRANSCRIPT).read_text().splitlines()]
    for line in lines:
        assert line["act"].pop("after") is not None
    (run.path / TRANSCRIPT).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = ordered(audit_run(SavedRun(run.path)))
    said = (
        "it is unknown what the order of messages reveals: messages were said side by side, and the record does not "
        "say what was awaited"
    )
    assert [finding.message for finding in found] == [said] * raced


def test_agents_whose_models_think_race_by_their_thoughts(tmp_path: Path) -> None:
    def thinks() -> FakeEngine:
        return FakeEngine(lambda call, prompt: "<think> hm </think> hello there", thinks=True)

    found = ordered(audit_run(played(tmp_path, Talks("alice"), Talks("bob"), engine=thinks())))
    told = {(each.reader, each.owner, secret) for each in found for secret in each.secrets}
    thought = {(f"{who}.{n}.thought", who) for who in ("alice", "bob") for n in range(4)}
    assert told
    assert told <= {(reader, who, id) for id, who in thought for reader in ("alice", "bob") if reader != who}
    assert {reader for reader, *_ in told} == {"alice", "bob"}
    assert not ordered(audit_run(played(tmp_path, Talks("alice"), Talks("bob"), lockstep=True, engine=thinks())))
