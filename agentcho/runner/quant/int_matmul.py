"""Products of rows with a quantized matrix that do not dequantize it each time.

Each product is built for one matrix and called with rows `[rows, in]`; no row influences the product of another. A
product is used on a processor only if a trial, of one row and of several, matches the dequantized matrix. Independent
of layers and models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from agentcho.config import Bits
from agentcho.runner.model.device import has_bfloat16
from agentcho.runner.quant.quantize import GROUP, QuantizedMatrix, quantized_matrix

Product = Callable[[Tensor], Tensor]
Making = Callable[[QuantizedMatrix], Product]
AT_ONCE = 4
"""The number of rows that torch's 8-bit product multiplies nearly as quickly as one; eight take six times as long as
one."""
TRIED = (1, 9)
"""The numbers of rows in a trial: kernels for few rows differ from those for many."""
OUT = 16
"""torch's 4-bit product takes matrices whose number of rows is a multiple of this."""


def int8_matmul(matrix: QuantizedMatrix) -> Product:
    """torch's 8-bit product on a CPU, a few rows at a time. It is fast only in bfloat16."""
    numbers, scale = matrix.numbers, matrix.scale.view(-1)

    def product(rows: Tensor) -> Tensor:
        if len(rows) <= AT_ONCE:
            return torch._weight_int8pack_mm(rows, numbers, scale)
        return torch.cat([torch._weight_int8pack_mm(some, numbers, scale) for some in rows.split(AT_ONCE)])  # type: ignore[no-untyped-call]

    return product


def int4_matmul(matrix: QuantizedMatrix) -> Product:
    """torch's 4-bit product on a CPU, over a copy in the order of its kernels. It is fast only in bfloat16."""
    nibbles = torch.ops.aten._convert_weight_to_int4pack_for_cpu((matrix.numbers + 8).int(), 1)
    scale = matrix.scale.T
    scaled = torch.stack((scale, torch.zeros_like(scale)), dim=2).contiguous()
    return lambda rows: torch.ops.aten._weight_int4pack_mm_for_cpu(rows, nibbles, GROUP, scaled)


def fp16_matmul(matrix: QuantizedMatrix) -> Product:
    """FBGEMM's product in float32, over a float16 copy that holds the numbers exactly; a factor per row makes up for
    the small range of float16. It reads half the bytes of a float32 matrix."""
    scale, one = matrix.scale, matrix.scale.shape[1] == 1
    most = scale.abs().amax(1)
    factor = most if one else torch.ldexp(torch.ones_like(most), torch.frexp(most).exponent)
    factor = torch.where(most == 0, torch.ones_like(factor), factor)
    copy = torch.ops.quantized.linear_prepack_fp16(matrix._replace(scale=scale / factor.unsqueeze(1)).whole(), None)
    return lambda rows: torch.ops.quantized.linear_dynamic_fp16(rows, copy) * factor


def fastest_matmul(bits: Bits, dtype: torch.dtype, device: torch.device) -> Making | None:
    """The product to use, or None if dequantizing each time is the only one that is correct here or known to be
    fast."""
    if device.type != "cpu":
        return None
    packed: Making = int8_matmul if bits == "int8" else int4_matmul
    making = {torch.bfloat16: packed, torch.float32: fp16_matmul}.get(dtype)
    return making if making is not None and _agrees(making, bits, dtype) else None


FEW: dict[Making, int] = {int8_matmul: 16, int4_matmul: 24}
"""The largest number of rows for which a product is faster than the dequantized matrix, where the hardware multiplies
bfloat16."""


def row_limit(making: Making) -> int | None:
    """The largest number of rows to use a product for, or None for no limit."""
    return FEW.get(making) if has_bfloat16() else None


def accepts_rows(making: Making, rows: int) -> bool:
    """Whether the product can be built for a matrix of `rows` rows."""
    return making is not int4_matmul or rows % OUT == 0


def _agrees(making: Making, bits: Bits, dtype: torch.dtype) -> bool:
    """Whether the products of a trial match those of the dequantized matrix."""
    generator = torch.Generator().manual_seed(0)
    matrix = quantized_matrix(torch.randn(2 * OUT, 4 * GROUP, generator=generator).to(dtype), bits)
    try:
        product = making(matrix)
        return all(_close(product, matrix, torch.randn(n, 4 * GROUP, generator=generator).to(dtype)) for n in TRIED)
    except (RuntimeError, NotImplementedError, AttributeError):  # another build of torch, or another processor
        return False


def _close(product: Product, matrix: QuantizedMatrix, rows: Tensor) -> bool:
    bound = 1e-4 if rows.dtype == torch.float32 else 2e-2
    wanted = rows.double() @ matrix.whole().double().T
    off: Any = (product(rows).double() - wanted).abs().max() / wanted.abs().max()
    return bool(off < bound)
