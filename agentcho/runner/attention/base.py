"""The interface of an attention backend: one way in which the tokens of a forward attend to what they may see.

A backend is a subclass of `AttentionBackend` in a file of its own, and a line in `registry.BACKENDS`:

- `capabilities` says, once per engine, whether it can be used there, and for which rows.
- `prepare_decode` is called once per forward for the new tokens of running rows of one pool. The `DecodeStep` that it
  returns is called once per layer, with `decode`.
- `prepare_prefill` is called once per forward for each segment that attends by itself: the tokens of a message that is
  encoded, or the first ones of a row. The `PrefillStep` that it returns is called once per layer, with `prefill`.

A backend is given only what a token may see: masks express causality and locality (sliding windows and chunks, by
logical position), never who may read what. The caller has already appended the keys and values of new tokens.
Independent of the set of backends, the store, calls and sampling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from agentcho.engine.call_layout import Segment
from agentcho.runner.kv.decode_kv import Pieces, Reads, Slot, SlotPool
from agentcho.runner.kv.gather import Gather, Gathered, Source
from agentcho.runner.kv.kv_pool import PagePool
from agentcho.runner.kv.rope import Rotation


class Locality(NamedTuple):
    """Which keys a layer can see by logical position.

    "sliding": key > query - size. "chunked": key // size == query // size. Keys of a context may be at later positions
    than the query; these are seen.
    """

    kind: Literal["full", "sliding", "chunked"] = "full"
    size: int = 0

    def visible(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Bool `[..., queries, keys]` for positions `[..., queries]` and `[..., keys]`; None if all are seen."""
        if self.kind == "full":
            return None
        q, k = queries.unsqueeze(-1), keys.unsqueeze(-2)
        return k > q - self.size if self.kind == "sliding" else k // self.size == q // self.size


@dataclass(eq=False)
class CausalMask:
    """The mask of `own` queries that are the last of `keys` keys: each sees every key before it, and itself. Kernels
    that support causality need only these two numbers.

    Attributes:
        own: The number of queries.
        keys: The number of keys, those of the queries included.
        device: The device of the mask.
        seen: The mask as bool `[own, keys]`, once `dense.seen_by` has made it.
        added: The additive masks by number of query heads, once `dense.added_by` has made them.
    """

    own: int
    keys: int
    device: torch.device
    seen: Tensor | None = None
    added: dict[int, Tensor] = field(default_factory=dict)


Mask = Tensor | CausalMask | None
"""What hides keys: a bool tensor, True where a key is seen; causality only; or nothing (None)."""


class Scoring(NamedTuple):
    """How a layer turns queries and keys into weights: scale, `softcap` (gemma2), `sinks` `[heads]` (gpt_oss)."""

    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None


class Weigher(Protocol):
    """Weighs some keys of the rows of a forward differently from a plain softmax: see `runner.reuse.kernels`."""

    def weigh(self, scores: Tensor) -> Tensor:
        """Change scores `[rows, heads, n, length]` float32, minus infinity where nothing is seen, so that the softmax
        over all keys gives the weights."""


def is_plain(locality: Locality, scoring: Scoring) -> bool:
    """Whether every key is seen, and weighed by a plain softmax."""
    return locality.kind == "full" and scoring.softcap is None and scoring.sinks is None


class Setting(NamedTuple):
    """The environment that an engine gives its backends.

    Attributes:
        device: Where token ids and logits are.
        devices: Where the layers are.
        rounded: Whether keys and values are kept in 8 bits.
        plain: Whether every layer weighs all keys by a plain softmax: no window, no soft cap, no sinks.
    """

    device: torch.device
    devices: frozenset[torch.device]
    rounded: bool = False
    plain: bool = False


class Capabilities(NamedTuple):
    """What a backend can do in a setting.

    Attributes:
        missing: Why it is not used there; None if it can be, as far as is known.
        several: Whether one step can take several tokens of a row (speculated tokens).
        tempered: Whether it supports keys that a reuse method weighs (see `Weigher`).
        padded: Whether it wants shapes that rarely change: all rows that a pool has room for, and padded widths
            (`decode_kv.padded`).
        compiled: Whether kernels are compiled in the first step, which is then run when a model is loaded.
    """

    missing: str | None = None
    several: bool = True
    tempered: bool = False
    padded: bool = False
    compiled: bool = False


@dataclass(eq=False)
class DecodeRows:
    """The `n` new tokens of running rows of one pool, in one forward, on one device, in the order of their slots.

    Attributes:
        pool: Keys and values of the rows: see `SlotPool` and, for rows that read in place, `LanePool`.
        slots: The slots that have new tokens.
        rows: `[n]`, for each token the index of its row in the pool.
        positions: `[n]`, for each token its logical position.
        ends: `[n]`, for each token its place in its row: later keys are not seen.
        homes: `[n]`, for each token the first index into the tensors of the pool: see `LanePool.locate`.
        places: `[n]`, for each token its index there.
        nth: `[n]`, for each token the number of tokens of its row before it in this forward; 0 if each row has one.
        most: The largest number of new tokens in a row.
        width: The most tokens that are read of a row's slot.
        stored: The most tokens that are read of a row's stored context.
        count: The number of rows of the pool that take part.
        whole: Whether all of these rows have one token each.
        plain: Whether no key is weighed by a reuse method.
        pages: The store.
        rotations: The key rotation of each layer.
    """

    pool: SlotPool
    slots: Sequence[Slot]
    rows: Tensor
    positions: Tensor
    ends: Tensor
    homes: Tensor
    places: Tensor
    nth: Tensor | int
    most: int
    width: int
    stored: int
    count: int
    whole: bool
    plain: bool
    pages: PagePool
    rotations: Sequence[Rotation]


class Gathering(NamedTuple):
    """How the contexts of a forward are gathered on one device: what other segments of the forward have `gathered` is
    copied from there, and with `lend` new gathers are added to it."""

    device: torch.device
    gathered: Gathered
    lend: bool

    def of(self, pieces: Pieces) -> Gather:
        """A gather of these pieces."""
        return Gather(pieces, self.device, made=self.gathered, lend=self.lend)


class DecodeStep(ABC):
    """What a backend prepared for new tokens of running rows in one forward."""

    @abstractmethod
    def decode(self, layer: int, queries: Tensor, locality: Locality, scoring: Scoring) -> Tensor:
        """Attend in one layer, whose new keys and values are in the pool.

        Args:
            layer: The layer's number.
            queries: `[n, heads, dim]`.
            locality: Which keys the layer sees by position; a token always sees itself.
            scoring: How it weighs them.

        Returns:
            `[n, heads, value_dim]`.
        """


class PrefillStep(ABC):
    """What a backend prepared for a segment that attends by itself in one forward."""

    before: Sequence[Tensor] = ()
    """The logical positions of keys that it puts in front of the keys that it is given."""

    @abstractmethod
    def prefill(
        self,
        source: Source,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Mask,
        scoring: Scoring,
        tempered: Weigher | None,
    ) -> Tensor:
        """Attend in one layer.

        Args:
            source: The tensors of the layer from which contexts are copied.
            queries: `[1, heads, n, dim]`.
            keys: `[kv_heads, length, dim]`: what was gathered for the segment, its own tokens last.
            values: `[kv_heads, length, value_dim]`.
            mask: Bool `[n, before + length]`, True where a key is seen; a `CausalMask` where only causality hides keys
                (`dense.seen_by` makes it a tensor); None if all are seen.
            scoring: How keys are weighed.
            tempered: Weighs the keys of a reuse method; None if there are none.

        Returns:
            `[1, heads, n, value_dim]`.
        """


class AttentionBackend(ABC):
    """One way of attending. It keeps no state of a forward: the steps that it prepares do."""

    name: ClassVar[str]
    """Its name for people."""
    does: ClassVar[str]
    """What it does, in a few words, for `agentcho doctor`."""
    reads: ClassVar[Reads]
    """Where the rows that it serves have their contexts."""

    @abstractmethod
    def capabilities(self, setting: Setting) -> Capabilities:
        """What it can do in a setting, before anything is computed."""

    def refused(self, device: torch.device) -> str | None:
        """Why it is no longer used on a device, though it could be: a kernel failed, or gave other values. None if it
        is in use."""
        return None

    @abstractmethod
    def prepare_decode(self, rows: DecodeRows) -> DecodeStep:
        """Prepare one forward of new tokens of running rows."""

    @abstractmethod
    def prepare_prefill(self, segment: Segment, gathering: Gathering) -> PrefillStep:
        """Prepare one forward of a segment that attends by itself. The caller gathers the segment's own context."""
