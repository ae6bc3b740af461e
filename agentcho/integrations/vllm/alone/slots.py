"""The worker's half: keeps keys and values of messages in host memory, and copies them from vLLM's blocks and back.

If something cannot be read completely, the request that reads it ends. Independent of messages and who may read them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentcho.errors import UnsupportedModel
from agentcho.integrations.vllm.alone.work import Blocks, Load, Measurement, Report, Save, Work
from agentcho.integrations.vllm.gate import ServedLayer, check_turning, served_layers

LOG = logging.getLogger("vllm.agentcho")


class OneRotary:
    """A network whose attention layers all rotate keys with one module. For `served_layers`, which looks modules up by
    name: a connector is not given vLLM's own network."""

    def __init__(self, layers: Sequence[str], rotary: Any) -> None:
        self._layers, self._rotary = layers, rotary

    def named_modules(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """The module, once for each layer."""
        for name in self._layers:
            yield f"{name.rpartition('.')[0]}.rotary_emb", self._rotary


def layers_of(
    model: str, rotary: Sequence[Any], layers: dict[str, Any], caches: dict[str, Tensor], block: int
) -> list[ServedLayer]:
    """The attention layers of a model that vLLM has loaded. `UnsupportedModel`: see `served_layers`.

    Args:
        model: The name of the model in errors.
        rotary: The rotary embedding modules in vLLM's worker.
        layers: vLLM's attention layers by name.
        caches: Their caches by name.
        block: The number of slots in a block.
    """
    if len(rotary) != 1:
        raise UnsupportedModel(
            model,
            f"it has {len(rotary)} kinds of rotary positions, and the connector cannot tell which layers use which",
            "Use `agentcho serve`",
        )
    return served_layers(model, OneRotary([*caches], rotary[0]), layers=layers, caches=caches, block=block)


class Kept(NamedTuple):
    """An encoding: keys and values `[layers, heads, tokens, dim]`, with the keys rotated for position `start`."""

    keys: Tensor
    values: Tensor
    start: int


class SlotStore:
    """The encodings kept by one worker. `layers`: the layers of its model.

    Attributes:
        done: The requests whose blocks are no longer needed.
        refused: The requests that have to end with an error, and `failed` their blocks.
        report: The report for the scheduler's half.
    """

    def __init__(self, model: str, layers: Sequence[ServedLayer]) -> None:
        self._model, self._layers = model, layers
        self._kept = dict[str, Kept]()
        self.done = set[str]()
        self.refused = set[str]()
        self.failed = set[int]()
        self.report = Report()

    def __len__(self) -> int:
        return len(self._kept)

    def do(self, work: Work) -> None:
        """Do the work of a step. Does not raise, because that would end all requests."""
        for name in work.drops:
            self._kept.pop(name, None)
        for save in work.saves:
            self._save(save)
            self.done.add(save.request)
        for measurement in work.measurements:
            self.report.turning = self._measure(measurement)
            self.done.add(measurement.request)
        for load in work.loads:
            self._load(load)
        for refusal in work.refusals:
            self.refused.add(refusal.request)
            self.failed.update(refusal.blocks)

    def _save(self, save: Save) -> None:
        for made in save.made:
            try:
                stop = made.start + made.length
                read = [layer.layout.read(save.blocks, made.start, stop) for layer in self._layers]
                keys, values = (torch.stack([pair[which].transpose(0, 1) for pair in read]) for which in range(2))
                self._kept[made.name] = Kept(keys.cpu(), values.cpu(), made.start)
            except Exception:
                LOG.exception("an encoding could not be kept")
                self.report.lost.append(made.name)

    def _load(self, load: Load) -> None:
        wanted = [(read, self._kept.get(read.name)) for read in load.reads]
        missing = [read.name for read, kept in wanted if kept is None or kept.keys.shape[2] < read.length]
        try:
            if missing:
                raise LookupError(f"{len(missing)} of {len(wanted)} encodings are not there")
            for read, kept in wanted:
                assert kept is not None
                self._write(load.blocks, kept, read.start, read.length)
        except Exception:
            LOG.exception("request %s ends, for its slots could not be filled", load.request)
            self.report.lost += missing
            self.failed.update(load.blocks)

    def _write(self, blocks: Blocks, kept: Kept, start: int, length: int) -> None:
        for layer, keys, values in zip(self._layers, kept.keys, kept.values, strict=True):
            layout = layer.layout
            device = layout.cache.device
            turned = layer.rotation.turn(keys[:, :length].to(device), start - kept.start)
            told = values[:, :length].to(device)
            layout.write(
                turned.transpose(0, 1).contiguous(),
                told.transpose(0, 1).contiguous(),
                _slots(blocks, start, start + length, layout.block).to(device),
            )

    def _measure(self, measurement: Measurement) -> tuple[bool, str]:
        """Whether the keys of one repeated token differ only by their rotation. See `VllmRunner.turn_errors`."""
        try:
            errors, count = list[float](), measurement.tokens
            for layer in self._layers:
                keys = layer.layout.read(measurement.blocks, 0, count)[0].transpose(0, 1).float()
                turned = torch.cat([layer.rotation.turn(keys[:, :1], place) for place in range(count)], 1)
                errors.append(float((turned - keys).abs().max() / keys.abs().max().clamp(min=1e-6)))
            check_turning(self._model, errors, self._layers[0].layout.cache.dtype)
        except UnsupportedModel as error:
            return False, str(error)
        except Exception as error:
            LOG.exception("keys could not be measured")
            return False, str(error)
        return True, ""


def _slots(blocks: Blocks, start: int, stop: int, size: int) -> Tensor:
    """The slot numbers in vLLM's cache of these slots of a request."""
    at = torch.arange(start, stop)
    return torch.tensor(blocks)[at // size] * size + at % size
