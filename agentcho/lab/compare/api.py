"""`agentcho.compare`: the same games in several ways, from Python. Does not know: how they are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcho.config import RunConfig, checked
from agentcho.errors import ArgumentError, ConfigError, shown
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.players import cluster_of
from agentcho.lab.compare.columns import DEFAULT_MODES
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.scenario import Scenario

if TYPE_CHECKING:
    from agentcho.lab.compare.compare import Effort
    from agentcho.lab.compare.comparison import Comparison
    from agentcho.lab.compare.judge import JudgePort


def compare(
    scenario: Scenario | str,
    modes: str | Sequence[str] = DEFAULT_MODES,
    games: int = 200,
    *,
    engine: EnginePort | None = None,
    given: Mapping[str, Any] | None = None,
    reuse: str | Sequence[str] | None = None,
    repair: str | Sequence[str] | None = None,
    adapter: str | Path | None = None,
    judge: str | JudgePort | None = None,
    out: str | Path | None = None,
    json: str | Path | None = None,
    plot: str | Path | None = None,
    at_once: int = 50,
    fidelity_games: int = 24,
    timed_games: int = 4,
    tell: ProgressCallback = no_progress,
    **options: Any,
) -> Comparison:
    """Play a scenario in several ways, game by game the same tasks and seeds, and compare, as `agentcho compare` does.

    `scenario` is one, its name, or a file; `given` are options of one that is named. `modes`, `reuse`, `repair`,
    `adapter` and `judge` (a model's name, or an engine) are as on the command line. `options` are those of `RunConfig`,
    with `on`, `workers` and `gpus_per_worker` for a cluster. `engine` is used instead of loading a model. `out` keeps
    all games, with compare.csv, .json and .png, and what is there is not played again; `json` is a file for the result,
    `plot` one for a picture of fidelity against cost; `tell` hears how far it is. `metrics`, `fidelity`, `costs` and
    `preferences` of the result have what was found, `table()` a row a figure, `front` the columns on the Pareto front.

    `ConfigError` (an `ArgumentError` where an argument has the wrong type), `ScenarioNotFound`, `TaskError`,
    `CannotWrite`, `ResumeMismatch`: what is asked for cannot be, and nothing was played. `GamesFailed`: errors ended
    games; `out` keeps the others. `ExtraMissing` without `agentcho[lab]`. `KeyboardInterrupt` after Ctrl-C.
    """
    from agentcho.lab.collect import Interrupted
    from agentcho.lab.compare.run import CompareOptions, compared

    on = cluster_of({name: options.pop(name) for name in ClusterConfig.model_fields if name in options})
    effort = _effort(fidelity_games, timed_games)
    asked = CompareOptions(
        scenario=_scenario(scenario),
        modes=_joined("modes", modes) or "",
        repair=_joined("repair", repair),
        adapter=None if adapter is None else str(adapter),
        given=_given(scenario, given),
        config=checked(RunConfig, **options, games=games),
        effort=effort,
        out=_path(out),
        json=_path(json),
        judge=judge,
        at_once=at_once,
        on=on,
        engine=engine,
        reuse=_joined("reuse", reuse),
        plot=_path(plot),
    )
    try:
        return compared(asked, tell)[0]
    except Interrupted:
        raise KeyboardInterrupt from None


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _scenario(scenario: Scenario | str) -> Scenario | str:
    if not isinstance(scenario, Scenario | str):
        raise ArgumentError(
            f"{shown(scenario)} is not a scenario; give a Scenario, its name, or a .py file", "scenario"
        )
    return scenario


def _joined(option: str, names: str | Sequence[str] | None) -> str | None:
    if names is None or isinstance(names, str):
        return names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"give a list of names, or one string with commas between them, not {shown(names)}", option)
    return ",".join(names)


def _given(scenario: Scenario | str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """`ConfigError`: options for a scenario that has its own already."""
    if given and isinstance(scenario, Scenario):
        raise ConfigError(
            f"given cannot be combined with a Scenario object; pass these options to {type(scenario).__name__}"
        )
    return given or {}


def _effort(fidelity: int, timed: int) -> Effort:
    """`ConfigError`: a number of games below 0."""
    from agentcho.lab.compare.compare import Effort

    for name, value in (("fidelity_games", fidelity), ("timed_games", timed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{name} is {value!r}; give a whole number of 0 or more")
    return Effort(fidelity, timed)
