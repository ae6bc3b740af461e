"""Decode turns are the same in games, served societies and replays."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import agentcho
from agentcho import Choreographer, Game, RunConfig
from agentcho.choreography.requests import DecodePiece
from agentcho.config import ReusePolicy
from agentcho.events import Event
from agentcho.games.play.decode_turn import TurnRecorder
from agentcho.games.runs.replay import _Replay
from agentcho.protocol.call import Call, Shadow
from agentcho.records.record import runs
from agentcho.records.trace import exported
from agentcho.records.transcript import TranscriptEntry
from agentcho.serve.request import Caller, ChatRequest, QuotedMessage
from agentcho.serve.sharing.served import ServedModel, Serving
from agentcho.testing import FakeEngine

from .stage import Interrupted, Play, Scripted, Talker, heard, nothing_left


class Speech:
    """A message of Ann: its words, whether her model thinks, the step in which it is cancelled, her system prompt, and
    her options."""

    def __init__(
        self, words: str, thinks: bool = False, cancelled: int | None = None, brief: str | None = None, **options: Any
    ) -> None:
        self.words, self.thinks, self.cancelled, self.options = words, thinks, cancelled, options
        self.brief = brief
        self.engines = 0

    def engine(self) -> Interrupted:
        """An engine that generates it."""
        self.engines += 1
        return Interrupted(self.words, thinks=self.thinks)

    @contextmanager
    def said_on(self, engine: Interrupted) -> Iterator[None]:
        """The context in which it is said, and perhaps cancelled."""
        with anyio.CancelScope() as scope:
            if self.cancelled is not None:
                engine.during[self.cancelled] = scope.cancel
            yield
        assert scope.cancelled_caught == (self.cancelled is not None)


Way = Callable[[Interrupted, Speech, Path], Awaitable[list[TranscriptEntry]]]
Say = Callable[[Speech], list[TranscriptEntry]]


async def in_game(engine: Interrupted, speech: Speech, folder: Path) -> list[TranscriptEntry]:
    """The transcript of a game in which it is said."""
    events: list[Event] = []

    async def script(game: Game) -> None:
        with speech.said_on(engine):
            await game.cast(Talker, "ann", system=speech.brief).say(**speech.options)

    async with Choreographer(engine, leakage="enforce") as choreographer:
        await Game(choreographer, 0, 0, RunConfig(max_tokens=12, leakage="enforce"), sink=events.append).play(
            Scripted(script)
        )
    return heard(events)


async def in_society(engine: Interrupted, speech: Speech, folder: Path) -> list[TranscriptEntry]:
    """The transcript of a served society in which it is said."""
    model = ServedModel("fake", engine, RunConfig(model="fake"), Serving(record=folder))
    options: Any = speech.options
    async with model.serving():
        with speech.said_on(engine):
            brief = () if speech.brief is None else (QuotedMessage("system", speech.brief),)
            request = ChatRequest((*brief, QuotedMessage("user", "Hi")), options, max_tokens=12)
            await model.answer(Caller("", "town", "ann"), request, lambda delta: None)
    [run] = runs(folder)
    return [entry for entry in run.games()[0] if entry.message.kind == "decode"]


async def in_replay(engine: Interrupted, speech: Speech, folder: Path) -> list[TranscriptEntry]:
    """The transcript of a replay of the game in which it is said."""
    first = Speech(speech.words, speech.thinks, **speech.options)
    entries = await in_game(speech.engine(), first, folder)
    trace = exported("w", "w0", {}, ["ann"], entries, engine.fingerprint.get("tokenizer"))
    replay = _Replay(trace, engine, ReusePolicy(leakage="audit"), logits=False, stride=1)
    with speech.said_on(engine):
        await replay.play()
    return replay._entries


@pytest.fixture(params=[in_game, in_society, in_replay])
def say(request: pytest.FixtureRequest, play: Play, tmp_path: Path) -> Say:
    """Has Ann say something in one of these ways. Asserts that nothing is left in the engine."""
    way: Way = request.param

    def run(speech: Speech) -> list[TranscriptEntry]:
        engine = speech.engine()
        entries: list[TranscriptEntry] = play(lambda: way(engine, speech, tmp_path))
        assert nothing_left(engine)
        return entries

    return run


def test_a_thought_is_a_message_of_its_own(say: Say) -> None:
    entries = say(Speech("<think> hm </think> hello there", thinks=True))
    said = {entry.message.id: (entry.message.text, entry.ended) for entry in entries}
    assert said == {"ann.0.thought": ("hm", None), "ann.0": ("hello there", None)}


def test_a_stop_token_ends_a_message(say: Say) -> None:
    stop = FakeEngine().framing.content.encode("one two three")[-1]
    [entry] = say(Speech("one two three four", stop_token_ids=(stop,)))
    start, end = entry.message.sampled or (0, 0)
    assert entry.message.tokens[start:end] == tuple(FakeEngine().framing.content.encode("one two three"))
    assert entry.message.text == "one two"
    assert entry.message.stopped in ("stop_token", "forced"), "forced: in a replay"


@pytest.mark.parametrize(("step", "words"), [(2, "one"), (4, "one two three")])
def test_a_message_that_is_cancelled_keeps_what_was_said_of_it(step: int, words: str, say: Say) -> None:
    [entry] = say(Speech("one two three four five six seven", cancelled=step))
    assert (entry.message.text, entry.ended, entry.encoding) == (words, "cancelled", None)


def test_each_token_is_recorded_as_it_is_said(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    record, tokens = TurnRecorder.piece, defaultdict[TurnRecorder, list[int | None]](list)

    def heard(recorder: TurnRecorder, said: DecodePiece) -> None:
        tokens[recorder].append(said.token)
        record(recorder, said)

    monkeypatch.setattr(TurnRecorder, "piece", heard)
    speech = Speech("one two three")
    [entry] = say(speech)
    start, end = entry.message.sampled or (0, 0)
    assert [*tokens.values()] == [list(entry.message.tokens[start:end])] * speech.engines


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("way", [in_game, in_society])
def test_others_have_nothing_encoded_while_a_model_may_think(
    way: Way, thinks: bool, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[Call] = []
    submit = FakeEngine.submit

    def spy(engine: FakeEngine, calls: Sequence[Call], *more: Any) -> tuple[int, ...]:
        submitted.extend(calls)
        return submit(engine, calls, *more)

    monkeypatch.setattr(FakeEngine, "submit", spy)
    words = "<think> hm </think> hello there" if thinks else "hello there"
    speech = Speech(words, thinks=thinks, brief="I know more")
    play(lambda: way(speech.engine(), speech, tmp_path))
    shadows = [call for call in submitted if isinstance(call, Shadow)]
    assert len(shadows) == (0 if thinks else 1)


def test_what_is_thought_is_in_no_encoding_that_others_read(play: Play) -> None:
    """Not even if the author has read nothing that others may not read, so that one encoding could serve both."""
    engine, events = Interrupted("<think> hm </think> hello there", thinks=True), list[Event]()

    async def script(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob")
        await ann.say()
        await bob.say()

    async def work() -> None:
        async with Choreographer(engine, leakage="enforce") as choreographer:
            config = RunConfig(max_tokens=12, leakage="enforce")
            await Game(choreographer, 0, 0, config, sink=events.append).play(Scripted(script))

    play(work)
    made = {record.id: record for entry in heard(events) for record in entry.made}
    spoken = next(record for record in made.values() if record.message == "bob.0.thought")
    read = [made[piece.id] for piece in spoken.receipt.context]
    assert [(record.message, record.recipe, record.cone) for record in read] == [("ann.0", "audience", {"ann.0"})]
    assert all(record.caller is None for record in read)
    assert {record.recipe for record in made.values() if record.message.endswith(".thought")} == {"author"}


def test_nothing_else_makes_a_decode_turn() -> None:
    """Guards the other tests: no other module may make requests that listen to the pieces of a message."""
    package = Path(agentcho.__file__).parent
    hears = re.compile(r"\bon_(piece|dropped|thought)=")
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if hears.search(path.read_text())}
    assert found == {"games/play/decode_turn.py"}
