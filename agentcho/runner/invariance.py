"""Proves that rows of a forward do not change each other's bits: a row has the same keys, values and logits alone and
at any place beside any others, in forwards of several sizes.

Kernels do not promise this: the order of a sum may depend on the number of rows. So it is tested: with a few rows at
all places of a forward, and with rows of NaN beside them. A size that fails is not used; if the first one fails, none
is (batch invariance; Thinking Machines, "Defeating Nondeterminism in LLM Inference"). A trial is valid for other rows
only if all forwards of a size go through the same kernels in the same shapes. So a network in which values decide what
is computed has no valid size; nor has a mixture of experts, even if it computes for unchosen experts too: such a
network gave differing bits where all trials had agreed. Independent of calls and of how rows are grouped.
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
"""The sizes, in tokens, that are tried. All must give what the first gives."""
PROBES = ((1, 3), (1, 40), (3, 17), (1, 70))
"""The rows that are compared: the number of tokens each feeds, and the number of tokens these attend to."""
SHIFTS = (0, 1)
"""The index of the probe with which a forward begins, so that each place has one probe and then another."""
Forward = Callable[[Sequence[Segment], int], tuple[list[Segment], Tensor]]


class _Row(NamedTuple):
    """A probe in its slot, or (`probe` None) a filler row of NaN."""

    probe: int | None
    slot: Slot

    @property
    def tokens(self) -> int:
        return 1 if self.probe is None else PROBES[self.probe][0]

    @property
    def segment(self) -> Segment:
        """The segment that it feeds."""
        ids = [1 + nth + (self.probe or 0) for nth in range(self.tokens)]
        return Segment(ids, self.slot.length, slot=self.slot, wanted=range(self.tokens))


class _Found(NamedTuple):
    """The results of a row in a forward: its logits, and all its new keys and values."""

    logits: Tensor
    made: list[Tensor]

    def same(self, other: _Found) -> bool:
        """Whether all bits are equal."""
        pairs = zip((self.logits, *self.made), (other.logits, *other.made), strict=True)
        return all(torch.equal(one, another) for one, another in pairs)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, watches all operations. `decided`: values decided what was computed, such as the size of a result,
    how rows are divided among products, which experts count, or what Python does next."""

    TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decided = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `TorchDispatchMode`."""
        if func is torch.ops.aten.index.Tensor:  # has the shape of its indices, unless they are masks
            tagged = any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
        else:
            tagged = not self.TAGS.isdisjoint(func.tags)
        self.decided = self.decided or tagged or any(name in func.name() for name in ("grouped_mm", "topk"))
        return func(*args, **(kwargs or {}))


@torch.inference_mode()
def prove_invariant_sizes(forward: Forward, slots: Slots) -> tuple[int, ...]:
    """The sizes, ascending, at which rows do not change each other's bits and have the same bits as at any other of
    these sizes; empty if there is none. `forward` runs segments padded to a size."""
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
        """Add another row of this kind to the forward that is being assembled."""
        nth = self._given[probe] = self._given.get(probe, -1) + 1
        if (probe, nth) not in self._kept:
            depth = 2 if probe is None else PROBES[probe][1]
            self._kept[probe, nth] = _filled(self._slots.open(depth + 8, alone=True), probe, depth)
        return _Row(probe, self._kept[probe, nth])

    def mixed(self, size: int) -> Iterator[list[_Row]]:
        """Rows for forwards of this size: probes at all places, and probes among rows of NaN."""
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
        """Whether each probe has the results that it has alone."""
        found = zip(rows, self.run(rows, size), strict=True)
        return all(one.same(alone[row.probe]) for row, one in found if row.probe is not None)

    def run(self, rows: list[_Row], size: int) -> list[_Found]:
        """The results of these rows in one forward."""
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
    """Fill a slot with `depth` tokens, the same for all copies of a probe."""
    generator = torch.Generator().manual_seed(0 if probe is None else probe + 1)
    for keys, values in slot.all(0, depth):
        for each in (keys, values):
            drawn = torch.randn(each.shape, generator=generator).to(each)
            each.copy_(torch.full_like(drawn, torch.nan) if probe is None else drawn)
    slot.place(0, torch.arange(depth))
    slot.length = depth
    return slot
