"""The kept games and what is kept of them, line by line: every shipped scenario on the fake engine.

Independent of files, models and processors.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from agentcho import RunConfig, canonical_transcript
from agentcho.events import Event
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, Decode, EncodingId, SchedulingPriority, StepResult
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.transcript import TranscriptEntry
from agentcho.runner.sampling.sampler import uniform
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import heard

ROOT = Path(__file__).parents[2]
Lines = list[str]
Options = Mapping[str, Any]

WAYS: Mapping[str, Options] = {
    "audit": {"leakage": "audit"},
    "enforce": {"leakage": "enforce"},
    "baseline": {"mode": "baseline"},
}
RARE: Mapping[str, Options] = {
    "enforce, deterministic": {"deterministic": True},
    "audit, in place": {"leakage": "audit", "reuse": "in-place"},
    "enforce, repaired": {"repair": "first-k:2"},
}
"""Rarer ways in which one game is also played."""


class Game(NamedTuple):
    """A scenario with its options, the ways in which it is played, and the number of games."""

    options: Options
    ways: Mapping[str, Options] = WAYS
    games: int = 1


GAMES: Mapping[str, Game] = {
    "agentleak": Game({}),
    "branch-solve-merge": Game({}),
    "debate": Game({"rounds": 2}),
    "direct": Game({}),
    "multi-qa": Game({}),
    "parallel-debate": Game({"rounds": 2}),
    "prisoners-dilemma": Game({"predict": True, "strategy": "always-defect"}, {**WAYS, **RARE}, games=2),
    "privacylens": Game({}),
    "tree-of-thoughts": Game({"branches": 2, "voters": 2}),
}


class Listening:
    """Wraps an engine and records its calls, and the keys under which it stores their results."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.calls: dict[EncodingId, Call] = {}
        self.keys: dict[EncodingId, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        ids: tuple[EncodingId, ...] = self._engine.submit(calls, turn)
        self.calls.update(zip(ids, calls, strict=True))
        return ids

    def step(self, deterministic: bool = False) -> StepResult:
        result: StepResult = self._engine.step(deterministic)
        self.keys.update({id: key(self._engine, id) for id in result.finished})
        return result


def key(engine: Any, id: EncodingId) -> bytes:
    """The key under which a finished encoding's keys and values are stored."""
    kept: Any = engine.debug.entry(id)
    found: bytes = kept.key
    return found


class Played(NamedTuple):
    """The entries of a run, and the engine that recorded its calls."""

    entries: Sequence[TranscriptEntry]
    engine: Listening


def played(engine: Any, scenario: str, options: Options, config: RunConfig) -> Played:
    """Play a run to its end. AssertionError: a game failed, or its order depended on which call ended first."""
    events: list[Event] = []
    listening: Any = Listening(engine)
    over = play(RunRequest(library.scenario(scenario)(**options), config, engine=listening, sink=events.append))
    assert not over.errors
    assert not any(game.raced for game in over.games)
    return Played(heard(events), listening)


class Kept(NamedTuple):
    """The lines of one scenario."""

    transcript: Lines
    calls: Lines


@cache
def on_fake(name: str) -> Kept:
    """Play a scenario in all its ways on the fake engine."""
    game, found = GAMES[name], Kept([], [])
    for way, options in game.ways.items():
        config = RunConfig(model="fake", games=game.games, max_tokens=8, **options)
        said = played(FakeEngine(), name, game.options, config)
        found.transcript.extend(told({"way": way}, transcript(said.entries)))
        found.calls.extend(told({"way": way}, calls(said)))
    return found


def told(first: Options, lines: Iterable[Options]) -> Iterator[str]:
    """JSON lines that each begin with the fields of `first`."""
    return (json.dumps({**first, **line}, ensure_ascii=False) for line in lines)


def transcript(entries: Sequence[TranscriptEntry]) -> Iterator[Options]:
    """Messages and encodings in their canonical form."""
    for number, game in canonical_transcript(entries).items():
        for message in game["messages"]:
            act = message["act"] | {"where": function(message["act"]["where"])}
            yield message | {"tokens": short(message["tokens"]), "act": act}
        for encoding in game["encodings"]:
            yield {"game": number, "encoding": encoding.pop("id"), **encoding}


def short(tokens: Sequence[int]) -> str:
    """The number of tokens and a digest of them; the text has them in full."""
    return f"{len(tokens)} {hashlib.blake2b(repr(tokens).encode(), digest_size=8).hexdigest()}"


def function(where: str | None) -> str | None:
    """ "file function" for a "file:line", which stays the same when lines move."""
    if where is None:
        return None
    file, _, line = where.rpartition(":")
    file = "/".join(file.split("/")[-2:])
    around = [node.name for node in named(file) if node.lineno <= int(line) <= (node.end_lineno or 0)]
    return f"{file} {'.'.join(around)}"


Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def named(file: str) -> Sequence[Named]:
    """Classes and functions of a source file, outer ones before inner ones."""
    return [node for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, Named)]


def calls(said: Played) -> list[Options]:
    """For each encoding the call that made it: its sampling, class and key."""
    found = [call(said.engine, entry.message.game, record) for entry in said.entries for record in entry.made]
    return sorted(found, key=lambda line: json.dumps(list(line.values())))


def call(engine: Listening, game: int, record: EncodingRecord) -> Options:
    """The line of one encoding."""
    asked = engine.calls[record.id]
    line = {
        "game": game,
        "message": record.message,
        "recipe": record.recipe,
        "caller": record.caller,
        "call": type(asked).__name__,
        "salt": asked.salt,
        "key": engine.keys[record.id].hex(),
    }
    if not isinstance(asked, Decode):
        return line
    sampling = asked.sampling
    coins = [uniform(sampling.seed, nth) for nth in range(2)]
    return line | {"sampling": sampling.model_dump(mode="json", exclude_defaults=True), "coins": coins}
