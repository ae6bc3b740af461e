"""Collects trained adapters into one result file: `python -m tools.trainings FOLDER ... --json FILE`.

For each adapter it has what it was trained on and with, and the loss on held-out traces, and any score that chose the
checkpoint, after each epoch.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from agentcho.engine.lora_adapter import AdapterTraining, find_adapter
from agentcho.records.frozen import Frozen
from agentcho.records.trained_adapters import unfinished


class Checkpoint(Frozen):
    """The loss on held-out traces, in nats per token, after a number of steps and epochs, and the mean score of the
    games that chose the checkpoint, if games did."""

    step: int
    epoch: float
    loss: float
    score: float | None = None


class TrainedAdapter(Frozen):
    """One adapter: the name of its folder, its training, and its checkpoints. Step 0 is the model without it."""

    name: str
    training: AdapterTraining
    checkpoints: tuple[Checkpoint, ...]


class Trainings(Frozen):
    """The result file. `machine` is the one on which the first adapter was trained."""

    format: Literal["agentcho-trainings/1"] = "agentcho-trainings/1"
    machine: dict[str, str]
    adapters: tuple[TrainedAdapter, ...] = Field(min_length=1)


def trained_adapter(folder: Path) -> TrainedAdapter:
    """The adapter in the folder of a finished training.

    Raises:
        AdapterError: There is no adapter in it.
        ValueError: `agentcho tune` did not train the adapter, it has not finished, or its log has no held-out losses.
    """
    if (told := unfinished(folder)) is not None:
        raise ValueError(told)
    training = find_adapter(folder).trained
    if training is None:
        raise ValueError(f"{folder}: not trained by `agentcho tune`: it has no agentcho.json")
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    compared = {line["step"]: line for line in lines if "dev" in line}
    if not compared:
        raise ValueError(f"{folder / 'log.jsonl'}: no line has a held-out loss (dev)")
    steps = -(-training.train // training.recipe["batch"])
    found = (
        Checkpoint(step=step, epoch=round(step / steps, 2), loss=line["dev"], score=line.get("score"))
        for step, line in sorted(compared.items())
    )
    return TrainedAdapter(name=folder.name, training=training, checkpoints=tuple(found))


def main(words: Sequence[str] | None = None) -> None:
    """Read the folders, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tools.trainings", description=(__doc__ or "").split(":")[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders that `agentcho tune` has written")
    parser.add_argument("--json", required=True, type=Path, help="write the result to this file")
    asked = parser.parse_args(words)
    adapters = tuple(map(trained_adapter, asked.folders))
    found = Trainings(machine=adapters[0].training.machine, adapters=adapters)
    asked.json.write_text(json.dumps(found.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
