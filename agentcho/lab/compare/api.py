"""`agentcho.compare`: plays the same games in several ways, from Python.

Checks all arguments before anything is played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcho.config import RunConfig, checked
from agentcho.errors import ArgumentError, ConfigError, shown
from agentcho.games.runs.resume import Changed
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
    changed: Changed = "refuse",
    tell: ProgressCallback = no_progress,
    **options: Any,
) -> Comparison:
    """Play a scenario in several ways with the same tasks and seeds, and compare the ways game by game.

    This is what `agentcho compare` does. It needs the extra `lab`.

    Args:
        scenario: A scenario: an instance, its name, or a path to its file.
        modes: The columns, as a list or one text with commas, each `mode[:leakage][:way][+repair][@adapter]`. The first
            is the reference.
        games: Number of games in each column.
        engine: An engine to play on instead of loading the model.
        given: Options of a scenario that is given by name or path.
        reuse: Ways of reading reused encodings, such as "in-place". Each adds a copy of each choreographed column. None
            for none.
        repair: Repairs, such as "top-k:0.15", or "all" for every usual repair and way. Each adds a copy of each
            choreographed column. None for none.
        adapter: Folder of a LoRA adapter for the choreographed columns that name none. None for none.
        judge: A model's name, or an engine, that judges the texts of a column against those of the first. None for no
            judge.
        out: A folder that keeps all games, and compare.csv, .json and .png. Games that it already has are not played
            again. None keeps nothing.
        json: A file for the result. None for none.
        plot: A file for a plot of fidelity against cost. None for none.
        at_once: Maximum number of games side by side.
        fidelity_games: Number of games on which fidelity is measured.
        timed_games: Number of games on which time is measured.
        changed: What to do if `out` has games of other code of the scenario: "refuse" them, or "accept" them.
        tell: Called with (what, done, total) as the work proceeds.
        **options: Options of `RunConfig`, and `on`, `workers` and `gpus_per_worker` for a cluster.

    Returns:
        The comparison. `metrics`, `fidelity`, `costs` and `preferences` have the findings, `table()` one row per
        figure, and `front` the columns on the Pareto front.

    Raises:
        ConfigError: An option is wrong. Nothing was played.
        ArgumentError: An argument has the wrong type. Nothing was played.
        ScenarioNotFound: There is no such scenario.
        TaskError: Its tasks cannot be read, or there are too few.
        CannotWrite: `out`, `json` or `plot` cannot be written.
        ResumeMismatch: `out` holds games of other options.
        GamesFailed: Errors ended games. `out` keeps the others.
        ExtraMissing: `agentcho[lab]` is not installed.
        KeyboardInterrupt: The work was interrupted. `out` keeps the games that are over.

    Example::

        found = agentcho.compare("debate", ["baseline", "choreographed:enforce"], games=20)
        print(found.table())
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
        changed=changed,
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
            f"{shown(scenario)} is not a scenario; give an instance of a Scenario, its name, or a .py file", "scenario"
        )
    return scenario


def _joined(option: str, names: str | Sequence[str] | None) -> str | None:
    if names is None or isinstance(names, str):
        return names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"give a list of names, or one string with commas between them, not {shown(names)}", option)
    return ",".join(names)


def _given(scenario: Scenario | str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the options. Raises `ConfigError` for options of a scenario that already has its own."""
    if given and isinstance(scenario, Scenario):
        raise ConfigError(
            f"given cannot be combined with a Scenario object; pass these options to {type(scenario).__name__}"
        )
    return given or {}


def _effort(fidelity: int, timed: int) -> Effort:
    """Return how many games are measured. Raises `ConfigError` for a number of games below 0."""
    from agentcho.lab.compare.compare import Effort

    for name, value in (("fidelity_games", fidelity), ("timed_games", timed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{name} is {value!r}; give a whole number of 0 or more")
    return Effort(fidelity, timed)
