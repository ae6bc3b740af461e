"""A second copy of the weights of linear layers, in the order in which the processor's kernels read them.

On a CPU torch reorders weights for every product, which takes longer than the product itself if there are some rows.
The weights of a large network are copied into the order of oneDNN's kernels. For one to three rows in float32, torch
reads the weights as they are, and with AVX-512 takes 0.68 to 0.82 of the time of oneDNN's kernels; with AVX2 this is so
for one row (0.66 to 0.76). There, the copies are not used where bits may depend on the number of rows. The weights of a
small network, which stay in the processor's caches, are copied in column-major order: torch multiplies several rows
faster by these, but not one or two. With one thread and AVX-512 all products of the bundled model took 0.75 of the time
for 8 rows, 0.65 for 16 and 0.80 for 64; with AVX2 0.78, 0.81 and 0.92.

The copies are used only inside `use_packed`; elsewhere, and for code that reads its weights, a layer is unchanged. If
the processor has no such kernels for a dtype, no layer has a copy. Independent of attention and models.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from agentcho.protocol.progress import ProgressCallback, counted, no_progress
from agentcho.runner.model.device import cpu_capability, free_memory, reorders_bfloat16

LEAST = 64 << 20
"""The size in bytes below which all weights may stay in the processor's caches, so that packing gains nothing."""
SHARE = 1 / 4
"""The share of the machine's memory that the copies may take."""
SOME = 4
"""The number of rows from which on a column-major product is faster."""
FEW = {"AVX512": 3, "AMX": 3, "AVX2": 1}
"""The number of rows in float32 up to which torch's own product is faster than oneDNN's, by what torch uses here."""
KINDS = (torch.float32, torch.bfloat16)


class _Use(threading.local):
    on = brief = False


_use = _Use()


@contextmanager
def use_packed(brief: bool = False) -> Iterator[None]:
    """Use the copies, where there are any, in this thread within the `with` block. For forwards without gradients.
    `brief`: for so few rows that the weights themselves are faster, use those; the last bits may differ."""
    before = _use.on, _use.brief
    _use.on, _use.brief = True, brief
    try:
        yield
    finally:
        _use.on, _use.brief = before


def in_use() -> bool:
    """Whether this thread is within `use_packed`."""
    return _use.on


class CopiedLinear(nn.Linear):
    """A linear layer with a second copy of its weight. The copy is not used once the weight has changed. Copies of the
    layer have no second copy."""

    _copy: Tensor
    _state: tuple[int, int]

    @classmethod
    def make(cls, layer: Any) -> None:
        """Turn a linear layer into one of this class."""
        layer.__class__ = cls
        layer._copy = cls._copied(layer.weight.detach())
        layer._state = _state(layer.weight)

    @staticmethod
    def _copied(weight: Tensor) -> Tensor:
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Linear:
        """Return a plain linear layer: packed weights cannot be copied, and a copied layer is meant to be changed."""
        other = memo[id(self)] = nn.Linear.__new__(nn.Linear)
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_copy", "_state", "_few")}
        other.__dict__.update(copy.deepcopy(kept, memo))
        return other


class PackedLinear(CopiedLinear):
    """Has a copy in the order of oneDNN's kernels. `_few`: the number of rows up to which its weight is faster."""

    _few: int

    @classmethod
    def make(cls, layer: Any) -> None:
        """See `CopiedLinear.make`."""
        super().make(layer)
        layer._few = _few(layer.weight.dtype)

    @staticmethod
    def _copied(weight: Tensor) -> Tensor:
        packed: Tensor = _kernels()._reorder_linear_weight(weight)
        return packed

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.nn.Linear`."""
        few = _use.brief and input.numel() <= self._few * self.in_features
        if _use.on and not few and self._state == _state(self.weight):
            product: Tensor = _kernels()._linear_pointwise(input, self._copy, self.bias, "none", [], "")
            return product
        return super().forward(input)


class ColumnLinear(CopiedLinear):
    """Has a column-major copy, used for `SOME` rows and more."""

    @staticmethod
    def _copied(weight: Tensor) -> Tensor:
        return weight.t().contiguous().t()

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.nn.Linear`."""
        if _use.on and input.shape[-2:-1] >= (SOME,) and self._state == _state(self.weight):
            return linear(input, self._copy, self.bias)
        return super().forward(input)


def copy_columns(network: nn.Module) -> int:
    """Copy the weights of a network on a CPU in column-major order, if they are float32 and too small to be packed.
    Returns the size of the copies in bytes."""
    layers = [each for each in network.modules() if type(each) is nn.Linear and _suits(each.weight)]
    layers = [layer for layer in layers if layer.weight.dtype == torch.float32]
    size = sum(layer.weight.nbytes for layer in layers)
    if size >= LEAST:
        return 0
    for layer in layers:
        ColumnLinear.make(layer)
    return size


def pack_linears(network: nn.Module, least: int | None = None, tell: ProgressCallback = no_progress) -> int:
    """Pack the linear layers of a network on a CPU, if they have at least `least` bytes (by default `LEAST`) and there
    is memory for the copies. Returns the size of the copies in bytes."""
    layers = [each for each in network.modules() if type(each) is nn.Linear and _suits(each.weight)]
    if _cause(layers, LEAST if least is None else least):
        return 0
    packing = counted(tell, "matrices packed", len(layers))
    for number, layer in enumerate(layers, 1):
        PackedLinear.make(layer)
        packing(number)
    return sum(layer.weight.nbytes for layer in layers)


def _cause(layers: Sequence[nn.Linear], least: int) -> str | None:
    """Why layers are not packed, or None if they can be."""
    size = sum(layer.weight.nbytes for layer in layers)
    if not layers:
        return "there is nothing that would suit it"
    if size < least:
        return f"they are {size / 1e6:.0f} MB, which processors keep in their caches"
    if size > SHARE * free_memory(torch.device("cpu")):
        return "there is no memory for a second copy"
    return next(filter(None, map(why_not_packable, dict.fromkeys(layer.weight.dtype for layer in layers))), None)


def why_not_packable(dtype: torch.dtype) -> str | None:
    """Why this processor's kernels cannot be used for weights of a dtype, or None if they can. Asks torch, and then
    packs one small weight to be sure."""
    if dtype not in KINDS:
        return f"there are no kernels for {_short(dtype)}"
    if dtype == torch.bfloat16 and not reorders_bfloat16():
        return f"this processor has none for bfloat16 (torch uses {cpu_capability()})"
    weight = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64).remainder(7).to(dtype)
    rows = torch.eye(2, 64, dtype=dtype)
    try:
        copy = _kernels()._reorder_linear_weight(weight)
        product: Tensor = _kernels()._linear_pointwise(rows, copy, None, "none", [], "")
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return f"a trial failed: {str(error).splitlines()[0]}"
    return None if torch.equal(product, rows @ weight.T) else "a trial gave other products"


def matmul_kernels(network: nn.Module, device: torch.device) -> tuple[str, str]:
    """The kernels that multiply by the linear layers of a network, in one word, and the reason."""
    if device.type != "cpu":
        return "plain", f"torch's own for {device.type}"
    every = [each for each in network.modules() if isinstance(each, nn.Linear)]
    layers = [each for each in every if each.weight.dtype.is_floating_point]
    done = [layer for layer in layers if isinstance(layer, PackedLinear)]
    kinds = ", ".join(dict.fromkeys(_short(layer.weight.dtype) for layer in layers))
    if done:
        size = sum(layer.weight.nbytes for layer in done)
        few = max(layer._few for layer in done)
        some = f" for {few + 1} rows and more" if few else ""
        why = f"{len(done)} layers of {kinds}, {size / 1e6:.0f} MB in oneDNN's order{some}"
        return "packed", f"{why}; {cpu_capability()}"
    if columns := [layer for layer in layers if isinstance(layer, ColumnLinear)]:
        size = sum(layer.weight.nbytes for layer in columns)
        why = f"{len(columns)} layers of {kinds}, {size / 1e6:.0f} MB column by column for {SOME} rows and more"
        return "columns", f"{why}; {cpu_capability()}"
    cause = _cause([each for each in layers if _suits(each.weight)], LEAST) or "they were not asked for"
    unsuited = next((why_not_packable(each.weight.dtype) for each in layers if each.weight.dtype not in KINDS), None)
    return "plain", f"torch's own for {kinds}, {cpu_capability()}; not packed: {unsuited or cause}"


def _few(dtype: torch.dtype) -> int:
    """See `FEW`; 0 for other dtypes."""
    wide = cpu_capability()
    return next((rows for name, rows in FEW.items() if wide.startswith(name)), 0) if dtype == torch.float32 else 0


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _state(weight: Tensor) -> tuple[int, int]:
    """A value that changes when the weight is written to, or its tensor is replaced."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


def _suits(weight: Tensor) -> bool:
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and weight.device.type == "cpu" and weight.dtype in KINDS


def _kernels() -> Any:
    return torch.ops.mkldnn
