"""What one segment of a forward attends to before its own tokens: where each key lies, and by how many positions it is
moved.

This is planned once per forward. Each layer then copies its keys and values to where they are attended to, all
neighbours of one kind at once. What an earlier segment of the forward has gathered at the same position is copied from
there. Independent of calls, masks and attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import ContextPiece, KVEntry
from agentcho.runner.kv.kv_pool import PagePool, Pages
from agentcho.runner.kv.rope import Angles, Rotation, Workspace, few_launches
from agentcho.runner.kv.triton_gather import Layout, Part, Request, fits, gather_by_kernel, serves

AT_ONCE = 1 << 20
"""The number of elements that a CPU rotates at once, so that intermediate results stay in the processor's cache."""
AT_ONCE_ON_GPU = 1 << 26
"""The number of elements that a GPU rotates at once: every operation is one launch, and intermediate results take about
400 MB at most."""


class Source(NamedTuple):
    """The tensors of one layer from which keys and values are copied: those in pages, those of this forward `[heads,
    tokens, dim]`, and those that were `gathered` for other segments, `[heads, length, dim]`. All layers of the forward
    use the same `workspace`."""

    pages: PagePool
    layer: int
    rotation: Rotation
    keys: Tensor
    values: Tensor
    gathered: dict[Gather, tuple[Tensor, Tensor]]
    workspace: Workspace


class _Part(NamedTuple):
    """The first `length` tokens of a piece."""

    piece: ContextPiece
    length: int

    @property
    def name(self) -> _Name:
        """Equal for parts whose rotated keys are equal."""
        return self.piece.entry, self.piece.shift, self.length

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether it is stored, and whether its keys are rotated."""
        return self.stored, self.piece.shift != 0

    @property
    def stored(self) -> bool:
        """Whether it is read from pages; otherwise it is read from the tensors of this forward."""
        maker = self.piece.entry.segment
        return maker is None or maker.base is not None or maker.done > 0  # if a part is stored, all will be by then

    def rows(self, device: torch.device) -> Tensor:
        """The indices of its tokens, in the pages or in this forward."""
        if self.stored:
            pages: Pages = self.piece.entry.block
            return pages.on(device)[: self.length]
        maker = self.piece.entry.segment
        assert maker is not None
        return torch.arange(maker.first, maker.first + self.length, device=device)


class _Copied(NamedTuple):
    """The tokens `span` of a context, which the gather `other` has from token `start` on."""

    span: slice
    other: Gather
    start: int

    def write(self, source: Source, keys: Tensor, values: Tensor) -> None:
        there = slice(self.start, self.start + self.span.stop - self.span.start)
        other_keys, other_values = source.gathered[self.other]
        keys[:, self.span], values[:, self.span] = other_keys[:, there], other_values[:, there]


class _Read:
    """The tokens `span` of a context, neighbours of one kind: all from pages or all from this forward, all rotated or
    none."""

    def __init__(self, span: slice, parts: Sequence[_Part], device: torch.device) -> None:
        self._span, self._device = span, device
        self._stored, self._parts = parts[0].stored, parts
        self._shifts = [part.piece.shift for part in parts] if parts[0].piece.shift else None
        self._lengths = [part.length for part in parts]
        self._angles: dict[Rotation, Angles] = {}

    @cached_property
    def _rows(self) -> Tensor:
        return torch.cat([part.rows(self._device) for part in self._parts])

    def write(self, source: Source, keys: Tensor, values: Tensor) -> None:
        rotation = source.rotation
        keys, values = keys[:, self._span], values[:, self._span]
        turns = self._shifts is not None and rotation.form != "none"
        if not turns and self._straight(source):
            source.pages.gather_into(self._rows, source.layer, keys, values)
            return
        k, v = self._where_encoded(source, values)
        if v is not values:
            values.copy_(v)
        if not turns:
            keys.copy_(k)
            return
        if rotation not in self._angles:
            assert self._shifts is not None
            self._angles[rotation] = rotation.angles_of_pieces(self._shifts, self._lengths, self._device)
        _turn(source, self._angles[rotation], k, keys)

    def _straight(self, source: Source) -> bool:
        """Whether stored tokens are read directly to where they are attended to, in one launch. A CPU is faster by way
        of contiguous memory that stays in its cache."""
        return self._stored and few_launches(self._device) and not source.pages.rounding

    def _where_encoded(self, source: Source, values: Tensor) -> tuple[Tensor, Tensor]:
        """Their keys and values, `[heads, tokens, dim]`, at the positions where they were encoded. Values may be read
        into `values`, which is then returned."""
        if self._straight(source):
            pool, _ = source.pages.pools(source.layer)
            shape = len(self._rows), *pool.shape[1:]
            keys = source.workspace.take("keys", shape, pool.device, pool.dtype).transpose(0, 1)
            source.pages.gather_into(self._rows, source.layer, keys, values)
            return keys, values
        if self._stored:
            return source.pages.gather(self._rows, source.layer, source.workspace)
        return source.keys[:, self._rows], source.values[:, self._rows]


class Gather:
    """The pieces of a context in order, and after them the first tokens of one more piece, if `written` gives it and
    their number.

    `made`: what other segments of the forward gather before this one in each layer. Parts found there are copied from
    it, and new parts are added to it if this gather can `lend` them.
    """

    def __init__(
        self,
        pieces: Sequence[ContextPiece],
        device: torch.device,
        written: tuple[ContextPiece, int] | None = None,
        made: Gathered | None = None,
        lend: bool = False,
    ) -> None:
        self._parts = [_Part(piece, piece.entry.length) for piece in pieces]
        if written is not None:
            self._parts.append(_Part(*written))
        self.length = sum(part.length for part in self._parts)
        self._device, self._copied = device, False
        self._layouts = dict[int | None, Layout]()
        self._runs = list(self._in_runs({} if made is None else made, lend))

    def positions(self) -> list[Tensor]:
        """The logical position of every token, part by part."""
        spans = ((part.piece.offset, part.piece.offset + part.length) for part in self._parts)
        return [torch.arange(*span, device=self._device) for span in spans]

    def write(self, source: Source, keys: Tensor, values: Tensor, own: tuple[Tensor, Tensor] | None = None) -> None:
        """Copy the keys and values of one layer into `keys` and `values` `[heads, length, dim]`, with the keys rotated
        to their positions in this context, and after them its `own` ones `[heads, tokens, dim]`, unchanged."""
        slowly = partial(self._write, source, keys, values, own)
        several = few_launches(self._device) and self.length > 0 and not source.pages.rounding
        if not (several and serves(self._device) and fits(keys, values)):
            slowly()
        else:
            gather_by_kernel(source.rotation, self._request(source, (keys, values), own), slowly)
            if own is not None and self._fresh:
                keys[:, self.length :], values[:, self.length :] = own
        if self._copied:
            source.gathered[self] = keys, values

    def _write(self, source: Source, keys: Tensor, values: Tensor, own: tuple[Tensor, Tensor] | None) -> None:
        """`write`, run by run."""
        for run in self._runs:
            run.write(source, keys, values)
        if own is not None:
            keys[:, self.length :], values[:, self.length :] = own

    @cached_property
    def _fresh(self) -> bool:
        """Whether anything is read from the tensors of this forward."""
        return not all(part.stored for part in self._parts)

    def _request(self, source: Source, out: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor] | None) -> Request:
        """The arguments of `write` for a kernel. Own tokens are included, unless other tokens of this forward are
        read."""
        new = (source.keys, source.values) if self._fresh or own is None else own
        count = None if self._fresh or own is None else own[0].shape[1]
        if count not in self._layouts:
            self._layouts[count] = self._laid_out(count)
        rows_first = tuple(each.transpose(0, 1).contiguous() for each in new)
        return Request(source.pages.pools(source.layer), (rows_first[0], rows_first[1]), out, self._layouts[count])

    def _laid_out(self, own: int | None) -> Layout:
        """The locations of all tokens, followed by `own` own ones."""
        place, read = 0, 0
        found, rows = list[Part](), list[Tensor]()
        for part in self._parts:
            maker, shift = part.piece.entry.segment, part.piece.shift
            if part.stored:
                rows.append(part.rows(self._device))
                found.append(Part(read, place, part.length, shift))
                read += part.length
            else:
                assert maker is not None
                found.append(Part(maker.first, place, part.length, shift, new=True))
            place += part.length
        if own is not None:
            found.append(Part(0, place, own, 0, new=True))
        nothing = torch.zeros(0, dtype=torch.long, device=self._device)
        return Layout(torch.cat(rows) if rows else nothing, found)

    def before(self, source: Source, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the context, followed by these `[heads, tokens, dim]`, in memory of their own."""
        whole = [x.new_empty(len(x), self.length + x.shape[1], x.shape[2]) for x in (keys, values)]
        self.write(source, whole[0], whole[1], (keys, values))
        return whole[0], whole[1]

    def _in_runs(self, made: Gathered, lend: bool) -> Iterator[_Copied | _Read]:
        """The parts in order, with neighbours of one kind joined: copied from the same gather, or read in the same
        way."""
        kinds, starts = list[tuple[_Kind, _Part]](), Gathered()
        start = 0
        for part in self._parts:
            other, there = made.get(part.name, (None, 0))
            kinds.append((part.kind if other is None else (other, there - start), part))
            starts[part.name] = self, start
            start += part.length
        if lend:
            made.update(starts | made)
        start = 0
        for (what, how), neighbours in groupby(kinds, lambda each: each[0]):
            parts = [part for _, part in neighbours]
            span = slice(start, start + sum(part.length for part in parts))
            if isinstance(what, Gather):
                what._copied = True
                yield _Copied(span, what, start + how)
            else:
                yield _Read(span, parts, self._device)
            start = span.stop


_Name = tuple[KVEntry, int, int]
Gathered = dict[_Name, tuple[Gather, int]]
"""The locations of parts that were gathered before: in which gather, and from which of its tokens on."""
_Kind = tuple[Gather, int] | tuple[bool, bool]
"""The gather to copy a part from and the offset there, or whether the part is stored and whether it is rotated."""


def _turn(source: Source, angles: Angles, keys: Tensor, out: Tensor) -> None:
    """Rotate `keys` `[heads, tokens, dim]` into `out`: on a CPU in chunks that stay in its cache."""
    heads, tokens, dim = keys.shape
    most = max(1, (AT_ONCE_ON_GPU if few_launches(keys.device) else AT_ONCE) // (heads * dim))
    for start in range(0, tokens, most):
        part = slice(start, start + most)
        some = Angles(angles.cos[part], angles.sin[part])
        source.rotation.turn_into(out[:, part], keys[:, part], some, source.workspace)
