"""Proves that rows of a forward do not change each other's bits: a row has the same keys, values and logits alone, and
at any place beside any others, in forwards of several sizes.

Kernels promise no such thing: how a product is summed may depend on how many rows it has. So it is tried: with a few
rows at all places of a forward, and with rows beside them that are not numbers at all. Where a size fails, it is not
used; where the first fails, none is (batch invariance; Thinking Machines, "Defeating Nondeterminism in LLM Inference").
A trial says something of other rows only where all forwards of a size go through the same kernels in the same shapes.
So a network in which numbers decide what is computed has no size at all, nor has one that chooses experts for tokens,
whatever it computes for those it does not choose: its bits were seen to differ where all trials had agreed. Does not
know: calls, which rows are fed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from agentcho.engine.call_layout import Segment
from agentcho.runner.kv.decode_kv import Slot
from agentcho.runner.slots import Slots

SIZES = (8, 1, 4, 16, 32)
"""Tokens of a forward that are tried. All must give what the first gives."""
PROBES = ((1, 3), (1, 40), (3, 17), (1, 70))
"""The rows that are compared: how many tokens each is fed, and to how many others these attend."""
SHIFTS = (0, 1)
"""With which probe a forward begins: at each place stands one probe, and then another."""
Forward = Callable[[Sequence[Segment], int], tuple[list[Segment], Tensor]]


class _Row(NamedTuple):
    """A probe, or (None) what stands beside it and is no number, in its slot."""

    probe: int | None
    slot: Slot

    @property
    def tokens(self) -> int:
        return 1 if self.probe is None else PROBES[self.probe][0]

    @property
    def segment(self) -> Segment:
        """What it feeds."""
        ids = [1 + nth + (self.probe or 0) for nth in range(self.tokens)]
        return Segment(ids, self.slot.length, slot=self.slot, wanted=range(self.tokens))


class _Found(NamedTuple):
    """What a forward made of a row: its logits, and all its new keys and values."""

    logits: Tensor
    made: list[Tensor]

    def same(self, other: _Found) -> bool:
        """Whether every bit is."""
        pairs = zip((self.logits, *self.made), (other.logits, *other.made), strict=True)
        return all(torch.equal(one, another) for one, another in pairs)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While in use, looks at all operations. `decided`: numbers decided what was computed: how large a result is, how
    rows are divided among products, which experts count, or what Python does next."""

    TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decided = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `TorchDispatchMode`."""
        if func is torch.ops.aten.index.Tensor:  # its shape is that of its indices, unless they say yes or no
            tagged = any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
        else:
            tagged = not self.TAGS.isdisjoint(func.tags)
        self.decided = self.decided or tagged or any(name in func.name() for name in ("grouped_mm", "topk"))
        return func(*args, **(kwargs or {}))


@torch.inference_mode()
def prove_invariant_sizes(forward: Forward, slots: Slots) -> tuple[int, ...]:
    """The sizes, ascending, at which rows do not change each other's bits and have the same bits as at any other of
    these; none where there is no such size. `forward` runs segments filled up to a size."""
    trial = _Trial(forward, slots)
    try:
        with _Watch() as watch:
            alone = [trial.run([trial.row(probe)], SIZES[0])[0] for probe in range(len(PROBES))]
        if watch.decided:
            return ()
        found = list[int]()
        for size in SIZES:
            if all(trial.agrees(rows, size, alone) for rows in trial.mixed(size)):
                found.append(size)
            elif not found:
                break
        return tuple(sorted(found))
    finally:
        trial.close()


class _Trial:
    """Runs rows, each in a slot that is kept for the next forward."""

    def __init__(self, forward: Forward, slots: Slots) -> None:
        self._forward, self._slots = forward, slots
        self._kept = dict[tuple[int | None, int], Slot]()
        self._given = dict[int | None, int]()

    def row(self, probe: int | None) -> _Row:
        """One more row of this kind in the forward that is being put together."""
        nth = self._given[probe] = self._given.get(probe, -1) + 1
        if (probe, nth) not in self._kept:
            depth = 2 if probe is None else PROBES[probe][1]
            self._kept[probe, nth] = _filled(self._slots.open(depth + 8, alone=True), probe, depth)
        return _Row(probe, self._kept[probe, nth])

    def mixed(self, size: int) -> Iterator[list[_Row]]:
        """Rows for forwards of this size: probes at all places, and probes among rows that are no numbers."""
        for first in SHIFTS:
            yield self._fitting(size, ((first + nth) % len(PROBES) for nth in count()))
        for first in (0, 1):
            yield self._fitting(size, (None if (first + nth) % 2 else nth // 2 % len(PROBES) for nth in count()))

    def _fitting(self, size: int, kinds: Iterator[int | None]) -> list[_Row]:
        rows, left = list[_Row](), size
        for kind in kinds:
            tokens = 1 if kind is None else PROBES[kind][0]
            if tokens > left:
                if left == 0:
                    break
                continue
            rows.append(self.row(kind))
            left -= tokens
        return rows

    def agrees(self, rows: list[_Row], size: int, alone: Sequence[_Found]) -> bool:
        """Whether each probe is what it is alone."""
        found = zip(rows, self.run(rows, size), strict=True)
        return all(one.same(alone[row.probe]) for row, one in found if row.probe is not None)

    def run(self, rows: list[_Row], size: int) -> list[_Found]:
        """What one forward makes of these rows."""
        self._given.clear()
        segments = [row.segment for row in rows]
        order, logits = self._forward(segments, size)
        parts = {id(segment): part for segment, part in zip(order, _split(order, logits), strict=True)}
        found = list[_Found]()
        for row, segment in zip(rows, segments, strict=True):
            start = row.slot.length - row.tokens
            made = [each.clone() for pair in row.slot.all(start, row.slot.length) for each in pair]
            found.append(_Found(parts[id(segment)].clone(), made))
            self._slots.retract(row.slot, row.tokens)
        return found

    def close(self) -> None:
        """Give all slots up."""
        for slot in self._kept.values():
            self._slots.close(slot)


def _split(order: Sequence[Segment], logits: Tensor) -> Iterator[Tensor]:
    return iter(logits.split([len(segment.wanted) for segment in order]))  # type: ignore[no-untyped-call]


def _filled(slot: Slot, probe: int | None, depth: int) -> Slot:
    """A slot with so many tokens, which are the same for all copies of a probe."""
    generator = torch.Generator().manual_seed(0 if probe is None else probe + 1)
    for keys, values in slot.all(0, depth):
        for each in (keys, values):
            drawn = torch.randn(each.shape, generator=generator).to(each)
            each.copy_(torch.full_like(drawn, torch.nan) if probe is None else drawn)
    slot.place(0, torch.arange(depth))
    slot.length = depth
    return slot
