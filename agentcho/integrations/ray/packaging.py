"""Packs the user's files that workers need: the scenario's file, and the folders that hold agents and scenarios."""

from __future__ import annotations

import shutil
from pathlib import Path

from agentcho.config import ModelConfig, RunConfig
from agentcho.games.runs.discovery import path_of

FOLDERS = ("scenarios", "agents")
"""Folders in the working folder where the user's own scenarios and agents are found by name."""


def pack(scenario: str, folder: Path) -> str:
    """Copy the files that a scenario, given by name or path, needs into an empty folder. Returns its name there, under
    which its lines have the same names as here."""
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
    """The path of a file as records show it: relative to the working folder, or else its folder and name."""
    whole = file.resolve()
    try:
        return whole.relative_to(Path.cwd())
    except ValueError:
        return Path(*whole.parts[-2:])


def unpacked(config: RunConfig) -> RunConfig:
    """Return the options with absolute paths for the folders of models and adapters, because workers have a different
    working folder. What is not a folder here is kept: it may be a folder there, or an id of the hub. The cache folder
    (`keep_cache`) is one on each machine, at the same path."""
    models = {name: model.model_copy(update=_whole(model)) for name, model in config.models.items()}
    kept = None if config.keep_cache is None else str(Path(config.keep_cache).absolute())
    return config.model_copy(update={**_whole(config), "models": models, "keep_cache": kept})


def _whole(model: RunConfig | ModelConfig) -> dict[str, str]:
    given = {"model": model.model, "adapter": model.adapter}
    return {name: str(Path(each).resolve()) for name, each in given.items() if each is not None and Path(each).is_dir()}


def all_models(config: RunConfig) -> list[RunConfig | ModelConfig]:
    """The configurations of all models of a run, its own first."""
    return [config, *config.models.values()]
