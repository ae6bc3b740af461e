"""The functions that programs call: play agents or a scenario, load a record, compare, sweep.

`compare` and `sweep` belong to the lab, which is imported on their first use. Every error raised here on purpose is an
`AgentchoError`. Independent of the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from agentcho.agent import Agent
from agentcho.config import Computing, RunConfig, checked
from agentcho.display import Kind
from agentcho.display.people.seated import seated
from agentcho.display.playing import play_shown
from agentcho.errors import ArgumentError, ConfigError, asking
from agentcho.events import Sink
from agentcho.games.play.game_models import Engines
from agentcho.games.play.people import People
from agentcho.games.play.script import Script
from agentcho.games.results.messages import LiveMessages
from agentcho.games.results.played import Played, from_record, in_memory
from agentcho.games.runs import library
from agentcho.games.runs.discovery import from_anywhere
from agentcho.games.runs.hosting import aplay
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.resume import how_to_continue
from agentcho.games.runs.runtime import RunResult, play
from agentcho.integrations.opentelemetry.traced import Spans, Traced, traced
from agentcho.protocol.call import EnginePort
from agentcho.protocol.value_checks import type_name
from agentcho.records.record import SavedRun, find
from agentcho.scenario import Scenario, json_options

if TYPE_CHECKING:
    from agentcho.lab.compare.api import compare
    from agentcho.lab.sweep.api import sweep

__all__ = ["arun", "compare", "load", "run", "sweep"]

LAB = {"compare": "agentcho.lab.compare.api", "sweep": "agentcho.lab.sweep.api"}
"""The modules of the lab's functions."""
DISPLAYS = ("auto", *get_args(Kind))


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
    """Play agents together, each by its own `run`, or play one scenario. Blocks until all games are over.

    Args:
        *agents: Agents, or one scenario: an instance, its name, or a path to its file. Each game plays shallow copies
            of the agents: lists and other objects that they hold are shared by all games.
        engine: An engine to play on instead of loading the run's model, or the name of what computes it: "agentcho" or
            "vllm".
        others: Engines or endpoints beside it, by the names that agents give as their `model`.
        display: "auto", "rich" or "plain" shows the transcript on standard output; "auto" is rich on a terminal and
            plain elsewhere. None prints nothing, unless people play at this terminal.
        out: A folder of runs to record in. None keeps the messages in memory.
        at_once: Maximum number of games side by side. None means as many as the store has room for.
        given: Options of a scenario that is given by name or path.
        lockstep: Whether agents play in lockstep, one message each per round: see `Game.lockstep`. Otherwise an agent
            reads what others have said as soon as it is out, so the order of messages reveals how long private ones
            took. For agents only, because a scenario decides how its agents play.
        telemetry: "spans" for OpenTelemetry spans without message text, "content" for spans with it. None for no spans.
        people: Agents that people play: names, for people at this terminal, or a `Person` by name. While people play,
            nothing but what they may see is shown before the end.
        **options: Options of `RunConfig`, such as model, mode, seed, games, temperature, max_tokens or limits.

    Returns:
        What was played. Of several games an error ends only its own; `Played.errors` has it.

    Raises:
        ConfigError: An option does not exist, has a wrong value, or contradicts another one. Nothing was played.
        ArgumentError: An argument has the wrong type. Nothing was played.
        AgentchoError: The run is impossible, and nothing was played; or the error that ended the only game.
        KeyboardInterrupt: The run was interrupted. Its notes say where the record is, and how to continue.

    Example::

        played = agentcho.run("debate", model="smollm2", games=4, seed=1)
        print(played.table())
    """
    request = _request(agents, given or {}, options, lockstep, engine=engine, others=others, out=out, at_once=at_once)
    shown = _shown(display, here=bool(people) and not isinstance(people, Mapping))
    there = people if isinstance(people, Mapping) else _here(people, request.config, shown)
    _check_choice("telemetry", telemetry, get_args(Spans))
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
    """Play as `run` does, in the running event loop (asyncio or trio) and without a display.

    Runs on one `engine` in the same event loop share its steps. Cancelling one ends that run alone; what was said until
    then is on record.

    Args:
        *agents: Agents, or one scenario: an instance, its name, or a path to its file.
        engine: An engine to play on instead of loading the run's model, or the name of what computes it: "agentcho" or
            "vllm".
        others: Engines or endpoints beside it, by the names that agents give as their `model`.
        out: A folder of runs to record in. None keeps the messages in memory.
        at_once: Maximum number of games side by side. None means as many as the store has room for.
        given: Options of a scenario that is given by name or path.
        lockstep: Whether agents play in lockstep: see `run`.
        telemetry: "spans" for OpenTelemetry spans without message text, "content" for spans with it. None for no spans.
        people: A `Person` for each agent that a person plays, by the agent's name.
        **options: Options of `RunConfig`.

    Returns:
        What was played.

    Raises:
        EngineBusy: The engine is in use in another thread, directly, or beside other models than `others`.
        AgentchoError: As for `run`.

    Example::

        first, second = await asyncio.gather(
            agentcho.arun("debate", engine=engine, seed=1),
            agentcho.arun("debate", engine=engine, seed=2),
        )
    """
    how: dict[str, Any] = {"engine": engine, "others": others, "out": out, "at_once": at_once, "people": people}
    _check_choice("telemetry", telemetry, get_args(Spans))
    request, kept = _request(agents, given or {}, options, lockstep, **how), LiveMessages()
    with traced(telemetry, request.scenario.name, request.config) as spans:
        found = await aplay(replace(request, sink=spans.sink(kept if request.out is None else None)))
        spans.audited(found.record)
    return _played(request, found, kept)


def load(run: str | Path = "last", out: str | Path = "runs") -> Played:
    """Load a recorded run. Its messages are read when they are first used.

    Args:
        run: A path, the id of a run in `out`, the beginning of an id if only one run has it, or "last" for the newest.
        out: The folder of runs.

    Returns:
        The run, as `run` returned it.

    Raises:
        RecordNotFound: There is no such run.
        RecordBroken: A file of the run is damaged. The error names the line.
        RecordError: A newer version of agentcho wrote the run.

    Example::

        played = agentcho.load("last")
        for message in played.messages(readable_by="ann"):
            print(message.author, message.text)
    """
    return from_record(find(str(run), Path(out)))


def _shown(display: Kind | Literal["auto"] | None, here: bool) -> Kind | None:
    """Return the display; None picks one that suits the terminal. A person at this terminal always gets one."""
    _check_choice("display", display, DISPLAYS)
    if display == "auto" or (display is None and here):
        return None
    return display or "none"


def _check_choice(option: str, given: object, choices: Sequence[str]) -> None:
    """Raise `ConfigError` if the value of an option is neither None nor one of these."""
    if given is not None and given not in choices:
        like = asking(given, choices) if isinstance(given, str) else ""
        what = f"Input should be {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
        raise ConfigError(f"{what}{like}", option)


def _here(names: Iterable[str] | str, config: RunConfig, display: Kind | None) -> People:
    """Return the people who play at this terminal."""
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
    """Return the request that these arguments make; `how` are fields of the request."""
    if isinstance(how.get("engine"), str):
        options, how["engine"] = {**options, "engine": how["engine"]}, None
    named = from_anywhere(agents[0]) if len(agents) == 1 and isinstance(agents[0], str) else None
    if given and named is None:
        raise ArgumentError(
            "`given` needs a scenario given by its name; pass options to this scenario's constructor instead"
        )
    return RunRequest(
        _scenario(agents, given, lockstep),
        checked(RunConfig, signature(run).parameters.keys() - {"agents", "options"}, **options),
        others=others or {},
        out=None if out is None else Path(out),
        named=named,
        **how,
    )


def _scenario(agents: tuple[Agent | Scenario | str, ...], given: Mapping[str, Any], lockstep: bool) -> Scenario:
    if lockstep and any(isinstance(agent, Scenario | str) for agent in agents):
        raise ArgumentError("lockstep applies to agents only; in a scenario, await game.lockstep(...) in its `play`")
    match agents:
        case (str() as name,):
            return library.chosen(name, given)
        case (Scenario() as scenario,):
            return scenario
        case _ if agents and all(isinstance(agent, Agent) for agent in agents):
            return Script(tuple(agent for agent in agents if isinstance(agent, Agent)), lockstep)
        case _:
            raise ArgumentError(_not_playable(agents))


def _not_playable(given: tuple[object, ...]) -> str:
    """Return what is wrong with arguments that are neither agents nor one scenario, and what to pass instead."""
    if not given:
        return "there is nothing to play; pass agents, or one scenario: an instance, its name, or a path to its file"
    for each in given:
        if isinstance(each, type) and issubclass(each, Agent | Scenario):
            instance = f"{each.__name__}({repr('ann') if issubclass(each, Agent) else ''})"
            return f"{each.__name__} is a class; pass an instance, such as {instance}"
        if isinstance(each, Iterable) and not isinstance(each, str):
            return f"agents come in a {type(each).__name__}; pass them one by one, as in agentcho.run(*agents)"
        if not isinstance(each, Agent | Scenario | str):
            return f"{type_name(each)} cannot be played; pass agents, or one scenario"
    return "agentcho.run takes either agents or one scenario; give one or the other"


def _listen(request: RunRequest, spans: Traced, kept: LiveMessages, shown: Sink) -> Sink | None:
    """Return a sink that feeds the screen, the spans, and the messages of a run without a record."""
    kept.sink = shown
    return spans.sink(kept if request.out is None else shown)


def _interrupt(record: Path | None) -> KeyboardInterrupt:
    """Return the error of an interrupted run. Its notes say where the record is, and how to continue."""
    interrupt = KeyboardInterrupt()
    lines = ["nothing was recorded, because no folder `out` was given"]
    if record is not None:
        lines = [f"everything said so far is recorded: {record}", *how_to_continue(SavedRun(record))]
    for line in lines:
        interrupt.add_note(line)
    return interrupt


def _played(request: RunRequest, found: RunResult, kept: LiveMessages) -> Played:
    """Return what was played. Raises `KeyboardInterrupt` for an interrupted run, and the error of a single game."""
    if found.interrupted:
        raise _interrupt(found.record)
    if request.config.games == 1 and found.error is not None:
        raise found.error
    errors = {number: failed.error for number, failed in found.errors.items()}
    if found.record is not None:
        return from_record(SavedRun(found.record), found.steps, errors)
    scenario, engine = request.scenario, request.engine
    return in_memory(
        scenario.name,
        json_options(scenario),
        request.config,
        found.games,
        kept,
        found.steps,
        errors,
        None if engine is None else engine.fingerprint.get("model"),
    )
