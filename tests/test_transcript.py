"""Transcript format 2, its readers, and the canonical form in which two transcripts are equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from agentcho import Choreographer, Game, RunConfig, canonical_transcript
from agentcho.audit import audit_run
from agentcho.errors import RecordBroken
from agentcho.events import Event
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.message import EVERYONE, Audience
from agentcho.provenance.views import Act, ToolUse
from agentcho.records.record import GameOver, RunRecord, SavedRun
from agentcho.records.trace import exported
from agentcho.records.transcript import EncodingsEntry, TranscriptEntry, own_records
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import heard
from agentcho.testing.rehearsal import play as rehearse

from .audit.transcripts import Talk, chain
from .choreography.plays import chat
from .choreography.stage import Scripted, Talker


def written(folder: Path, lines: list[TranscriptEntry | EncodingsEntry]) -> SavedRun:
    record = RunRecord.create(folder, "talk", {}, RunConfig(games=1, leakage="audit"), {"tokenizer": "t"})
    with record:
        for line in lines:
            record.said(line) if isinstance(line, TranscriptEntry) else record.encoded(line)
        record.over(GameOver(0, {}, {}, None, 1.0))
    return SavedRun(record.path)


def later(talk: Talk) -> list[TranscriptEntry | EncodingsEntry]:
    """The same game with the encoding of each known text on a later line, the last one's on a line of its own."""
    lines: list[TranscriptEntry | EncodingsEntry] = []
    waiting: tuple[Any, ...] = ()
    for entry in talk.entries:
        known = entry.message.kind == "prefill"
        made = () if known else (*waiting, *entry.made)
        lines.append(entry._replace(made=made, encoding=None if known else entry.encoding))
        waiting = (*waiting, *entry.made) if known else ()
    return [*lines, *([EncodingsEntry(0, waiting)] if waiting else [])]


def whispers() -> Talk:
    """Alice tells herself a secret and speaks; Bob answers; nobody reads the scenario's last words."""
    talk = Talk()
    rules = talk.say("scenario.0", "everyone", author=None, kind="prefill")
    secret = talk.say("alice.0", ["alice"], [rules], kind="prefill")
    said = talk.say("alice.1", "everyone", [rules, secret])
    talk.say("bob.0", "everyone", [rules, said])
    talk.say("scenario.1", "everyone", author=None, kind="prefill")
    return talk


def test_format_1_is_told_from_format_2(tmp_path: Path) -> None:
    assert written(tmp_path, list(chain().entries)).info.format == "agentcho-run/2"
    assert SavedRun(Path(__file__).parent / "fixtures/formats/run/placed").info.format == "agentcho-run/1"


def test_a_line_says_what_is_out_of_the_common_and_is_read_as_it_was_written() -> None:
    entry = whispers().entries[1]
    bare = entry.message.saying(tokens=(), content=(0, 0))
    more = entry._replace(
        message=bare, encoding=None, made=(), ended="failed", attempt=3, engine="other", origin="human"
    )
    for each in (entry, more):
        assert TranscriptEntry.from_json(json.loads(json.dumps(each.to_json()))) == each
    line = more.to_json()
    assert (line["tokens"], line["encoding"], line["encodings"]) == (None, None, [])
    assert not {"ended", "attempt", "engine", "origin"} & entry.to_json().keys()
    for odd in ({"ended": "somehow"}, {"origin": "nowhere"}):
        with pytest.raises(ValueError, match=f"{next(iter(odd))}: Input should be"):
            TranscriptEntry.from_json(line | odd)


def test_a_message_says_when_it_was_asked_for_and_in_which_steps_it_was_made() -> None:
    async def both_and_one(game: Game) -> None:
        alice, bob = Talker("alice"), Talker("bob")
        game.cast(alice)
        game.cast(bob)
        await game.together(alice.say(to="everyone", prompt="Hello."), bob.say(to="everyone"))
        await alice.say(to="everyone")

    entries = rehearse(both_and_one).entries
    asked, *said = entries
    assert asked.usage.steps is None
    assert [(entry.usage.steps or (0,))[0] for entry in said[:2]] == [1, 1]
    for before, entry in zip((None, None, max(s.usage.steps or (0, 0, 0) for s in said[:2])), said, strict=True):
        usage, steps = entry.usage, entry.usage.steps
        assert usage.at is not None
        assert steps is not None
        assert usage.at >= 0.0
        assert steps[0] <= steps[1] <= steps[2]
        assert before is None or steps[0] == before[2] + 1
    for entry in entries:
        assert TranscriptEntry.from_json(json.loads(json.dumps(entry.to_json()))).usage == entry.usage
    older = entries[1].to_json()
    del older["usage"]["at"], older["usage"]["steps"]
    assert TranscriptEntry.from_json(json.loads(json.dumps(older))).usage.steps is None


@pytest.mark.parametrize(
    "act",
    [
        Act(released="ann.1"),
        Act("a.py:1", call="ann.1", use=ToolUse("post", EVERYONE, effect=True, trusted=False), release=True),
        Act(call="ann.1", use=ToolUse("add", Audience(frozenset()), False, True, "sums")),
        Act(call="ann.1", use=ToolUse("tell", Audience(frozenset({"bob"})), True, False)),
    ],
)
def test_what_a_tool_declares_is_on_record(act: Act) -> None:
    entry = whispers().entries[1]._replace(act=act)
    assert TranscriptEntry.from_json(json.loads(json.dumps(entry.to_json()))) == entry
    assert not {"released", "call", "use", "release"} & whispers().entries[1].to_json()["act"].keys()


def test_encodings_may_come_later_or_alone(tmp_path: Path) -> None:
    talk = whispers()
    run = written(tmp_path, later(talk))
    entries = run.entries()
    assert [entry.encoding for entry in entries] == [None, None, 3, 4, None]
    assert [len(entry.made) for entry in entries] == [0, 0, 3, 1, 1]
    assert own_records(entries) == own_records(talk.entries)
    assert canonical_messages(entries) == canonical_messages(talk.entries)
    assert canonical_transcript(entries)[0]["encodings"] == canonical_transcript(talk.entries)[0]["encodings"]


def canonical_messages(entries: list[TranscriptEntry]) -> list[Any]:
    return [
        {name: value for name, value in line.items() if name != "encoding"}
        for line in canonical_transcript(entries)[0]["messages"]
    ]


def test_an_audit_finds_the_same_wherever_encodings_are_written(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one, other = written(tmp_path / "a", list(whispers().entries)), written(tmp_path / "b", later(whispers()))
    reports = [audit_run(run, key=b"k") for run in (one, other)]
    assert reports[0].edges == reports[1].edges
    assert {edge.verdict for edge in reports[0].edges} == {"transitive"}
    assert (reports[0].clean_edges, reports[0].releases) == (reports[1].clean_edges, reports[1].releases)
    assert [f.message for f in reports[0].findings] == [f.message for f in reports[1].findings]
    assert [w.to_json()["messages"] for w in one.export()] == [w.to_json()["messages"] for w in other.export()]


def test_an_encoding_that_nobody_recorded_is_still_unlabelled(tmp_path: Path) -> None:
    lines = later(whispers())
    assert isinstance(lines[2], TranscriptEntry)
    lines[2] = lines[2]._replace(made=lines[2].made[1:])  # the rules' encoding is missing
    report = audit_run(written(tmp_path, lines))
    assert report.conclusion != "clean"
    assert "unlabelled" in {edge.verdict for edge in report.edges}


def test_encodings_alone_before_any_message_are_refused(tmp_path: Path) -> None:
    run = written(tmp_path, [EncodingsEntry(0, whispers().entries[0].made), *whispers().entries])
    with pytest.raises(RecordBroken, match="not a valid line of a message"):
        run.entries()


def test_a_message_without_tokens_is_exported_by_its_text() -> None:
    entries = [entry._replace(message=entry.message.saying(tokens=())) for entry in whispers().entries]
    trace = exported("talk", "talk-0", {}, (), entries, "t")
    assert {message.tokens for message in trace.messages} == {None}


def test_of_several_attempts_the_last_is_the_game_and_all_are_judged(tmp_path: Path) -> None:
    again = [entry._replace(attempt=2) for entry in whispers().entries]
    run = written(tmp_path, [*whispers().entries[:4], *again])
    assert [len(entries) for entries in (run.games()[0], run.attempts()[0])] == [5, 9]
    assert {entry.attempt for entry in run.games()[0]} == {2}
    assert canonical_transcript(run) == canonical_transcript(whispers().entries)
    report, whole = audit_run(run), audit_run(written(tmp_path, list(whispers().entries)))
    assert (report.clean_edges, len(report.edges)) == (2 * whole.clean_edges, 2 * len(whole.edges))


# -- equal transcripts --------------------------------------------------------------------------------------


async def talk(game: Game) -> str:
    alice, bob = await chat(game)
    return (await alice.choose(["yes", "no"], to="everyone")) + (await bob.think()).text


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_games_side_by_side_and_one_by_one_have_the_same_transcript(tmp_path: Path, leakage: Any) -> None:
    config = RunConfig(games=4, max_tokens=6, leakage=leakage)
    runs = [
        play(
            RunRequest(Scripted(talk), config, engine=FakeEngine(), out=tmp_path / str(at_once), at_once=at_once)
        ).record
        for at_once in (1, 3, 4)
    ]
    one, *others = (canonical_transcript(run) for run in runs if run is not None)
    assert others == [one, one]
    assert [entry.encoding for entry in SavedRun(runs[0] or Path()).games()[1]] != [
        entry.encoding for entry in SavedRun(runs[2] or Path()).games()[1]
    ]
    assert json.loads(json.dumps(list(one.values()))) == list(one.values())


def test_what_differs_in_words_or_in_what_was_attended_is_not_the_same() -> None:
    base = canonical_transcript(whispers().entries)
    texts, contexts = whispers(), whispers()
    texts.change("bob.0", message=texts.entries[3].message.saying(text="other"))
    record = contexts.entries[3].made[0]
    contexts.forge("bob.0", receipt=record.receipt._replace(context=record.receipt.context[:1]))
    for other in (texts, contexts):
        assert canonical_transcript(other.entries) != base
    moved = [
        entry._replace(
            encoding=(entry.encoding or 0) + 7,
            usage=entry.usage._replace(seconds=9.0),
            made=tuple(
                r._replace(
                    id=r.id + 7,
                    receipt=r.receipt._replace(context=tuple(e._replace(id=e.id + 7) for e in r.receipt.context)),
                )
                for r in entry.made
            ),
        )
        for entry in whispers().entries
    ]
    Random(1).shuffle(moved)
    assert canonical_transcript(moved) == base


# -- races --------------------------------------------------------------------------------------------------

Script = Callable[[Game], Any]


async def rounds(game: Game) -> None:
    alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
    for _ in range(2):
        await game.together(alice.say(), bob.say())
    await alice.say()
    await alice.tell("It is so.")
    await bob.say()


async def side_by_side(game: Game) -> None:
    alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
    async with anyio.create_task_group() as group:
        group.start_soon(alice.say)
        group.start_soon(bob.say)


class Runner(Talker):
    """An agent that speaks on its own."""

    async def run(self) -> None:
        await self.say()


async def by_themselves(game: Game) -> None:
    await game.play_agents(game.cast(Runner, "alice"), game.cast(Runner, "bob"))


async def within_a_move(game: Game) -> None:
    alice, bob, carol = (game.cast(Talker, name) for name in ("alice", "bob", "carol"))

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(alice.say)
            group.start_soon(bob.say)

    await game.together(both(), carol.say())


async def beside_a_round(game: Game) -> None:
    alice, bob, carol = (game.cast(Talker, name) for name in ("alice", "bob", "carol"))
    async with anyio.create_task_group() as group:
        group.start_soon(carol.say)
        await game.together(alice.say(), bob.say())


async def one_after_the_other(game: Game) -> None:
    alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
    turn = anyio.Event()

    async def first() -> None:
        await alice.say()
        turn.set()

    async def second() -> None:
        await turn.wait()
        await bob.say()

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        group.start_soon(second)


async def told_meanwhile(game: Game) -> None:
    alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
    async with anyio.create_task_group() as group:
        group.start_soon(alice.say)
        await bob.tell("Known beforehand.")


@pytest.mark.parametrize(
    ("script", "raced"),
    [
        (rounds, False),
        (side_by_side, True),
        (by_themselves, True),
        (within_a_move, True),
        (beside_a_round, True),
        (one_after_the_other, False),
        (told_meanwhile, False),
    ],
)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_game_whose_order_depended_on_who_ended_first_is_raced(script: Script, raced: bool, backend: str) -> None:
    assert rehearse(script, backend=backend).over.raced is raced


def test_that_it_raced_is_in_its_outcome_line(tmp_path: Path) -> None:
    run = play(RunRequest(Scripted(by_themselves), RunConfig(max_tokens=3), engine=FakeEngine(), out=tmp_path)).record
    assert run is not None
    assert SavedRun(run).finished()[0].raced
    assert json.loads((run / "outcomes.jsonl").read_text())["raced"] is True


def test_encodings_that_no_line_carries_stand_alone_at_the_end(tmp_path: Path) -> None:
    events: list[Event] = []

    async def work() -> None:
        async with Choreographer(FakeEngine()) as c:
            game = Game(c, sink=events.append)
            books = game._journal
            await game.play(Scripted(rounds))
            record = books._ledger[1]
            books._unwritten.append((record._replace(id=99), 0))
            books.close()

    anyio.run(work)
    assert [record.id for record in heard(events)[-1].made][-1] == 99
