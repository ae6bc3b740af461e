"""The paged pool: keys and values of encodings on the device, in small pages; and lazily allocated tensors of zeros.

The pages of an encoding are written once, and not changed until they are freed. Independent of messages, of positions,
of who owns pages, and of eviction (`engine/cache`).
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
"""The alignment of torch's own tensors, in bytes. For an unaligned tensor kernels may compute in another order."""
AT_ONCE = 1 << 19
"""The number of rounded elements that are read at once, so that intermediate results stay in the processor's cache."""
STAGED = 1 << 27
"""The most bytes that one copy moves between a GPU and host memory, unless a single layer has more. Such a copy takes
this much memory both on the GPU and in page-locked host memory."""
Copy = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values `[length, heads, dim]` of one encoding, a pair per layer, in host memory or read from disk. In 8 bits
they are bytes, and wider: see `kv_quant`."""


def zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of zeros. On a CPU it takes no memory until it is written, because the system allocates pages on first
    write; so it can have the largest size that may ever be needed. (`torch.zeros` writes all of it, which for the keys
    of a long context takes longer than a step.) Raises `MemoryError` if the system does not grant that much."""
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    size = math.prod(shape) * dtype.itemsize
    if size > sys.maxsize - ALIGNED:
        raise MemoryError
    raw = numpy.zeros(size + ALIGNED, dtype=numpy.uint8)
    start = -raw.ctypes.data % ALIGNED
    return torch.from_numpy(raw[start : start + size]).view(dtype).view(shape)


class LayerShape(NamedTuple):
    """Shapes of one layer's cache: key-value heads, key dimension, value dimension. `device`: where the layer is, or
    None if it is where the model is."""

    heads: int
    key_dim: int
    value_dim: int
    device: torch.device | None = None


@dataclass(eq=False)
class Pages:
    """The pages of one encoding of `length` tokens: their `numbers`, and the `rows` of its tokens in the pools, in
    order. `elsewhere` has these rows on other devices."""

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
    """Pools of pages, one pair (keys and values) per layer, of at most `limit_tokens` tokens. Counted in pages:
    `allocated` have memory, `used` of them hold encodings, and `reserved` are promised. `moved`: how often the pools
    were replaced by new tensors.

    The pools are allocated at full size: on a CPU, memory that was never written costs nothing; on a GPU, longer pools
    would be new tensors, for which steps would have to be captured again. If a GPU has less memory left, as for a
    second engine on it, the pools grow on demand, by a sixteenth at a time. With `rounding` the pools, copies and files
    hold bytes; keys and values are still written and read in `dtype`.
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
        except MemoryError:  # the system does not overcommit memory
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
        """The extra memory of the pools beyond the keys and values in their pages, as a share of these: 0.1 is a tenth
        more. 0 for an empty pool.

        It counts unused rows in pages, unused pages in pools, and the row numbers.
        """
        each = token_bytes(self._layers, self.dtype, self.rounding)
        raw, pools = self._tokens * each, self.allocated * self.page_tokens * each
        return (pools + 8 * self._tokens) / raw - 1 if raw else 0.0

    def pages_for(self, tokens: int) -> int:
        """Pages that an encoding of `tokens` tokens takes."""
        return -(-tokens // self.page_tokens)

    def reserve(self, tokens: int) -> int:
        """Promise room for `tokens` tokens; return the number of pages. Raises `StoreFull`, and then promises
        nothing."""
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
        """Pages for `length` tokens, to be written next. Raises `StoreFull` if no room is left."""
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
        """Keys or values `[..., dim]` as later reads return them: unchanged, or rounded, each vector by itself."""
        return kv_quant.round_trip(vectors) if self.rounding else vectors

    def write(self, pages: Pages, layer: int, keys: Tensor, values: Tensor, start: int = 0) -> None:
        """Store keys and values `[heads, n, dim]` of one layer as tokens start … start + n. Each token of a layer is
        written once."""
        self.put(pages.on(keys.device)[start : start + keys.shape[1]], layer, keys, values)

    def put(self, rows: Tensor, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store keys and values at the given rows; see `write`."""
        for pool, each in ((self._keys[layer], keys), (self._values[layer], values)):
            pool[rows] = (kv_quant.quantize_vectors(each) if self.rounding else each).transpose(0, 1)

    def write_all(self, pages: Pages, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Store the keys and values of every layer, in order."""
        for layer, (keys, values) in enumerate(pairs):
            self.write(pages, layer, keys, values)

    def pools(self, layer: int) -> tuple[Tensor, Tensor]:
        """The pools of keys and values `[token rows, heads, dim]` of one layer, which must not be written."""
        return self._keys[layer], self._values[layer]

    def read(self, pages: Pages, layer: int) -> tuple[Tensor, Tensor]:
        """Copies of keys and values, `[heads, length, dim]`, at the position where they were encoded."""
        return self.gather(pages.on(self.devices[layer]), layer, Workspace())

    def gather(self, rows: Tensor, layer: int, workspace: Workspace) -> tuple[Tensor, Tensor]:
        """Read the given rows, of any encodings, into the memory of a workspace; see `read`."""
        keys = self._selected(self._keys[layer], rows, workspace, "keys")
        return keys, self._selected(self._values[layer], rows, workspace, "values")

    def gather_into(self, rows: Tensor, layer: int, keys: Tensor, values: Tensor) -> None:
        """Read the given rows of a pool without rounding into `keys` and `values` `[heads, rows, dim]`, which may be
        parts of longer tensors, by one operation each."""
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
        """Copies of several encodings in host memory, complete when this returns. On CUDA each layer is read once for
        all encodings, and several layers are moved in one transfer."""
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
        """The pools of keys and values of all layers, in order, grouped into lists that are moved together, for
        `tokens` tokens. Yields nothing for 0 tokens."""
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
        """The copy in such a file, bit for bit."""
        found = load(data)
        return tuple((found[f"{layer}.keys"], found[f"{layer}.values"]) for layer in range(self.layers))

    def check(self, stored: Sequence[tuple[Pages, int]]) -> None:
        """See `KVPool.check`."""
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
        """See `KVPool.copy`."""
        for keys, values, device in zip(self._keys, self._values, self.devices, strict=True):
            rows, there = source.on(device)[:tokens], target.on(device)[:tokens]
            keys[there], values[there] = keys[rows], values[rows]

    def _pools(self, rows: int) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values of every layer, with `rows` token rows where a device has room for all of them, else with
        none."""
        places = list[tuple[LayerShape, torch.device, int]]()
        kind = KVFormat(self._layers, self._device, self.dtype, self.rounding)
        fits = {at: has_room(at, rows * kind.bytes_on(at)) for at in set(self.devices)}
        for shape, at in zip(self._layers, self.devices, strict=True):
            places.append((shape, at, rows if fits[at] else 0))
        keys = [self._zeros((n, shape.heads, shape.key_dim), at) for shape, at, n in places]
        return keys, [self._zeros((n, shape.heads, shape.value_dim), at) for shape, at, n in places]

    def _zeros(self, shape: tuple[int, int, int], at: torch.device) -> Tensor:
        """A pool for vectors of this shape, in the stored format."""
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
        """Make the pools longer, one after another, so that only one of them exists twice at a time. On CUDA the memory
        of the old ones is returned: later requests are always larger, so the allocator could not reuse it. They have
        moved even if one of them finds no memory."""
        short = [pool for pool in (self._keys, self._values) if any(len(old) < rows for old in pool)]
        if not short:
            return
        self.moved += 1
        for pool in short:
            for layer, old in enumerate(pool):
                if len(old) < rows:
                    pool[layer] = torch.cat([old, old.new_zeros(rows - len(old), *old.shape[1:])])
        if any(device.type == "cuda" for device in self.devices):
            torch.cuda.empty_cache()


def checksum(copy: Copy) -> int:
    """The CRC-32 of all bytes, in order."""
    sum = 0
    for tensor in (each for pair in copy for each in pair):
        sum = zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().data, sum)
    return sum


def token_bytes(layers: list[LayerShape], dtype: torch.dtype, rounding: bool = False) -> int:
    """The size in bytes of one token's keys and values in all layers; in 8 bits with `rounding`."""
    if rounding:
        return sum(
            s.heads * (kv_quant.quantized_width(s.key_dim, dtype) + kv_quant.quantized_width(s.value_dim, dtype))
            for s in layers
        )
    return sum(shape.heads * (shape.key_dim + shape.value_dim) for shape in layers) * dtype.itemsize


class KVFormat(NamedTuple):
    """What determines the size of a model's token in bytes on each device: see `token_bytes`."""

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
    """The number of store tokens of each of these models, the same for all that share a device, so that together they
    fit in 4 GiB on a CPU, or in half of the free memory of each CUDA device: all models take what a single one would.
    `share` scales this."""
    places = [{shape.device or kind.device for shape in kind.layers} for kind in kinds]
    fits: dict[torch.device, int] = {}
    for where in set[torch.device]().union(*places):
        room = free_memory(where) // 2 if where.type == "cuda" else 4 << 30
        fits[where] = int(room * share) // sum(kind.bytes_on(where) for kind in kinds)
    return [max(1024, min(*(fits[where] for where in on), 1 << 22)) for on in places]


def shared_host_tokens(kinds: Sequence[KVFormat], share: float = 1) -> list[int]:
    """The number of host tokens of each model, the same for all, whose copies together fit in this share of 4 GiB of
    memory."""
    return [int((4 << 30) * share) // sum(kind.bytes for kind in kinds)] * len(kinds)
