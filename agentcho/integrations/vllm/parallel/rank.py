"""The work of one rank for the engine besides vLLM's own: fills and saves its share of the store, and reports what it
wrote.

Must not import vLLM. Knows requests by name only; guards run in the engine's process, where it is decided what may be
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentcho.errors import UnsupportedModel
from agentcho.integrations.vllm.gate import FoundLayer, ServedLayer
from agentcho.integrations.vllm.mover import Load, Mover, Save, Written
from agentcho.integrations.vllm.parallel.shares import Heads, RankStore, SharedTensors, StoreHandle


class Refusal(NamedTuple):
    """Why a rank cannot serve a model, and what to do about it."""

    cause: str
    remedy: str

    @classmethod
    def of(cls, error: UnsupportedModel) -> Refusal:
        """The cause and remedy of this error."""
        return cls(error.cause, error.remedy)


class Told(NamedTuple):
    """What a rank has written for each request of a step, by name, or why it has not."""

    loads: dict[str, Written | str]


class Rank:
    """The state of one rank.

    Attributes:
        caches: vLLM's cache of each layer, by the name of the layer.
        places: The row of logits of each request, by name.
        tokens: What vLLM takes as sampled in this step, by the name of the request.
    """

    def __init__(self) -> None:
        self.caches: dict[str, Tensor] = {}
        self.places: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        self._layers: Sequence[ServedLayer] = ()
        self._mover: Mover | None = None
        self._shared: SharedTensors | None = None
        self._told: dict[str, Written | str] = {}

    def serves(self, layers: Mapping[str, ServedLayer]) -> list[FoundLayer]:
        """Note the layers of this rank, in order, and return their descriptions."""
        self._layers = list(layers.values())
        return [layer.told(name) for name, layer in layers.items()]

    def share(self, handle: StoreHandle, first: int, heads: Heads) -> None:
        """Open the store. The rank has these heads in its layers, the first of which is layer `first` of the model."""
        self._shared = handle.opened()
        layouts = [layer.layout for layer in self._layers]
        store = RankStore(self._shared, first, heads, layouts[0].cache.device)
        self._mover = Mover(layouts, [layer.rotation for layer in self._layers], store)

    @property
    def mover(self) -> Mover:
        """Moves keys and values of its layers."""
        if self._mover is None:
            raise RuntimeError("no store was shared with this rank")
        return self._mover

    def load(self, name: str, load: Load) -> bool:
        """Fill the slots of a request. Returns False if that failed; its report says why. Does not raise, because that
        would end all other requests too."""
        try:
            written = self.mover.load(load)
            if written != [(read.offset, read.length) for read in load.reads]:
                raise RuntimeError("not all that is read was written")
        except Exception as error:
            self._told[name] = f"{type(error).__name__}: {error}"
            return False
        self._told[name] = written
        return True

    def told(self) -> Told:
        """What was written since the last call."""
        told, self._told = Told(self._told), {}
        return told

    def show(self, names: Sequence[str], logits: Tensor) -> None:
        """Put the rows of logits of these requests, in this order, where the engine reads them."""
        assert self._shared is not None
        self._shared.logits[: len(names)] = logits[[self.places[name] for name in names]]

    def save(self, save: Save) -> None:
        """Copy what a request has computed into the store."""
        self.mover.save(save)

    def turn_errors(self, blocks: Sequence[int], count: int) -> list[float]:
        """See `Mover.turn_errors`."""
        return self.mover.turn_errors(blocks, count)

    def probe(self) -> None:
        """See `Mover.probe`."""
        self.mover.probe()

    def force(self, rows: Mapping[int, Any], logits: Tensor) -> Tensor:
        """Make each row of logits allow only the token sent for its request; `rows` maps rows to names."""
        chosen = [(row, self.tokens[name]) for row, name in rows.items() if name in self.tokens and row < len(logits)]
        if chosen:
            places, tokens = (torch.tensor(each, device=logits.device) for each in zip(*chosen, strict=True))
            logits[places] = float("-inf")
            logits[places, tokens] = 0
        return logits


RANKS: dict[str, Rank] = {}
"""This process's rank for each engine, by engine name."""


def rank_of(name: str) -> Rank:
    """The rank of this process for an engine."""
    return RANKS.setdefault(name, Rank())
