"""The folder of a training: the best adapter in peft's format, its training data, a log, and the last checkpoint.

    DIR/adapter_model.safetensors, adapter_config.json, agentcho.json   the best so far
    DIR/epoch-1, epoch-2, …                                             that of each epoch, if they are kept
    DIR/log.jsonl, loss.png                                             one line per step, and their plot
    DIR/going/request.json, state.pt                                    until it is done

All files are replaced atomically.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from agentcho.engine.lora_adapter import CONFIG, TRAINED, WEIGHTS, AdapterTraining
from agentcho.errors import ResumeMismatch
from agentcho.lab.collect import check_same
from agentcho.records.files import LineFile, read_lines, replace_whole, write_errors
from agentcho.records.trained_adapters import EPOCH, GOING

PREFIX = "base_model.model."


class Folder:
    """The folder of one training. `ResumeMismatch`: it has another training, or a finished one."""

    def __init__(self, path: Path, request: Mapping[str, Any]) -> None:
        self.path = path
        self._going = path / GOING
        self._gone = path / "gone"
        shutil.rmtree(self._gone, ignore_errors=True)
        self._check(request)
        with write_errors(path):
            self._going.mkdir(parents=True, exist_ok=True)
        replace_whole(self._going / "request.json", json.dumps(request, indent=1) + "\n")

    def _check(self, request: Mapping[str, Any]) -> None:
        file = self._going / "request.json"
        if file.exists():
            earlier = json.loads(file.read_bytes())
            check_same(self.path, "another training", earlier, json.loads(json.dumps(request)))
        elif (self.path / WEIGHTS).exists():
            raise ResumeMismatch(f"{self.path} holds a finished training; give another --out")

    def write_best(self, state: Mapping[str, Tensor], config: Mapping[str, Any], trained: AdapterTraining) -> None:
        """Replace the stored adapter."""
        _write(self.path, state, config)
        _write_trained(self.path, trained)

    def write_epoch(
        self, epoch: int, state: Mapping[str, Tensor], config: Mapping[str, Any], trained: AdapterTraining
    ) -> None:
        """Write the adapter of an epoch, counted from 1, into a folder of its own."""
        folder = self.path / f"{EPOCH}{epoch}"
        folder.mkdir(exist_ok=True)
        _write(folder, state, config)
        _write_trained(folder, trained)

    def write_candidate(self, state: Mapping[str, Tensor], config: Mapping[str, Any]) -> Path:
        """Write an adapter beside the checkpoint, to be measured; returns its folder."""
        folder = self._going / "candidate"
        folder.mkdir(exist_ok=True)
        _write(folder, state, config)
        return folder

    def write_trained(self, trained: AdapterTraining) -> None:
        """Write the facts of the adapter's training."""
        _write_trained(self.path, trained)

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint."""
        whole = io.BytesIO()
        torch.save(dict(state), whole)
        replace_whole(self._going / "state.pt", whole.getvalue())

    def saved(self) -> dict[str, Any] | None:
        """The last checkpoint; None if there is none. Log lines after it are removed."""
        if not (self._going / "state.pt").exists():
            (self.path / "log.jsonl").unlink(missing_ok=True)
            return None
        state: dict[str, Any] = torch.load(self._going / "state.pt", weights_only=True)
        kept = [line for line in self.log() if line["step"] <= state["step"]]
        replace_whole(self.path / "log.jsonl", "".join(json.dumps(line) + "\n" for line in kept))
        return state

    def tell(self, line: Mapping[str, Any]) -> None:
        """Append a line to the log."""
        with LineFile(self.path / "log.jsonl") as lines:
            lines.append(dict(line))

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        file = self.path / "log.jsonl"
        return [line for _, line in read_lines(file)] if file.exists() else []

    def done(self) -> None:
        """Remove the checkpoint: the training is finished. It stays finished even if this call is killed."""
        self._going.rename(self._gone)
        shutil.rmtree(self._gone)


def _write(folder: Path, state: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Write an adapter in peft's format."""
    tensors = {name if name.startswith(PREFIX) else PREFIX + name: each for name, each in state.items()}
    whole = {name: each.contiguous() for name, each in tensors.items()}
    replace_whole(folder / WEIGHTS, save(whole, metadata={"format": "pt"}))
    replace_whole(folder / CONFIG, json.dumps(dict(config), indent=1, sort_keys=True) + "\n")


def _write_trained(folder: Path, trained: AdapterTraining) -> None:
    """Write the facts of an adapter's training into its folder."""
    replace_whole(folder / TRAINED, trained.model_dump_json(indent=1) + "\n")
