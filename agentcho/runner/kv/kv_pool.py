"""The paged pool: keys and values of encodings on the device, in small pages; and tensors of zeros that take no memory.

The pages of an encoding are written once, and not changed until they are freed. Does not know: messages, positions,
whose pages they are, what is done when none is left (`engine/cache`).
"""

from __future__ import annotations

import math
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy
import torch
from safetensors.torch import load, save
from torch import Tensor

from agentcho.errors import StoreDamaged, StoreFull
from agentcho.runner.kv import kv_quant
from agentcho.runner.kv.rope import Workspace
from agentcho.runner.model.device import free_memory, has_room

ALIGNED = 64
"""torch's own tensors begin at a multiple of so many bytes. Kernels may compute in another order for one that does
not."""
AT_ONCE = 1 << 19
"""Rounded numbers that are read at once: what is between stays in the processor's cache."""
STAGED = 1 << 27
"""Bytes that go between a GPU and host memory in one copy, where a layer has no more: so many are taken for it, on the
GPU and in page-locked memory."""
Copy = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values `[length, heads, dim]` of one encoding, a pair a layer, in host memory or read from disk. In 8 bits
they are bytes, and wider: see `kv_quant`."""


def zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of zeros. On a CPU it takes no memory until it is written, because the system hands out memory then; so
    it can be as long as it may ever become. (`torch.zeros` writes all of it, which takes longer than a step for the
    keys of a long context.) `MemoryError`: the system does not promise so much."""
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    size = math.prod(shape) * dtype.itemsize
    if size > sys.maxsize - ALIGNED:
        raise MemoryError
    raw = numpy.zeros(size + ALIGNED, dtype=numpy.uint8)
    start = -raw.ctypes.data % ALIGNED
    return torch.from_numpy(raw[start : start + size]).view(dtype).view(shape)


class LayerShape(NamedTuple):
    """Shapes of one layer's cache: key-value heads, key dimension, value dimension. `device`: where the layer is; None:
    where the model is."""

    heads: int
    key_dim: int
    value_dim: int
    device: torch.device | None = None


@dataclass(eq=False)
class Pages:
    """The pages of one encoding of `length` tokens: their `numbers`, and the `rows` of its tokens in the pools, in
    order; `elsewhere` has these rows on other devices."""

    numbers: list[int]
    length: int
    rows: Tensor
    elsewhere: dict[torch.device, Tensor] = field(default_factory=dict)

    def on(self, device: torch.device) -> Tensor:
        """The rows on a device, moved there once."""
        if device == self.rows.device:
            return self.rows
        if device not in self.elsewhere:
            self.elsewhere[device] = self.rows.to(device)
        return self.elsewhere[device]


class PagePool:
    """Pools of pages, one pair (keys and values) a layer, of `limit_tokens` tokens at most. Counted in pages:
    `allocated` have memory, `used` of them hold encodings, and `reserved` are promised. `moved`: how often the pools
    got other tensors.

    The pools are as long as they can become: on a CPU memory that was never written costs nothing, and on a GPU longer
    pools would be other tensors, for which captured steps would have to be captured again. Where a GPU has not so much
    memory left, as for a second engine on it, they grow on demand, by a sixteenth at a time. With `rounding` they are
    bytes, and so are copies and files; what is written and read is in `dtype`.
    """

    def __init__(
        self,
        layers: list[LayerShape],
        limit_tokens: int,
        device: torch.device,
        dtype: torch.dtype,
        page_tokens: int = 2,
        rounding: bool = False,
    ) -> None:
        self._layers = layers
        self._device = device
        self.dtype = dtype
        self.rounding = rounding
        self.page_tokens, self.limit = page_tokens, max(1, limit_tokens // page_tokens)
        self.allocated = self.used = self.reserved = self.high_water = self._tokens = 0
        self.moved = 0
        self.free_pages: list[int] = []
        self.devices = [shape.device or device for shape in layers]
        try:
            self._keys, self._values = self._pools(self.limit * page_tokens)
        except MemoryError:  # a system that does not overcommit memory
            self._keys, self._values = self._pools(0)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self._layers)

    @property
    def room(self) -> int:
        """Pages that are neither in use nor promised."""
        return self.limit - self.used - self.reserved

    @property
    def overhead(self) -> float:
        """How much more memory the pools take than the keys and values in their pages, as a share of these: 0.1 is a
        tenth more; 0 for an empty pool.

        It counts unused rows in pages, unused pages in pools, and the numbers of rows.
        """
        each = token_bytes(self._layers, self.dtype, self.rounding)
        raw, pools = self._tokens * each, self.allocated * self.page_tokens * each
        return (pools + 8 * self._tokens) / raw - 1 if raw else 0.0

    def pages_for(self, tokens: int) -> int:
        """Pages that an encoding of `tokens` tokens takes."""
        return -(-tokens // self.page_tokens)

    def reserve(self, tokens: int) -> int:
        """Promise room for `tokens` tokens; returns the pages promised. `StoreFull`: nothing was promised."""
        pages = self.pages_for(tokens)
        if pages > self.room:
            raise StoreFull(pages * self.page_tokens, self.room * self.page_tokens)
        self.reserved += pages
        return pages

    def unreserve(self, pages: int) -> None:
        """Take a promise back."""
        self.reserved -= pages
        assert self.reserved >= 0

    def allocate(self, length: int) -> Pages:
        """Pages for `length` tokens, to be written next. `StoreFull` where no room is left."""
        count = self.pages_for(length)
        self.unreserve(self.reserve(length))
        if count > len(self.free_pages):
            self._grow(count - len(self.free_pages))
        numbers = [self.free_pages.pop() for _ in range(count)]
        self._tokens, self.used = self._tokens + length, self.used + count
        self.high_water = max(self.high_water, self.used)
        rows = torch.tensor(numbers).repeat_interleave(self.page_tokens) * self.page_tokens
        rows += torch.arange(self.page_tokens).repeat(count)
        return Pages(numbers, length, rows[:length].to(self._device))

    def free(self, pages: Pages) -> None:
        """Take pages back; they must not be read again."""
        self._tokens, self.used = self._tokens - pages.length, self.used - len(pages.numbers)
        self.free_pages.extend(pages.numbers)

    def as_read(self, vectors: Tensor) -> Tensor:
        """Keys or values `[..., dim]` as they are read once they were written: the same, or rounded, each vector by
        itself."""
        return kv_quant.round_trip(vectors) if self.rounding else vectors

    def write(self, pages: Pages, layer: int, keys: Tensor, values: Tensor, start: int = 0) -> None:
        """Store keys and values `[heads, n, dim]` of one layer as tokens start … start + n. Each token of a layer is
        written once."""
        self.put(pages.on(keys.device)[start : start + keys.shape[1]], layer, keys, values)

    def put(self, rows: Tensor, layer: int, keys: Tensor, values: Tensor) -> None:
        """The same for the given rows."""
        for pool, each in ((self._keys[layer], keys), (self._values[layer], values)):
            pool[rows] = (kv_quant.quantize_vectors(each) if self.rounding else each).transpose(0, 1)

    def write_all(self, pages: Pages, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Store the keys and values of every layer, in order."""
        for layer, (keys, values) in enumerate(pairs):
            self.write(pages, layer, keys, values)

    def pools(self, layer: int) -> tuple[Tensor, Tensor]:
        """The pools of keys and values `[token rows, heads, dim]` of one layer themselves, not to be written."""
        return self._keys[layer], self._values[layer]

    def read(self, pages: Pages, layer: int) -> tuple[Tensor, Tensor]:
        """Copies of keys and values, `[heads, length, dim]`, at the position they were encoded at."""
        return self.gather(pages.on(self.devices[layer]), layer, Workspace())

    def gather(self, rows: Tensor, layer: int, workspace: Workspace) -> tuple[Tensor, Tensor]:
        """The same for the given rows of any encodings, in the memory of a workspace."""
        keys = self._selected(self._keys[layer], rows, workspace, "keys")
        return keys, self._selected(self._values[layer], rows, workspace, "values")

    def gather_into(self, rows: Tensor, layer: int, keys: Tensor, values: Tensor) -> None:
        """Read the given rows of a pool that does not round into `keys` and `values` `[heads, rows, dim]`, which may
        be parts of longer tensors, by one operation each."""
        assert not self.rounding
        for pool, out in ((self._keys[layer], keys), (self._values[layer], values)):
            torch.index_select(pool, 0, rows, out=out.transpose(0, 1))

    def _selected(self, pool: Tensor, rows: Tensor, workspace: Workspace, name: str) -> Tensor:
        """These rows of a pool, as `[heads, rows, dim]`."""
        dim = pool.shape[2] - (self.dtype.itemsize if self.rounding else 0)
        out = workspace.take(name, (len(rows), pool.shape[1], dim), pool.device, self.dtype)
        if not self.rounding:
            return torch.index_select(pool, 0, rows, out=out).transpose(0, 1)
        most = max(1, AT_ONCE // (pool.shape[1] * dim))
        for start in range(0, len(rows), most):
            part = slice(start, start + most)
            kv_quant.dequantize_vectors(pool.index_select(0, rows[part]), out[part])
        return out.transpose(0, 1)

    def copy_out(self, pages: Sequence[Pages]) -> list[Copy]:
        """Copies of several encodings in host memory, whole when this returns. On CUDA a layer is read once for all of
        them, and what is read of some layers is moved at once."""
        found, tokens = [list[Tensor]() for _ in pages], sum(each.length for each in pages)
        for pools in self._staged(tokens if pages else 0):
            if pools[0].device.type != "cuda":
                for each, copied in zip(pages, found, strict=True):
                    copied += (pool.index_select(0, each.on(pool.device)).cpu() for pool in pools)
                continue
            rows = torch.cat([each.on(pools[0].device) for each in pages])
            sizes = [tokens * pool.shape[1] * pool.shape[2] for pool in pools]
            there = torch.empty(sum(sizes), dtype=pools[0].dtype, device=pools[0].device)
            for pool, part in zip(pools, torch.split(there, sizes), strict=True):
                torch.index_select(pool, 0, rows, out=part.view(tokens, *pool.shape[1:]))
            here = torch.empty(there.shape, dtype=there.dtype, pin_memory=True).copy_(there)
            for pool, part in zip(pools, torch.split(here, sizes), strict=True):
                parts = torch.split(part.view(tokens, *pool.shape[1:]), [each.length for each in pages])
                for copied, one in zip(found, parts, strict=True):
                    copied.append(one.clone())
        return [tuple(zip(copied[::2], copied[1::2], strict=True)) for copied in found]

    def _staged(self, tokens: int) -> Iterator[list[Tensor]]:
        """Keys and values of all layers, in order, as they are moved: those in one list together, of so many tokens.
        None for no token."""
        if not tokens:
            return
        together, room = list[Tensor](), STAGED
        for pool in (each for pair in zip(self._keys, self._values, strict=True) for each in pair):
            size = tokens * pool.shape[1] * pool.shape[2] * pool.dtype.itemsize
            if together and (size > room or pool.device != together[0].device):
                yield together
                together, room = [], STAGED
            together.append(pool)
            room -= size
        yield together

    def checksum(self, copy: Copy) -> int:
        """See `checksum`."""
        return checksum(copy)

    def packed(self, copy: Copy) -> bytes:
        """A copy as a safetensors file: keys and values by the number of their layer."""
        keys = {f"{layer}.keys": keys for layer, (keys, _) in enumerate(copy)}
        return save(keys | {f"{layer}.values": values for layer, (_, values) in enumerate(copy)})

    def unpacked(self, data: bytes) -> Copy:
        """The copy in such a file, to the bit."""
        found = load(data)
        return tuple((found[f"{layer}.keys"], found[f"{layer}.values"]) for layer in range(self.layers))

    def check(self, stored: Sequence[tuple[Pages, int]]) -> None:
        """See `base.Pool.check`."""
        pages = Counter(number for each, _ in stored for number in each.numbers) + Counter(self.free_pages)
        if any(count > 1 for count in pages.values()):
            raise StoreDamaged("a page is in two places")
        if set(pages) != set(range(self.allocated)):
            raise StoreDamaged("a page is lost, or does not belong to the store")
        if self.used != self.allocated - len(self.free_pages):
            raise StoreDamaged("pages in use do not add up")
        if any(each.length != length for each, length in stored):
            raise StoreDamaged("pages are not as long as their encoding")

    def copy_in(self, copies: Sequence[tuple[Pages, Copy]]) -> None:
        """Write copies into pages of their lengths. On CUDA several are moved as in `copy_out`."""
        given = [iter([each for pair in copy for each in pair]) for _, copy in copies]
        for pools in self._staged(sum(pages.length for pages, _ in copies)):
            device = pools[0].device
            if device.type != "cuda":
                for (pages, _), copied in zip(copies, given, strict=True):
                    for pool in pools:
                        pool[pages.on(device)] = next(copied)
                continue
            parts = [[next(copied) for copied in given] for _ in pools]
            sizes = [sum(each.numel() for each in some) for some in parts]
            here = torch.empty(sum(sizes), dtype=pools[0].dtype, pin_memory=True)
            torch.cat([each.flatten() for some in parts for each in some], out=here)
            rows = torch.cat([pages.on(device) for pages, _ in copies])
            for pool, part in zip(pools, torch.split(here.to(device, non_blocking=True), sizes), strict=True):
                pool[rows] = part.view(-1, *pool.shape[1:])

    def copy(self, source: Pages, target: Pages, tokens: int) -> None:
        """See `base.Pool.copy`."""
        for keys, values, device in zip(self._keys, self._values, self.devices, strict=True):
            rows, there = source.on(device)[:tokens], target.on(device)[:tokens]
            keys[there], values[there] = keys[rows], values[rows]

    def _pools(self, rows: int) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values of every layer: of so many token rows where there is room for them all, else of none."""
        places = list[tuple[LayerShape, torch.device, int]]()
        kind = KVFormat(self._layers, self._device, self.dtype, self.rounding)
        fits = {at: has_room(at, rows * kind.bytes_on(at)) for at in set(self.devices)}
        for shape, at in zip(self._layers, self.devices, strict=True):
            places.append((shape, at, rows if fits[at] else 0))
        keys = [self._zeros((n, shape.heads, shape.key_dim), at) for shape, at, n in places]
        return keys, [self._zeros((n, shape.heads, shape.value_dim), at) for shape, at, n in places]

    def _zeros(self, shape: tuple[int, int, int], at: torch.device) -> Tensor:
        """A pool for vectors of this shape, as they are kept."""
        if self.rounding:
            return zeros((*shape[:2], kv_quant.quantized_width(shape[2], self.dtype)), at, torch.int8)
        return zeros(shape, at, self.dtype)

    def _grow(self, pages: int) -> None:
        """Make more pages ready for use."""
        pages = max(pages, min(max(self.allocated // 16, 16), self.limit - self.allocated))
        self._lengthen((self.allocated + pages) * self.page_tokens)
        self.free_pages.extend(range(self.allocated + pages - 1, self.allocated - 1, -1))
        self.allocated += pages

    def _lengthen(self, rows: int) -> None:
        """Make the pools longer, one after another, so that only one of them is there twice. On CUDA the memory of the
        old ones is given back: the next request is always for more than one of them had."""
        short = [pool for pool in (self._keys, self._values) if any(len(old) < rows for old in pool)]
        if not short:
            return
        for pool in short:
            for layer, old in enumerate(pool):
                if len(old) < rows:
                    pool[layer] = torch.cat([old, old.new_zeros(rows - len(old), *old.shape[1:])])
        self.moved += 1
        if any(device.type == "cuda" for device in self.devices):
            torch.cuda.empty_cache()


def checksum(copy: Copy) -> int:
    """CRC-32 of all bytes, in order."""
    sum = 0
    for tensor in (each for pair in copy for each in pair):
        sum = zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().data, sum)
    return sum


def token_bytes(layers: list[LayerShape], dtype: torch.dtype, rounding: bool = False) -> int:
    """Bytes of one token's keys and values in all layers, in 8 bits with `rounding`."""
    if rounding:
        return sum(
            s.heads * (kv_quant.quantized_width(s.key_dim, dtype) + kv_quant.quantized_width(s.value_dim, dtype))
            for s in layers
        )
    return sum(shape.heads * (shape.key_dim + shape.value_dim) for shape in layers) * dtype.itemsize


class KVFormat(NamedTuple):
    """What says how many bytes a token of a model takes, and where: see `token_bytes`."""

    layers: list[LayerShape]
    device: torch.device
    dtype: torch.dtype
    rounding: bool = False

    def bytes_on(self, device: torch.device) -> int:
        """Bytes of one token on a device."""
        there = [shape for shape in self.layers if (shape.device or self.device) == device]
        return token_bytes(there, self.dtype, self.rounding)

    @property
    def bytes(self) -> int:
        """Bytes of one token on all devices."""
        return token_bytes(self.layers, self.dtype, self.rounding)


def shared_tokens(kinds: Sequence[KVFormat], share: float = 1) -> list[int]:
    """Tokens of each of these models, equally many on a device, that together fit in 4 GiB on a CPU, or in half of the
    free memory of each CUDA device: all of them take what one would. `share`: so much of that alone."""
    places = [{shape.device or kind.device for shape in kind.layers} for kind in kinds]
    fits: dict[torch.device, int] = {}
    for where in set[torch.device]().union(*places):
        room = free_memory(where) // 2 if where.type == "cuda" else 4 << 30
        fits[where] = int(room * share) // sum(kind.bytes_on(where) for kind in kinds)
    return [max(1024, min(*(fits[where] for where in on), 1 << 22)) for on in places]


def shared_host_tokens(kinds: Sequence[KVFormat], share: float = 1) -> list[int]:
    """Tokens of each, equally many, whose copies together fit in this share of 4 GiB of host memory."""
    return [int((4 << 30) * share) // sum(kind.bytes for kind in kinds)] * len(kinds)
