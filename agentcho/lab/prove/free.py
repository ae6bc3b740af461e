"""Plays games again without a forced schedule: does a reader observe anything else if others' secrets are longer?

Every text except the reader's own is forced, in the deterministic profile; who speaks when is not. The plays of one
pair differ only in the lengths of the owner's private messages. Independent of logits.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentcho.config import RunConfig
from agentcho.events import Ended, Event
from agentcho.games.play.game import Game
from agentcho.games.runs.request import GameSelection, RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.prove.proof import FreePlay, Skipped
from agentcho.message import Message, Metadata, told_as
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, counted, no_progress
from agentcho.records.transcript import TranscriptEntry, has_earlier_ids
from agentcho.scenario import Scenario

Words = dict[str, tuple[int, ...]]
"""Ids after the header, by message."""
LENGTHLESS = "none of its private messages can have another length"
EARLIER = "an earlier version recorded the game, with other ids for its calls of tools or its answers"
FAILED = "the game did not finish with messages of other lengths"


class Freed(NamedTuple):
    """The results of plays with a free schedule: what was compared, and what could not be."""

    plays: tuple[FreePlay, ...]
    skipped: tuple[Skipped, ...]


def free(
    scenario: Scenario,
    config: RunConfig,
    engine: EnginePort,
    games: Mapping[int, Sequence[TranscriptEntry]],
    of: str | None = None,
    tell: ProgressCallback = no_progress,
) -> Freed:
    """Play recorded games of a scenario again, for each owner (or only `of`) and each reader from whom it kept what it
    said: with the owner's private messages as long as they were, half as long, and twice as long. `config` is that of
    the recorded run; nothing else uses `engine` meanwhile."""
    config = config.model_copy(
        update={
            "mode": "choreographed",
            "leakage": "enforce",
            "deterministic": True,
            "repair": None,
            "speculate": False,
            "prefill_budget": None,
            "part": None,
        }
    )
    work, told = _FreePlays(scenario, config, engine), counted(tell, "games", len(games))
    for done, (game, entries) in enumerate(games.items(), 1):
        work.one(game, [entry for entry in entries if entry.ended is None], of)
        told(done)
    return Freed(tuple(work.plays), tuple(work.skipped))


class _FreePlays:
    """The state of the plays."""

    def __init__(self, scenario: Scenario, config: RunConfig, engine: EnginePort) -> None:
        self._scenario, self._config, self._engine = scenario, config, engine
        self.plays: list[FreePlay] = []
        self.skipped: list[Skipped] = []

    def one(self, game: int, entries: Sequence[TranscriptEntry], of: str | None) -> None:
        """Run one game: each owner against everyone else who spoke."""
        agents = sorted({e.message.author for e in entries if e.message.author and e.message.kind == "decode"})
        earlier = has_earlier_ids(entries)
        for reader in agents:
            said = {told_as(entry.message.id): _sampled(entry) for entry in entries if _forced(entry, reader)}
            before: list[object] | None = None
            for owner in (agent for agent in agents if agent != reader and of in (None, agent)):
                hidden = [e for e in entries if e.message.author == owner and told_as(e.message.id) in said]
                secret = [entry for entry in hidden if not entry.message.audience.includes(reader)]
                if not secret:
                    continue
                if earlier:
                    self.skipped.append(Skipped(workflow=f"game {game}", owner=owner, reader=reader, why=EARLIER))
                    continue
                if before is None:
                    before = self._seen(game, reader, said)
                self._compare(game, owner, reader, said, secret, before)

    def _compare(
        self,
        game: int,
        owner: str,
        reader: str,
        said: Words,
        secret: Sequence[TranscriptEntry],
        before: list[object] | None,
    ) -> None:
        ways = [words for longer in (False, True) if (words := self._other(secret, longer))]
        seen = [self._seen(game, reader, said | words) for words in ways]
        if not ways or before is None or None in seen:
            why = FAILED if ways else LENGTHLESS
            self.skipped.append(Skipped(workflow=f"game {game}", owner=owner, reader=reader, why=why))
            return
        swapped = tuple(sorted({id for words in ways for id in words}))
        changed = sum(each != before for each in seen)
        self.plays.append(
            FreePlay(game=game, owner=owner, reader=reader, swapped=swapped, plays=len(seen), changed=changed)
        )

    def _other(self, secret: Sequence[TranscriptEntry], longer: bool) -> Words:
        """The private messages at other lengths: half or twice their ids; for a choice, the shortest or longest
        choice."""
        found: Words = {}
        for entry in secret:
            ids = _sampled(entry)
            if entry.act.choices:
                encode = self._engine.framing.content.encode
                others = sorted((tuple(encode(text)) for text in entry.act.choices), key=len, reverse=longer)
                other = others[0]
            else:
                other = ids * 2 if longer else ids[: max(1, len(ids) // 2)]
            if len(other) != len(ids):
                found[told_as(entry.message.id)] = other
        return found

    def _seen(self, game: int, reader: str, words: Words) -> list[object] | None:
        """What a reader could observe of a play; None: it did not finish."""
        events, out = list[Event](), list[Metadata]()
        selection = GameSelection((game,), lambda number: words)
        over = play(
            RunRequest(
                _watched(self._scenario, out),
                self._config,
                engine=self._engine,
                sink=events.append,
                selection=selection,
            )
        )
        if over.error is not None:
            return None
        messages = {event.entry.message.id: event.entry.message for event in events if isinstance(event, Ended)}
        return observation(reader, out, messages)


def observation(reader: str, out: Sequence[Metadata], messages: Mapping[str, Message]) -> list[object]:
    """What a reader could observe: for each message that it may read, in the order in which they came out, its author,
    its tokens, and, for the reader's own, which of the others it was said over."""
    read = [data for data in out if data.audience.includes(reader)]
    places = {data.id: place for place, data in enumerate(read)}
    return [
        (
            data.author,
            data.kind,
            data.role,
            messages[data.id].tokens,
            _over(data, places) if data.author == reader else (),
        )
        for data in read
    ]


def _over(data: Metadata, places: Mapping[str, int]) -> tuple[int | None, ...]:
    return tuple(places.get(parent) for parent in data.parents)


def _forced(entry: TranscriptEntry, reader: str) -> bool:
    """Whether the text of a message is forced: it was sampled, and not by the reader. A message with a thought is left
    out."""
    if entry.message.words.thought is not None:
        return False
    return entry.message.kind == "decode" and entry.message.author != reader and bool(_sampled(entry))


def _sampled(entry: TranscriptEntry) -> tuple[int, ...]:
    """The sampled ids, without the closing of the message."""
    message = entry.message
    start, stop = message.sampled or (0, 0)
    return message.tokens[start : min(stop, message.content[1])]


def _watched(scenario: Scenario, out: list[Metadata]) -> Scenario:
    """The scenario, wrapped so that `out` has all messages in the order in which they came out once a game is over."""
    cls: Any = type(scenario)

    async def watch(self: Any, game: Game) -> Any:
        try:
            return await cls.play(self, game)
        finally:
            out.extend(game.said)

    watched = copy.copy(scenario)
    watched.__class__ = type(cls.__name__, (cls,), {"play": watch, "__module__": cls.__module__})
    return watched
