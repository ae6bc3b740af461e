"""Everything that reaches code from the engine is recorded before the code continues, however its message ends."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcho import Agent, Choreographer, Game, Limits, RunConfig
from agentcho.agent import Utterance
from agentcho.config import Leakage, Mode
from agentcho.errors import CallFailed, EngineFailed
from agentcho.events import Ended, Event, GameOver, Sink, Token
from agentcho.games.runs.recording import RecordingSink
from agentcho.message import EVERYONE
from agentcho.protocol.call import Decode, EnginePort
from agentcho.records.record import RunRecord, SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.runner.engine import Engine
from agentcho.testing import FakeEngine

from .stage import MODES, Clock, Interrupted, Play, Scripted, nothing_left, talker

Script = Callable[[Game], Awaitable[Any]]


class Played:
    """One recorded game: the files on disk, and the events of the listener."""

    def __init__(self, folder: Path, mode: Mode = "choreographed", leakage: Leakage = "audit") -> None:
        self._config = RunConfig(mode=mode, leakage=leakage, max_tokens=12)
        self._record = RunRecord.create(folder, "talk", {}, self._config, {"tokenizer": "fake"})
        self.events: list[Event] = []
        self.listen: Sink = self.events.append

    def play(self, play: Play, script: Script, engine: EnginePort, limits: Limits | None = None) -> SavedRun:
        """Play a script; its errors propagate. The record stays open, as after a kill."""
        told = RecordingSink(self._record, self.listen)
        config = self._config.model_copy(update={"limits": limits or Limits()})

        async def work() -> None:
            async with Choreographer(engine, mode=config.mode, leakage=config.leakage) as c:
                await Game(c, 0, 0, config, sink=told, flush=told.flush).play(Scripted(script))

        try:
            play(work)
        finally:
            self.saved = SavedRun(self._record.path)
        return self.saved

    @property
    def path(self) -> Path:
        return self._record.path

    def close(self) -> SavedRun:
        self._record.close("done")
        return SavedRun(self._record.path)


@pytest.fixture
def run(tmp_path: Path) -> Played:
    return Played(tmp_path)


def lines(saved: SavedRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (saved.path / "heard.jsonl").read_text().splitlines()]


def unfinished(saved: SavedRun) -> list[TranscriptEntry]:
    return [entry for entry in saved.entries() if entry.ended is not None]


def pair(game: Game) -> tuple[Agent, Agent]:
    return game.cast(Agent, "alice", system="You know that it is 42.", audience="everyone"), game.cast(Agent, "bob")


class Enough(Exception):
    """Raised by code that stops listening."""


async def leave(agent: Agent, pieces: int = 2, **options: Any) -> list[str]:
    """Read a few pieces of a stream, and leave it by an error."""
    heard: list[str] = []
    try:
        async with agent.stream(**options) as stream:
            async for text in stream:
                heard.append(text)
                if len(heard) == pieces:
                    raise Enough
    except Enough:
        return heard
    raise AssertionError("the error did not come out")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_a_stream_left_by_an_error_leaves_its_message(play: Play, tmp_path: Path, mode: Mode, leakage: Leakage) -> None:
    heard: list[str] = []

    async def script(game: Game) -> None:
        alice, bob = pair(game)
        await alice.think()
        heard.extend(await leave(alice, prompt="Tell us.", header="Well: "))
        await bob.say(to="everyone")

    engine, run = talker(6), Played(tmp_path, mode, leakage)
    run.play(play, script, engine)
    saved = run.close()
    assert nothing_left(engine)
    [entry] = unfinished(saved)
    message = entry.message
    assert (entry.ended, entry.encoding, entry.origin) == ("cancelled", None, "sampled")
    assert (message.author, message.audience, message.header, message.text) == (
        "alice",
        EVERYONE,
        "Well: ",
        "".join(heard),
    )
    assert message.sampled is not None
    assert message.sampled[1] - message.sampled[0] == 2 == len(message.tokens) - message.sampled[0]
    assert entry.own is not None
    assert entry.own.receipt.context
    whole = [each for each in saved.entries() if each.ended is None]
    assert {message.id for message in (each.message for each in whole) if message.author == "bob"} == {"bob.0"}
    assert all(message.id not in each.message.parents for each in whole)
    assert all(entry.own.id not in [piece.id for piece in r.receipt.context] for each in whole for r in each.made)
    assert entry.own.cone >= {*message.parents, message.id}


def test_what_was_read_of_it_is_as_of_a_message_that_is_whole(play: Play, run: Played) -> None:
    """The same message, once cut off and once complete, attends to the same context."""

    async def script(game: Game) -> None:
        alice, _ = pair(game)
        await game.announce("Talk.")
        await leave(alice)
        await alice.say()

    run.play(play, script, talker(4))
    left, said = [entry for entry in run.close().entries() if entry.message.kind == "decode"]
    assert left.own is not None
    assert said.own is not None
    assert [tuple(piece)[1:] for piece in left.own.receipt.context] == [tuple(p)[1:] for p in said.own.receipt.context]
    assert left.message.tokens == said.message.tokens[: len(left.message.tokens)]
    assert left.message.parents == said.message.parents


def test_a_cancelled_task_and_a_call_that_nobody_streams(play: Play, run: Played) -> None:
    engine = Interrupted(8)

    async def script(game: Game) -> None:
        alice, bob = pair(game)
        async with anyio.create_task_group() as group:
            engine.during[4] = group.cancel_scope.cancel
            group.start_soon(alice.say)
            group.start_soon(bob.think)

    run.play(play, script, engine)
    found = unfinished(run.close())
    assert {(entry.message.author, entry.ended) for entry in found} == {("alice", "cancelled"), ("bob", "cancelled")}
    assert {entry.message.text for entry in found} <= {"word", "word word", "word word word"}
    assert nothing_left(engine)


def test_before_its_first_token_there_is_nothing_to_tell(play: Play, run: Played) -> None:
    engine = Interrupted(8)

    async def script(game: Game) -> None:
        alice, _ = pair(game)
        with anyio.CancelScope() as scope:
            engine.during[1] = scope.cancel
            await alice.say()

    run.play(play, script, engine)
    assert (unfinished(run.close()), lines(run.saved)) == ([], [])


def test_a_row_that_fails_leaves_what_it_said(play: Play, run: Played) -> None:
    steps: list[int] = []

    def faulty(call: Decode) -> Exception | None:
        steps.append(1)
        return CallFailed("no finite logit") if len(steps) == 4 else None

    async def script(game: Game) -> None:
        alice, bob = pair(game)
        with pytest.raises(CallFailed):
            await alice.say()
        await bob.think()

    run.play(play, script, FakeEngine(lambda call, prompt: "one two three four five", faulty=faulty))
    [entry] = unfinished(run.close())
    assert (entry.ended, entry.message.text) == ("failed", "one two three")


def test_an_engine_that_fails_leaves_what_every_row_said(play: Play, run: Played) -> None:
    engine = talker(8)

    async def script(game: Game) -> None:
        alice, bob = pair(game)

        async def speak(agent: Agent) -> None:
            with suppress(EngineFailed):
                async with agent.stream() as stream:
                    async for _ in stream:
                        engine.broken = ValueError("out of order")

        async with anyio.create_task_group() as group:
            group.start_soon(speak, alice)
            group.start_soon(speak, bob)

    run.play(play, script, engine)
    found = unfinished(run.close())
    assert [(entry.ended, entry.message.text) for entry in found] == [("failed", "word")] * 2
    assert nothing_left(engine)


def test_a_deadline_leaves_what_was_said_by_then(clock: Clock, run: Played) -> None:
    engine = Interrupted(8)
    engine.during[4] = lambda: clock.jump(60)

    async def script(game: Game) -> None:
        alice, _ = pair(game)
        await alice.say()

    run.play(clock.run, script, engine, Limits(agent_seconds=30))
    [entry] = unfinished(run.close())
    [over] = [event for event in run.events if isinstance(event, GameOver)]
    assert (over.ended or "").startswith("limit: alice")
    assert (entry.ended, entry.message.text) == ("cancelled", "word word word")


def test_what_a_message_that_was_left_has_sampled_counts(play: Play, run: Played) -> None:
    async def script(game: Game) -> None:
        alice, _ = pair(game)
        await leave(alice, pieces=4)
        await alice.say()

    run.play(play, script, talker(9), Limits(agent_tokens=6))
    said = [entry.message for entry in run.close().entries() if entry.message.kind == "decode"]
    assert [message.sampled[1] - message.sampled[0] for message in said if message.sampled] == [4, 2]


def test_the_pieces_are_on_disk_before_the_code_hears_them(play: Play, run: Played) -> None:
    """The file is read at every piece: it already contains it."""

    async def script(game: Game) -> None:
        alice, bob = pair(game)

        async def read(agent: Agent) -> None:
            so_far = ""
            async with agent.stream() as stream:
                async for text in stream:
                    so_far += text
                    path = run.path / "heard.jsonl"
                    there = [json.loads(line) for line in path.read_text().splitlines()]
                    mine = [line for line in there if line["id"].startswith(f"{agent.name}.") and "kind" not in line]
                    assert "".join(line["text"] for line in mine).startswith(so_far)

        await game.together(read(alice), read(bob))

    def directly(text: str) -> None:
        told.append((text, lines(SavedRun(run.path))[-1]["text"]))

    async def direct(game: Game) -> None:
        await script(game)
        await game.speak(game.agents["alice"], Utterance("everyone", None, "", None, {}, directly))

    told: list[tuple[str, str]] = []
    run.play(play, direct, talker(4))
    assert len(told) == 4
    assert all(text == there for text, there in told)


def test_who_listens_hears_of_a_piece_once_it_is_on_record(
    play: Play, run: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    flush = RunRecord.flush

    def flushed(record: RunRecord) -> None:
        flush(record)
        order.append("record")

    def listen(event: Event) -> None:
        order.extend(["listener"] if isinstance(event, Token) else [])

    async def script(game: Game) -> None:
        alice, _ = pair(game)
        await game.speak(alice, Utterance("everyone", None, "", None, {}, lambda text: order.append("code")))

    monkeypatch.setattr(RunRecord, "flush", flushed)
    run.listen = listen
    run.play(play, script, talker(3))
    assert order == ["record", "listener", "code"] * 3


def test_of_a_process_that_died_the_record_knows_what_was_heard(play: Play, run: Played) -> None:
    """No line says how the message ended: the record is cut off at many places in the middle of it."""

    async def script(game: Game) -> None:
        alice, bob = pair(game)
        await bob.think()
        await leave(alice, pieces=3, header="So: ")

    run.play(play, script, talker(6))
    saved = run.close()
    transcript, pieces = saved.path / "transcript.jsonl", saved.path / "heard.jsonl"
    whole = saved.entries()
    [entry] = unfinished(saved)
    kept = [line for line in transcript.read_bytes().splitlines(keepends=True) if b'"ended"' not in line]
    transcript.write_bytes(b"".join(kept))
    [died] = unfinished(saved)
    assert died.message == entry.message
    assert (died.ended, died.direct, died.act, died.own) == ("died", entry.direct, entry.act, entry.own)
    assert {r.id for e in saved.entries() for r in e.made} == {r.id for e in whole for r in e.made}
    data = pieces.read_bytes()
    begun = data.index(b'"alice')
    for cut in range(begun, len(data), 7):
        pieces.write_bytes(data[:cut])
        found = unfinished(saved)
        assert len(found) <= 1
        assert all(entry.message.text.startswith(each.message.text) for each in found)
    assert found[0].message.text


@pytest.mark.parametrize("mode", MODES)
def test_on_a_model_too(play: Play, tmp_path: Path, tiny: Engine, mode: Mode) -> None:
    """What was heard and attended to, and that nothing is left behind."""

    async def script(game: Game) -> None:
        alice, bob = pair(game)
        await bob.say(to="everyone")
        heard.extend(await leave(alice, pieces=3, header="So: "))
        await alice.say(header="So: ")

    heard: list[str] = []
    before, run = tiny.fullness.used, Played(tmp_path, mode)
    run.play(play, script, tiny)
    assert (tiny.fullness.used, tiny.rows, tiny.idle) == (before, 0, True)
    left, said = [entry for entry in run.close().entries() if entry.message.author == "alice"][-2:]
    assert (left.ended, said.ended) == ("cancelled", None)
    assert left.message.text.startswith("".join(heard)[:3])
    assert left.own is not None
    assert said.own is not None
    assert [(e.offset, e.length) for e in left.own.receipt.context] == [
        (e.offset, e.length) for e in said.own.receipt.context
    ]
    opening = left.message.sampled[0] if left.message.sampled else 0
    assert left.message.tokens[:opening] == said.message.tokens[:opening]
    assert len(left.message.tokens) - opening >= 3


def test_a_message_ends_once(play: Play, run: Played) -> None:
    """Its call fails in the same step in which its task is cancelled."""
    engine = Interrupted(8)

    async def script(game: Game) -> None:
        alice, _ = pair(game)
        with anyio.CancelScope() as scope:

            def both() -> None:
                scope.cancel()
                engine.broken = ValueError("out of order")

            engine.during[3] = both
            await alice.say()

    run.play(play, script, engine)
    run.close()
    assert [event.entry.ended for event in run.events if isinstance(event, Ended)].count("cancelled") == 1
    assert len(unfinished(run.saved)) == 1
