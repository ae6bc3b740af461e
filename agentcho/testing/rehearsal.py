"""Plays a scenario, or a few lines of a test, on the fake engine, and returns everything that was said.

Tests of agents run in milliseconds this way. Independent of records of runs and of engines with a model.
"""

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
    """The result of `play`.

    Attributes:
        over: How the game ended, with its outcome.
        entries: The finished messages, in order.
        events: All events.
        engine: The engine, which counts what was used.
    """

    over: GameOver
    entries: tuple[TranscriptEntry, ...]
    events: tuple[Event, ...]
    engine: FakeEngine

    def said(self, agent: str | None = None) -> tuple[Message, ...]:
        """Return the messages that agents generated to their end, in order.

        Args:
            agent: Only messages of this agent. None for all agents.

        Returns:
            The messages.
        """
        messages = (entry.message for entry in self.entries if entry.ended is None)
        return tuple(m for m in messages if m.kind == "decode" and agent in (None, m.author))


class Lines:
    """Scripted lines of agents, one for each decode, in order. Agents without lines say what the fake engine makes up.

    For a choice or an answer the line is the whole text: the choice with its opening and closing, or JSON. For a tool
    call it is JSON with "name" and "arguments". The decision whether to call a tool needs no line: it follows from how
    the next line begins.

    Args:
        lines: The lines of each agent, by name.
    """

    def __init__(self, lines: Mapping[str, Iterable[str]]) -> None:
        self._lines = {agent: deque(texts) for agent, texts in lines.items()}
        self._last: dict[str, tuple[int, str]] = {}

    def __call__(self, call: Decode, prompt: str) -> str:
        """Return the next line of the agent that calls. Raises `RequestError` if it has none left."""
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
    """Play one game without a model. Blocks until it is over. The engine keeps nothing.

    A scenario with tasks gets those of the first game of a run.

    Args:
        scenario: A scenario, or a coroutine function that takes the game. Its result is then the outcome's `value`.
        replies: The lines of each agent by name, or a function as `reply` of `FakeEngine`. None makes up words.
        config: Configuration of the run. None means the defaults on the fake model.
        engine: The engine. None makes one.
        find_agent: Returns the agent class of a name. None finds the agents that `agentcho ls` lists.
        backend: The event loop: "asyncio" or "trio".
        endpoint: A model behind an API, such as a `FakeEndpoint`, that every agent speaks through instead of the
            engine. None for none.
        others: Models beside it, by the names that agents give as their `model`.
        people: A `Person` for each agent that a person plays, by the agent's name.

    Returns:
        What was said.

    Raises:
        RequestError: An agent has no line left.
        Exception: What the game raises.

    Example::

        async def script(game):
            ann = game.cast(agentcho.Agent, "ann")
            return (await ann.say(prompt="Greet.")).text

        assert play(script, {"ann": ["Hello."]}).over.outcome == {"value": "Hello."}
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
    """Return the tasks of the first game of a run."""
    tasks = tasks_of(scenario, config)
    return () if tasks is None else draw_tasks(tasks, 0, scenario.draws())


def heard(events: Iterable[Event]) -> list[TranscriptEntry]:
    """Return the messages that ended, each with the encodings on its transcript line."""
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
