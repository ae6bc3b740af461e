"""Plays a scenario, or a few lines of a test, on the fake engine, and returns all that was said. Does not know: runs
and their records, engines with a model."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import anyio
from pydantic import BaseModel

from agentcho.agent import Agent
from agentcho.config import RunConfig
from agentcho.engine.fake.fake import FakeEngine
from agentcho.engine.fake.fake_text import babble, comply
from agentcho.engine.fake.scripted_decodes import Reply
from agentcho.engine.fake.toy_tokenizer import CALLS
from agentcho.errors import RequestError
from agentcho.events import Encoded, Ended, Event, GameOver
from agentcho.games.play.game import Game
from agentcho.games.play.game_models import LoadedEngines, open_models
from agentcho.games.play.people import People
from agentcho.games.play.playable import Playable
from agentcho.games.runs import library
from agentcho.games.runs.run import draw_tasks
from agentcho.games.runs.runtime import tasks_of
from agentcho.integrations.endpoints.text_engine import TextEngine
from agentcho.message import Message
from agentcho.protocol.call import Decode
from agentcho.protocol.text_calls import TextPort
from agentcho.records.transcript import TranscriptEntry, carry
from agentcho.scenario import Scenario
from agentcho.tasks import Task

CALL = re.compile(r'\s*\{\s*"name"\s*:')
Script = Callable[[Game], Awaitable[Any]]


class Rehearsal(NamedTuple):
    """The result of a play. `over`: its outcome. `entries`: the finished messages, in order. `events`: all events.
    `engine`: counts what was used."""

    over: GameOver
    entries: tuple[TranscriptEntry, ...]
    events: tuple[Event, ...]
    engine: FakeEngine

    def said(self, agent: str | None = None) -> tuple[Message, ...]:
        """The messages that agents (or one of them) generated to their end, in order."""
        messages = (entry.message for entry in self.entries if entry.ended is None)
        return tuple(m for m in messages if m.kind == "decode" and agent in (None, m.author))


class Lines:
    """Scripted lines of agents, one for each decode, in order. Agents without lines say what the fake engine makes up.
    For a choice or an answer the line is the whole text: the choice with its opening and closing, or JSON. For the call
    of a tool it is JSON with "name" and "arguments". Nobody has to be given a line for whether to call: that is seen by
    how the line begins, and the line is then said with the same coins."""

    def __init__(self, lines: Mapping[str, Iterable[str]]) -> None:
        self._lines = {agent: deque(texts) for agent, texts in lines.items()}
        self._last: dict[str, tuple[int, str]] = {}

    def __call__(self, call: Decode, prompt: str) -> str:
        """The next line of the agent that calls. `RequestError`: it has none left."""
        lines = self._lines.get(call.name or "")
        if lines is None:
            free = call.sampling.choices is None and call.sampling.json_schema is None
            return babble(call, prompt) if free else comply(call, prompt)
        agent, seed = call.name or "", call.sampling.seed
        begun, line = self._last.get(agent, (None, ""))
        if seed != begun:
            if not lines:
                raise RequestError(f"{call.name} has no lines left; give its script one line per decode", "sampling")
            line = lines.popleft()
            self._last[agent] = seed, line
        return CALLS.head if CALL.match(line) and not call.is_whole else line


def play(
    scenario: Playable | Script,
    replies: Mapping[str, Iterable[str]] | Reply | None = None,
    *,
    config: RunConfig | None = None,
    engine: FakeEngine | None = None,
    find_agent: Callable[[str], type[Agent]] | None = None,
    backend: str = "asyncio",
    endpoint: TextPort | None = None,
    others: Mapping[str, FakeEngine | TextPort] = MappingProxyType({}),
    people: People = MappingProxyType({}),
) -> Rehearsal:
    """Play one game without a model: a scenario, or `async def script(game)`, whose result is then the outcome.

    `replies`: the lines of each agent, or a function as `FakeEngine`'s `reply`. `backend`: an event loop of anyio
    ("asyncio", "trio"). `endpoint`: every agent speaks through this model behind an API, such as a `FakeEndpoint`,
    and not on the engine. `others`: models beside that, by the names that agents are given. `people` play the agents of
    these names. `find_agent` turns a name into an agent class (None: as `agentcho ls` has them). Of a scenario with
    tasks it is the first game of a run. Blocks until the game is over; raises what the game raises. The engine keeps
    nothing.
    """
    config, events = config or RunConfig(model="fake"), list[Event]()
    if isinstance(replies, Mapping):
        lines = Lines(replies)
        engine = engine or FakeEngine(lines, answer=lines)
    engine = engine or FakeEngine(replies if callable(replies) else None)
    whole = _Scripted(scenario) if callable(scenario) else scenario
    first = _first(whole, config) if isinstance(whole, Scenario) else ()

    async def work() -> GameOver:
        own = engine if endpoint is None else TextEngine(endpoint)
        beside = {name: each if isinstance(each, FakeEngine) else TextEngine(each) for name, each in others.items()}
        async with open_models(LoadedEngines(own, beside), config) as models:
            game = Game(
                models.own,
                0,
                config.seed,
                config,
                sink=events.append,
                find_agent=find_agent or library.agent,
                tasks=first,
                reuse=config.policy,
                others=models.others,
                people=people,
            )
            return await game.play(whole)

    over = anyio.run(work, backend=backend)
    entries = [event.entry for event in events if isinstance(event, Ended)]
    for alone in (event.encodings for event in events if isinstance(event, Encoded)):
        carry(entries, alone)
    return Rehearsal(over, tuple(heard(events)), tuple(events), engine)


def _first(scenario: Scenario, config: RunConfig) -> tuple[Task, ...]:
    """The tasks of the first game of a run."""
    tasks = tasks_of(scenario, config)
    return () if tasks is None else draw_tasks(tasks, 0, scenario.draws())


def heard(events: Iterable[Event]) -> list[TranscriptEntry]:
    """The messages that ended, each with the encodings that its line in a transcript has."""
    entries: list[TranscriptEntry] = []
    for event in events:
        if isinstance(event, Ended):
            entries.append(event.entry)
        elif isinstance(event, Encoded):
            carry(entries, event.encodings)
    return entries


class _Value(BaseModel):
    """The result of a script, as the outcome of a game."""

    value: Any


class _Scripted:
    """A function as a scenario."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def play(self, game: Game) -> _Value:
        return _Value(value=await self._script(game))

    def score(self, outcome: Any) -> dict[str, float]:
        return {}
