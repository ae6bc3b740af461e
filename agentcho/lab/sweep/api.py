"""`agentcho.sweep`: plays every combination of options, models and seeds, from Python.

Checks all cells before anything is played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcho.config import ModelConfig, RunConfig
from agentcho.errors import ArgumentError, ConfigError, shown
from agentcho.games.runs.resume import Changed
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.players import Cluster, cluster_of
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.scenario import Scenario

if TYPE_CHECKING:
    from agentcho.lab.sweep.result import SweepResult
    from agentcho.lab.sweep.run import SweepOptions


def sweep(
    scenario: Scenario | type[Scenario] | str,
    grid: Mapping[str, Sequence[Any]] | None = None,
    models: Sequence[str | ModelConfig | Mapping[str, Any]] | None = None,
    games: int | None = None,
    *,
    engine: EnginePort | None = None,
    given: Mapping[str, Any] | None = None,
    filter: str | Sequence[str] = (),
    out: str | Path | None = None,
    json: str | Path | None = None,
    at_once: int | None = None,
    retries: int = 0,
    changed: Changed = "refuse",
    tell: ProgressCallback = no_progress,
    **options: Any,
) -> SweepResult:
    """Play a scenario under every combination of options, models and seeds, and compare the cells game by game.

    This is what `agentcho sweep` does, without its output.

    Args:
        scenario: A name, a file, a class, an instance with the options of all cells, or the .yaml file of a sweep.
            Arguments of this call override the .yaml file.
        grid: Values of each option of the scenario or of the run, by the option's name.
        models: Names, .toml files or `ModelConfig` objects. None means the run's model.
        games: Number of games in each cell. None means 50, or what the .yaml file says.
        engine: An engine to play all cells on instead of loading models.
        given: Options of the scenario in all cells.
        filter: Conditions that select cells, each `KEY=A,B` or `KEY!=VALUE`.
        out: A folder that keeps all games. Games that it already has are not played again. None keeps nothing, unless
            the .yaml file names a folder.
        json: A file for the result. None for none.
        at_once: Maximum number of games side by side. None means as many as the store has room for.
        retries: How often a game is played again after a transient error.
        changed: "accept" goes on although the code of the scenario has changed since `out` was written; "refuse" does
            not.
        tell: Called with (what, done, total) as the work proceeds.
        **options: Options of `RunConfig` in all cells, and `on`, `workers` and `gpus_per_worker` for a cluster.

    Returns:
        The result. `table("figures")` and `table("games")` are for data frames, `plot()` draws it, and `cells` say what
        failed. A failed cell stops no other.

    Raises:
        ConfigError: An option is wrong. Nothing was played.
        ArgumentError: An argument has the wrong type. Nothing was played.
        ScenarioNotFound: There is no such scenario.
        TaskError: Its tasks cannot be read, or there are too few.
        ModelNotFound: There is no such model.
        CannotWrite: `out` or `json` cannot be written.
        ResumeMismatch: `out` holds games of other options.
        KeyboardInterrupt: The work was interrupted. `out` has the games that are over.

    Example::

        found = agentcho.sweep("debate", {"rounds": [1, 2], "seed": [1, 2, 3]}, models=["understudy", "smollm2"])
        print(found.table("figures"))
    """
    on = cluster_of({name: options.pop(name) for name in ClusterConfig.model_fields if name in options})
    kind, own = _scenario(scenario, given)
    asked = _asked(
        kind=kind,
        grid=grid,
        models=models,
        own=own,
        filters=filter,
        options=options if games is None else {**options, "games": games},
    )
    kept, table = asked.out if out is None else Path(out), None if json is None else Path(json)
    at_once, retries = at_once or asked.at_once, retries or asked.retries
    how: dict[str, Any] = {"at_once": at_once, "retries": retries, "on": _workers(on, kind), "engine": engine}
    return _found(asked._replace(out=kept, json=table, changed=changed, **how), tell)


def _found(asked: SweepOptions, tell: ProgressCallback) -> SweepResult:
    from agentcho.lab.collect import Interrupted
    from agentcho.lab.sweep.folder import Folder
    from agentcho.lab.sweep.plan import planned
    from agentcho.lab.sweep.run import prepared, swept

    found = prepared(asked)
    plan = planned(found, None if asked.out is None else Folder(asked.out), asked.changed)
    try:
        return swept(asked, found, plan, tell)[0]
    except Interrupted:
        raise KeyboardInterrupt from None


def _scenario(
    scenario: Scenario | type[Scenario] | str, given: Mapping[str, Any] | None
) -> tuple[str | type[Scenario], Mapping[str, Any]]:
    """Return a scenario in the form that cells are made from: its name, file or class, and the options of all cells."""
    if isinstance(scenario, str) or (isinstance(scenario, type) and issubclass(scenario, Scenario)):
        return scenario, given or {}
    if not isinstance(scenario, Scenario):
        raise ArgumentError(
            f"{shown(scenario)} is not a scenario; give a Scenario, its class, its name, or a file", "scenario"
        )
    if given:
        raise ConfigError(
            f"given cannot be combined with a Scenario object; pass these options to {type(scenario).__name__}"
        )
    return type(scenario), scenario.options.model_dump(by_alias=True, exclude_unset=True)


def _asked(
    kind: str | type[Scenario],
    grid: Mapping[str, Sequence[Any]] | None,
    models: Sequence[Any] | None,
    own: Mapping[str, Any],
    filters: str | Sequence[str],
    options: Mapping[str, Any],
) -> SweepOptions:
    """Return the requested sweep, without where and how it is played. Raises `ConfigError`."""
    from agentcho.lab.sweep.parse import SweepArguments, asked

    if unknown := sorted(options.keys() - RunConfig.model_fields.keys()):
        raise ConfigError(f"a run has no option {unknown[0]!r}; give options of the scenario as given={{...}}")
    filters = [filters] if isinstance(filters, str) else list(filters)
    if grid is not None and not isinstance(grid, Mapping):
        raise ArgumentError(f"give the values of each option, such as {{'seed': [1, 2]}}, not {shown(grid)}", "grid")
    if models is not None and not isinstance(models, Sequence):
        raise ArgumentError(f"give a list of models, not {shown(models)}", "models")
    for name, values in (grid or {}).items():
        if isinstance(values, Mapping) or not isinstance(values, Sequence):
            raise ConfigError(f"grid {name}: give a list of values, not {values!r}")
    return asked(SweepArguments(kind, grid or {}, models, own, filters, options))


def _workers(on: Cluster | None, kind: str | type[Scenario]) -> Cluster | None:
    if on is not None and not isinstance(kind, str):
        raise ConfigError("workers load a scenario by its name or path; give that instead of a Scenario")
    return on
