"""Resuming a recorded run: whether it is the same run, and which games it lacks.

A record must not mix games of different options or code. Independent of how games are played.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from agentcho.config import FREE, KEYS, KV_DTYPE, ModelConfig, RunConfig
from agentcho.errors import AgentchoError, ResumeMismatch, ScenarioError
from agentcho.games.play import script
from agentcho.games.play.journal import BegunCalls
from agentcho.games.runs.discovery import find, named_in
from agentcho.integrations.textarena.names import is_arena
from agentcho.protocol.call_site import shown_path
from agentcho.records.record import RunInfo, SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import is_masked

Changed = Literal["refuse", "accept"]
"""What to do if the source of the scenario, or of an agent that it casts by name, has changed since."""
LOADED = ("model", "model_type", "weights", "tokenizer", "dtype", "bits", KV_DTYPE, "device", "adapter", "engine")
MODEL = (*LOADED, "chat_template_kwargs", "kind", "server", "vendor")
"""The keys of an engine's fingerprint that determine what it generates."""
THREADS = "threads"
"""The key of the number of threads, which changes bits alone."""
ALL = "all"
"""Stands for all tool calls without a result, in place of their names."""
LISTED = 20
"""The maximum number of tool calls that are listed."""
AGENTS, OWN_SCRIPT = "script", Path(script.__file__)
"""The name, and the file, of the scenario that a program's own agents play."""
GUARD = 'Resuming executes that file, so its own call of agentcho.run belongs under `if __name__ == "__main__":`'
NO_SCENARIO = "was played by agentcho.run with agents and no scenario, and cannot be continued"
DTYPES = frozenset({"float32", "bfloat16", "float16"})


def check_asked(
    run: SavedRun,
    scenario: str,
    options: Mapping[str, Any],
    config: RunConfig,
    tasks: str | None,
    sources: Mapping[str, str],
    changed: Changed = "refuse",
) -> None:
    """Raise `ResumeMismatch`, before a model is loaded, if a run was played in another way than is requested now."""
    found = differences(run.info, scenario, options, config, tasks)
    if changed == "refuse" and run.info.scenario == scenario:
        found += source_differences(run.info.sources, sources)
    if found:
        raise mismatch(run.info.id, found)


def differences(
    info: RunInfo, scenario: str, options: Mapping[str, Any], config: RunConfig, tasks: str | None
) -> list[str]:
    """Return how the requested run differs from the run of `info`, in words. For another scenario, that is all.

    A scenario's own options may be secret, so only their names are given.
    """
    if info.scenario != scenario:
        return [f"the scenario ({info.scenario}, not {scenario})"]
    named = sorted({*options, *info.options})
    found = [f"option {name}" for name in named if not _same(options.get(name), info.options.get(name))]
    then, now = ({**dict(each), "reuse": each.way} for each in (info.config, config))
    found += [
        f"{name} ({then[name]}, not {now[name]})"
        for name in RunConfig.model_fields
        if name not in (*FREE, "in_place") and _keyless(then[name]) != _keyless(now[name])
    ]
    if tasks != info.tasks:
        found.append("the words of its tasks")
    return found


def _same(one: Any, other: Any) -> bool:
    """Whether two recorded options are the same, as far as records tell: a secret may have been left out."""
    return one == other or (None in (one, other) and is_masked((one, other)))


def _keyless(value: Any) -> Any:
    """Return an option without the locations of API keys."""
    if isinstance(value, dict):
        return {name: _keyless(model) for name, model in value.items()}
    return value.model_copy(update=dict.fromkeys(KEYS)) if isinstance(value, ModelConfig) else value


def check_engine(
    run: SavedRun, fingerprint: Mapping[str, str], others: Mapping[str, Mapping[str, str]], bits: bool = True
) -> None:
    """Raise `ResumeMismatch` if a run was played on other models, or on one that was loaded differently.

    `bits` tells whether games are added to the run, so that in the deterministic profile their bits must not differ.
    """
    found = engine_differences(run.info.engine, fingerprint) + others_differences(run.info.engines, others)
    if bits and run.info.config.deterministic:
        found += threads_differences(run.info.engine, fingerprint)
        found += [
            told
            for name in sorted(run.info.engines.keys() & others.keys())
            for told in threads_differences(run.info.engines[name], others[name], f"the model {name}'s")
        ]
    if found:
        raise mismatch(run.info.id, found)


def others_differences(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return how the other models of two runs differ, in words."""
    found = [f"the model {name}" for name in sorted(before.keys() ^ now.keys())]
    for name in sorted(before.keys() & now.keys()):
        found += engine_differences(before[name], now[name], f"the model {name}'s")
    return found


def engine_differences(before: Mapping[str, str], now: Mapping[str, str], whose: str = "the model's") -> list[str]:
    """Return how two engines' fingerprints differ in what determines the model's output, in words."""
    return [
        f"{whose} {name} ({_short(before.get(name))}, not {_short(now.get(name))})"
        for name in MODEL
        if before.get(name) != now.get(name)
    ]


def threads_differences(before: Mapping[str, str], now: Mapping[str, str], whose: str = "the model's") -> list[str]:
    """Return how the numbers of threads of two engines differ, in words.

    Earlier versions did not record the number.
    """
    then, number = before.get(THREADS), now.get(THREADS)
    return [] if None in (then, number) or then == number else [f"{whose} threads ({then}, not {number})"]


def mismatch(run: str, changed: Sequence[str]) -> ResumeMismatch:
    """Return the error for resuming a run that was played in another way."""
    ask = "; --changed accept goes on with the source as it is" if any("source" in each for each in changed) else ""
    return ResumeMismatch(
        f"{run} was played with other values; what differs: {'; '.join(changed)}. Leave those options out, or begin "
        f"a new run without --resume{ask}"
    )


def loading_config(run: SavedRun, config: RunConfig) -> RunConfig:
    """Return the options to load models with. Values that were chosen automatically are those of the record."""
    chosen: dict[str, Any] = {"dtype": _dtype(config.dtype, run.info.engine)}
    if config.deterministic and config.threads is None and (then := run.info.engine.get(THREADS, "")).isdecimal():
        chosen["threads"] = int(then)
    models = {
        name: model.model_copy(update={"dtype": _dtype(model.dtype, run.info.engines.get(name, {}))})
        for name, model in config.models.items()
    }
    return config.model_copy(update={**chosen, "models": models})


def _dtype(asked: str, engine: Mapping[str, str]) -> str:
    """Return the dtype to load a model in: that of the fingerprint if "auto" is asked for."""
    then = engine.get("dtype", "")
    return then if asked == "auto" and then in DTYPES else asked


def unfinished_games(run: SavedRun) -> tuple[int, ...]:
    """Return the games that are not over, or that an error ended."""
    over = {number for number, game in run.finished().items() if not game.failed}
    return tuple(number for number in run.info.config.numbers if number not in over)


def recorded_entries(run: SavedRun) -> dict[int, list[TranscriptEntry]]:
    """Return the recorded messages of the games that a run lacks, without those of attempts that departed."""
    said = run.kept()
    return {number: said.get(number, []) for number in unfinished_games(run)}


def typed_before(run: SavedRun, said: Mapping[int, Sequence[TranscriptEntry]]) -> dict[int, dict[str, str]]:
    """Return what people typed in the games of `said`. In a game of which an attempt departed, only what stands in one
    of these messages counts: the rest may have answered another question."""
    departed = run.departed()
    kept = {game: {entry.message.id for entry in entries} for game, entries in said.items()}
    return {
        game: {id: text for id, text in words.items() if game not in departed or id in kept.get(game, ())}
        for game, words in run.typed().items()
    }


def open_calls(run: SavedRun) -> list[str]:
    """Return the tool calls that have no result, as GAME:CALL, and that nobody has decided to repeat or to skip."""
    return [*_open_calls(run, recorded_entries(run))]


def _open_calls(run: SavedRun, said: Mapping[int, Sequence[TranscriptEntry]]) -> dict[str, tuple[int, str]]:
    return {
        f"{game}:{call}": (game, call)
        for game, calls in run.begun_calls().items()
        if game in said
        for call in sorted(calls - {entry.act.call for entry in said[game] if entry.ended is None})
    }


def scenario_of(run: SavedRun) -> str:
    """Return the scenario of a recorded run as the command line takes it: a name, or a file.

    Raises `ResumeMismatch` if only the program that played it knows it.
    """
    info = run.info
    if not _by_program(info):
        return info.asked or info.scenario
    if _by_agents(info):
        raise ResumeMismatch(f"{info.id} {NO_SCENARIO}; begin a new run")
    raise ResumeMismatch(
        f"{info.id} was played by a Python program, and there is no scenario named {info.scenario!r} here; give the "
        f"file that defines it, as in `{_command(run)}`. {GUARD}"
    )


def how_to_continue(run: SavedRun) -> list[str]:
    """Return lines that tell how to continue a run: what to decide about its tool calls, if any, and the command.

    People who play in it are told how many calls there are, but not whose.
    """
    if _by_program(run.info) and _by_agents(run.info):
        return [f"this run {NO_SCENARIO}"]
    lines = []
    try:
        calls = open_calls(run) if any(run.begun_calls().values()) else []
    except (AgentchoError, OSError):  # resuming says what is wrong with the record
        calls = []
    if calls and run.info.config.people:
        lines = [
            f"tool calls that were started and have no result: {len(calls)}",
            f"add --redo {ALL} to repeat all of them, or --skip {ALL} to repeat none",
        ]
    elif calls:
        listed = ", ".join(calls[:LISTED]) + (f" and {len(calls) - LISTED} more" if len(calls) > LISTED else "")
        lines = [
            f"tool calls that were started and have no result: {listed}",
            f"add --redo CALL for each one to repeat and --skip CALL for each other one; `{ALL}` stands for all calls",
        ]
    lines += [GUARD] if _by_program(run.info) else []
    return [*lines, f"to continue: {_command(run)}"]


def _command(run: SavedRun) -> str:
    """Return the command that resumes a run. It names the folder of runs if that is not the default one."""
    out = folder_option(run.path.parent)
    file = ""
    if _by_program(run.info):
        file = f"{_file(run.info)} "
    return f"agentcho run {file}--resume {run.path.name}{out}"


def folder_option(folder: Path) -> str:
    """Return the option, after a space, that names a folder of runs. Empty for the default one."""
    return "" if folder == Path("runs") else f" --runs-dir {quote(str(folder))}"


def _file(info: RunInfo) -> str:
    """Return the file of a program's scenario, and its class if the file defines others, as a shell takes them."""
    there = Path(next(iter(info.sources), ""))
    try:
        return quote(named_in(there, info.scenario) or str(there)) if there.is_file() else "FILE.py"
    except ScenarioError:  # the file can no longer be read as Python
        return quote(str(there))


def _by_program(info: RunInfo) -> bool:
    """Return whether a program played its own scenario, which its name does not find."""
    if info.asked is not None or is_arena(info.scenario):
        return False
    try:
        found = find("scenarios", info.scenario)
    except ScenarioError:
        return True
    return bool(info.sources) and shown_path(found.path) not in info.sources


def _by_agents(info: RunInfo) -> bool:
    return info.scenario == AGENTS and shown_path(OWN_SCRIPT) in info.sources


def settled_calls(
    run: SavedRun, said: Mapping[int, Sequence[TranscriptEntry]], redo: Collection[str] = (), skip: Collection[str] = ()
) -> dict[int, BegunCalls]:
    """Return the tool calls that were begun in games that the run lacks, with what to do about those without a result.

    `redo` and `skip` name calls as GAME:CALL, or are `ALL`, which means all calls that the other one does not name.
    Raises `ResumeMismatch` if one of them names no such call, or both name the same one.
    """
    open_ = _open_calls(run, said)
    again, not_again = _named(redo, open_), _named(skip, open_)
    if both := again & not_again:
        raise ResumeMismatch(
            f"call {min(both)[0]}:{min(both)[1]} is given to both --redo and --skip; give it to one of them"
        )
    if ALL in redo and ALL in skip:
        raise ResumeMismatch(f"`{ALL}` is given to both --redo and --skip; give it to one of them")
    every = {*open_.values()}
    again |= every - not_again if ALL in redo else set()
    not_again |= every - again if ALL in skip else set()
    found = dict[int, BegunCalls]()
    for game, call in open_.values():
        begun, redone, skipped = found.get(game, BegunCalls())
        more = {call} & {each for number, each in again if number == game}
        less = {call} & {each for number, each in not_again if number == game}
        found[game] = BegunCalls(begun | {call}, redone | more, skipped | less)
    return found


def begun_before(
    runs: Sequence[SavedRun], left: Container[int]
) -> tuple[dict[int, list[TranscriptEntry]], dict[int, BegunCalls]]:
    """Return the messages of games in `left` that have called tools, from several records, and their calls without a
    result.

    Such a game continues where it was, so that no tool is called twice.
    """
    said: dict[int, list[TranscriptEntry]] = {}
    calls: dict[int, BegunCalls] = {}
    for run in runs:
        tools = run.begun_calls(every=True)
        for game, entries in run.kept().items():
            if game in left and game in tools:
                said.setdefault(game, []).extend(entries)
    for run in runs:
        for game, found in settled_calls(run, said).items():
            calls[game] = BegunCalls(found.begun | calls.get(game, BegunCalls()).begun)
    return said, calls


def _named(calls: Iterable[str], open_: Mapping[str, tuple[int, str]]) -> set[tuple[int, str]]:
    given = [call for call in calls if call != ALL]
    if unknown := [call for call in given if call not in open_]:
        remedy = f"give one of {', '.join(open_)}, or `{ALL}`" if open_ else "there is no such call, so leave it out"
        raise ResumeMismatch(f"{unknown[0]!r} is not a tool call that was started and has no result; {remedy}")
    return {open_[call] for call in given}


def source_differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what has changed in the sources of a scenario, in words."""
    return [f"the source ({what})" for what in _sources(before, now)]


def _sources(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    if not before:
        return ["of which nothing is recorded"] if now else []
    new = [f"{name} has changed" for name, digest in now.items() if digest not in before.values()]
    gone = [f"{name} is used no more" for name, digest in before.items() if digest not in now.values()]
    return new or gone


def _short(value: str | None) -> str:
    return "none" if value is None else value[:16]
