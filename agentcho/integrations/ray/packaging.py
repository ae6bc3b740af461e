"""What of a user's own files workers need: the scenario's, and the folders in which agents and scenarios are found.

Does not know: how files travel, what is in them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from agentcho.config import ModelConfig, RunConfig
from agentcho.games.runs.discovery import path_of

FOLDERS = ("scenarios", "agents")
"""Where scenarios and agents of one's own are found by name, in the working folder."""


def pack(scenario: str, folder: Path) -> str:
    """Copy the files that a scenario, by its name or path, needs into an empty folder. Returns its name there, which
    gives its lines the same names as here."""
    for name in FOLDERS:
        if Path(name).is_dir():
            shutil.copytree(name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    file = path_of(scenario)
    if file is None:
        return scenario
    target = folder / _shown(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, target)
    return f"{target.relative_to(folder)}{scenario.removeprefix(str(file))}"


def _shown(file: Path) -> Path:
    """A file as records name it: relative to the working folder, or else its folder and name."""
    whole = file.resolve()
    try:
        return whole.relative_to(Path.cwd())
    except ValueError:
        return Path(*whole.parts[-2:])


def unpacked(config: RunConfig) -> RunConfig:
    """The options with the folders of models and adapters by their whole paths, for workers have another working
    folder. What is no folder here is left as it is: it may be one there, or an id of the hub. The folder of what is
    kept is one of each machine, at the same path."""
    models = {name: model.model_copy(update=_whole(model)) for name, model in config.models.items()}
    kept = None if config.keep_cache is None else str(Path(config.keep_cache).absolute())
    return config.model_copy(update={**_whole(config), "models": models, "keep_cache": kept})


def _whole(model: RunConfig | ModelConfig) -> dict[str, str]:
    given = {"model": model.model, "adapter": model.adapter}
    return {name: str(Path(each).resolve()) for name, each in given.items() if each is not None and Path(each).is_dir()}


def all_models(config: RunConfig) -> list[RunConfig | ModelConfig]:
    """What says which models a run has, its own first."""
    return [config, *config.models.values()]
