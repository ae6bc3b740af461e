"""What a program calls: play a scenario, or agents of its own, load a record, compare and sweep.

`compare` and `sweep` are the lab's, which is imported when one of them is asked for. Every error raised here on purpose
is an `AgentchoError`. Does not know: the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from agentcho.agent import Agent
from agentcho.config import Computing, RunConfig, checked
from agentcho.display import Kind
from agentcho.display.people.seated import seated
from agentcho.display.playing import play_shown
from agentcho.errors import ArgumentError
from agentcho.events import Sink
from agentcho.games.play.game_models import Engines
from agentcho.games.play.people import People
from agentcho.games.play.script import Script
from agentcho.games.results.messages import LiveMessages
from agentcho.games.results.played import Played, from_record, in_memory
from agentcho.games.runs.discovery import from_anywhere
from agentcho.games.runs.hosting import aplay
from agentcho.games.runs.library import chosen
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.integrations.opentelemetry.traced import Spans, Traced, traced
from agentcho.protocol.call import EnginePort
from agentcho.records.record import SavedRun, find
from agentcho.scenario import Scenario

if TYPE_CHECKING:
    from agentcho.lab.compare.api import compare
    from agentcho.lab.sweep.api import sweep

__all__ = ["arun", "compare", "load", "run", "sweep"]

LAB = {"compare": "agentcho.lab.compare.api", "sweep": "agentcho.lab.sweep.api"}
"""The modules of the functions that are the lab's."""


def __getattr__(name: str) -> Any:
    if name in LAB:
        return getattr(import_module(LAB[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run(
    *agents: Agent | Scenario | str,
    engine: EnginePort | Computing | None = None,
    others: Engines | None = None,
    display: Kind | Literal["auto"] | None = None,
    out: str | Path | None = None,
    at_once: int | None = None,
    given: Mapping[str, Any] | None = None,
    lockstep: bool = False,
    telemetry: Spans | None = None,
    people: People | Iterable[str] | str = (),
    **options: Any,
) -> Played:
    """Play agents together, each by its `run`, or one scenario (it, its name, or a file), and return what was played.

    `options` are those of `RunConfig` (model, models, mode, seed, games, temperature, max_tokens, limits, …).
    `engine` is used instead of loading a model, or is the name of what computes one ("vllm"); `others` are models
    beside it, by the names that agents are given. `out` is a folder of runs to record in; without one, messages are
    kept in memory. `at_once`: at most so many games side by side. `given`: options of a scenario that is named.
    `display` shows the transcript on standard output: "auto" (rich on a terminal, plain elsewhere), "rich" or "plain";
    without one nothing is printed. `telemetry`: spans of OpenTelemetry, without words ("spans") or with them
    ("content"). Raises the error that ended the game, if one did; of several games none ends the others, and what ended
    them is in `errors`. `ConfigError` for an option that does not fit (an `ArgumentError` where an argument has the
    wrong type), and what else an `AgentchoError` says of what is asked for, before anything is played.
    `KeyboardInterrupt` after Ctrl-C.

    Agents read what others have said as soon as it is out, so that the order of messages tells how long private ones
    were. With `lockstep` each says one message, and goes on when each has said one: see `Game.lockstep`. A scenario
    says for itself how its agents play.

    `people` play the agents of these names: here, at the terminal, or wherever a `Person` asks each, where they are
    given by name; nothing else is shown before the end.
    """
    request = _request(agents, given or {}, options, lockstep, engine=engine, others=others, out=out, at_once=at_once)
    shown = _shown(display, here=bool(people) and not isinstance(people, Mapping))
    there = people if isinstance(people, Mapping) else _here(people, request.config, shown)
    request, kept = replace(request, people=there), LiveMessages()
    with traced(telemetry, request.scenario.name, request.config) as spans:
        found = play_shown(request, play, shown, listen=partial(_listen, request, spans, kept))
        spans.audited(found.record)
    return _played(request, found, kept)


async def arun(
    *agents: Agent | Scenario | str,
    engine: EnginePort | Computing | None = None,
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
    how: dict[str, Any] = {"engine": engine, "others": others, "out": out, "at_once": at_once, "people": people}
    request, kept = _request(agents, given or {}, options, lockstep, **how), LiveMessages()
    with traced(telemetry, request.scenario.name, request.config) as spans:
        found = await aplay(replace(request, sink=spans.sink(kept if request.out is None else None)))
        spans.audited(found.record)
    return _played(request, found, kept)


def load(run: str | Path = "last", out: str | Path = "runs") -> Played:
    """A recorded run: of that path, of that id in the folder `out`, of the only id that begins so, or the newest
    ("last"). Its messages are read when they are asked for.

    `RecordNotFound`: there is no such run. `RecordBroken`: a file of it is damaged, and the error names its line.
    `RecordError`: a newer version has written it.
    """
    return from_record(find(str(run), Path(out)))


def _shown(display: Kind | Literal["auto"] | None, here: bool) -> Kind | None:
    """The display; None: what fits the terminal. Who plays at this terminal has to see something."""
    if display == "auto" or (display is None and here):
        return None
    return display or "none"


def _here(names: Iterable[str] | str, config: RunConfig, display: Kind | None) -> People:
    """Those who play at this terminal."""
    names = (names,) if isinstance(names, str) else tuple(names)
    return seated(config.model_copy(update={"people": names}), display) if names else {}


def _request(
    agents: tuple[Agent | Scenario | str, ...],
    given: Mapping[str, Any],
    options: Mapping[str, Any],
    lockstep: bool,
    *,
    others: Engines | None,
    out: str | Path | None,
    **how: Any,
) -> RunRequest:
    """What these arguments ask for; `how` are fields of a request as they are."""
    if isinstance(how.get("engine"), str):
        options, how["engine"] = {**options, "engine": how["engine"]}, None
    named = from_anywhere(agents[0]) if len(agents) == 1 and isinstance(agents[0], str) else None
    if given and named is None:
        raise ArgumentError(
            "`given` needs a scenario given by its name; pass options to this scenario's constructor instead"
        )
    return RunRequest(
        _scenario(agents, given, lockstep),
        checked(RunConfig, **options),
        others=others or {},
        out=None if out is None else Path(out),
        named=named,
        **how,
    )


def _scenario(agents: tuple[Agent | Scenario | str, ...], given: Mapping[str, Any], lockstep: bool) -> Scenario:
    if lockstep and not all(isinstance(agent, Agent) for agent in agents):
        raise ArgumentError("lockstep applies to agents only; in a scenario, await game.lockstep(...) in its `play`")
    match agents:
        case (str() as name,):
            return chosen(name, given)
        case (Scenario() as scenario,):
            return scenario
        case _ if agents and all(isinstance(agent, Agent) for agent in agents):
            return Script(tuple(agent for agent in agents if isinstance(agent, Agent)), lockstep)
        case _:
            raise ArgumentError("agentcho.run takes either agents or one scenario; give one or the other")


def _listen(request: RunRequest, spans: Traced, kept: LiveMessages, shown: Sink) -> Sink | None:
    """A sink for the screen's, for spans, and, of a run that has no record, for what keeps its messages."""
    kept.sink = shown
    return spans.sink(kept if request.out is None else shown)


def _played(request: RunRequest, found: RunResult, kept: LiveMessages) -> Played:
    """What was played. `KeyboardInterrupt`: it was interrupted. The error of a single game comes out."""
    if found.interrupted:
        raise KeyboardInterrupt
    if request.config.games == 1 and found.error is not None:
        raise found.error
    errors = {number: failed.error for number, failed in found.errors.items()}
    if found.record is not None:
        return from_record(SavedRun(found.record), found.steps, errors)
    scenario, engine = request.scenario, request.engine
    return in_memory(
        scenario.name,
        scenario.options.model_dump(mode="json"),
        request.config,
        found.games,
        kept,
        found.steps,
        errors,
        None if engine is None else engine.fingerprint.get("model"),
    )
