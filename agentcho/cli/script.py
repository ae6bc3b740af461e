"""`agentcho.run` and `agentcho.arun`: a scenario, or agents of a script, each running by itself, on one shared cache.

Does not know: the command line.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import Field

from agentcho.agent import Agent
from agentcho.calls.call import EnginePort
from agentcho.cli.people import seated
from agentcho.cli.play import chosen, play_shown
from agentcho.cli.spans import Spans, Traced, traced
from agentcho.config import RunConfig
from agentcho.display import Kind
from agentcho.events import Sink
from agentcho.games.discovery import from_anywhere
from agentcho.games.game import Game
from agentcho.games.hosting import aplay
from agentcho.games.human import People
from agentcho.games.models import Engines
from agentcho.games.runtime import RunResult, play
from agentcho.records.record import SavedRun
from agentcho.results.played import Played, from_record, in_memory
from agentcho.results.said import Kept
from agentcho.scenario import Scenario


class Script(Scenario):
    """Agents that each do what their `run` says, side by side."""

    name = "script"

    class Options(Scenario.Options):
        """How they are side by side."""

        lockstep: bool = Field(False, description="each says one message, and goes on when each has said one")

    options: Options

    def __init__(self, agents: tuple[Agent, ...], lockstep: bool = False) -> None:
        super().__init__(lockstep=lockstep)
        self._agents = agents

    async def play(self, game: Game) -> Scenario.Outcome:
        cast = [game.cast(copy.copy(agent)) for agent in self._agents]
        await (game.lockstep if self.options.lockstep else game.play_agents)(*cast)
        return self.Outcome()


def run(
    *agents: Agent | Scenario | str,
    engine: EnginePort | None = None,
    others: Engines | None = None,
    display: Kind | None = None,
    out: str | Path | None = None,
    at_once: int | None = None,
    given: Mapping[str, Any] | None = None,
    lockstep: bool = False,
    telemetry: Spans | None = None,
    people: People | Iterable[str] | str = (),
    **options: Any,
) -> Played:
    """Play agents together, each by its `run`, or one scenario (it, its name, or a file); show the transcript and
    return what was played.

    `options` are those of `RunConfig` (model, models, mode, seed, games, temperature, max_tokens, limits, …).
    `engine` is used instead of loading a model, and `others` are models beside it, by the names that agents are
    given. `out` is a folder of runs to record in; without one, messages are kept in memory. `at_once`: at most so many
    games side by side. `given`: options of a scenario that is named. `telemetry`: spans of OpenTelemetry, without words
    ("spans") or with them ("content"). Raises the error that ended the game, if one did;
    of several games none ends the others, and what ended them is in `errors`. `KeyboardInterrupt` after Ctrl-C.

    Agents read what others have said as soon as it is out, so that the order of messages tells how long private ones
    were. With `lockstep` each says one message, and goes on when each has said one: see `Game.lockstep`. A scenario
    says for itself how its agents play.

    `people` play the agents of these names: here, at the terminal, or wherever a `Person` asks each, where they are
    given by name; nothing else is shown before the end.
    """
    asked, kept = _asked(agents=agents, given=given or {}, options=options, out=out, lockstep=lockstep), Kept()
    there = people if isinstance(people, Mapping) else _here(people, asked.config, display)
    how: dict[str, Any] = {"engine": engine, "others": others, "out": asked.out, "at_once": at_once}
    with traced(telemetry, asked.scenario.name, asked.config) as spans:
        playing = partial(_playing, kept, asked, spans, **how)
        found = play_shown(asked.scenario, asked.config, display, playing, people=there)
        spans.audited(found.record)
    return _played(asked, found, kept, engine)


async def arun(
    *agents: Agent | Scenario | str,
    engine: EnginePort | None = None,
    others: Engines | None = None,
    out: str | Path | None = None,
    at_once: int | None = None,
    given: Mapping[str, Any] | None = None,
    lockstep: bool = False,
    telemetry: Spans | None = None,
    people: People = MappingProxyType({}),
    **options: Any,
) -> Played:
    """As `run`, in the event loop that runs (asyncio or trio), and without a display.

    Runs on one `engine`, at the same time and in the same event loop, share its steps. A cancellation ends this run
    alone: what was said until then is on record. `EngineBusy`: somebody has the engine otherwise, as in another thread,
    or beside other models than `others`.
    """
    asked, kept = _asked(agents=agents, given=given or {}, options=options, out=out, lockstep=lockstep), Kept()
    with traced(telemetry, asked.scenario.name, asked.config) as spans:
        found = await aplay(
            asked.scenario,
            asked.config,
            engine=engine,
            others=others,
            sink=spans.sink(kept if asked.out is None else None),
            out=asked.out,
            at_once=at_once,
            asked=asked.named,
            people=people,
        )
        spans.audited(found.record)
    return _played(asked, found, kept, engine)


def _here(names: Iterable[str] | str, config: RunConfig, display: Kind | None) -> People:
    """Those who play at this terminal."""
    names = (names,) if isinstance(names, str) else tuple(names)
    return seated(config.model_copy(update={"people": names}), display) if names else {}


class _Asked(NamedTuple):
    scenario: Scenario
    config: RunConfig
    out: Path | None
    named: str | None


def _asked(
    agents: tuple[Agent | Scenario | str, ...],
    given: Mapping[str, Any],
    options: Mapping[str, Any],
    out: str | Path | None,
    lockstep: bool,
) -> _Asked:
    named = from_anywhere(agents[0]) if len(agents) == 1 and isinstance(agents[0], str) else None
    if given and named is None:
        raise TypeError("given is for a scenario that is named; give the scenario its options itself")
    return _Asked(_scenario(agents, given, lockstep), RunConfig(**options), None if out is None else Path(out), named)


def _playing(kept: Kept, asked: _Asked, spans: Traced, *, sink: Sink, **how: Any) -> RunResult:
    """Play, and keep the messages of a run that has no record."""
    kept.sink = sink
    heard = spans.sink(kept if asked.out is None else sink)
    return play(asked.scenario, asked.config, sink=heard, asked=asked.named, **how)


def _played(asked: _Asked, found: RunResult, kept: Kept, engine: EnginePort | None) -> Played:
    """What was played. `KeyboardInterrupt`: it was interrupted. The error of a single game comes out."""
    if found.interrupted:
        raise KeyboardInterrupt
    if asked.config.games == 1 and found.error is not None:
        raise found.error
    errors = {number: failed.error for number, failed in found.errors.items()}
    if found.record is not None:
        return from_record(SavedRun(found.record), found.steps, errors)
    scenario = asked.scenario
    options = scenario.options.model_dump(mode="json")
    model = None if engine is None else engine.fingerprint.get("model")
    return in_memory(
        scenario=scenario.name,
        options=options,
        config=asked.config,
        games=found.games,
        said=kept,
        steps=found.steps,
        exceptions=errors,
        model=model,
    )


def _scenario(agents: tuple[Agent | Scenario | str, ...], given: Mapping[str, Any], lockstep: bool) -> Scenario:
    if lockstep and not all(isinstance(agent, Agent) for agent in agents):
        raise TypeError("lockstep is for agents; a scenario awaits game.lockstep(...) itself")
    match agents:
        case (str() as name,):
            return chosen(name, given)
        case (Scenario() as scenario,):
            return scenario
        case _ if agents and all(isinstance(agent, Agent) for agent in agents):
            return Script(tuple(agent for agent in agents if isinstance(agent, Agent)), lockstep)
        case _:
            raise TypeError("give agentcho.run agents, or one scenario")
