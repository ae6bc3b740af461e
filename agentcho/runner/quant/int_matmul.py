"""Products of rows with a matrix in few bits, without its being multiplied out each time.

Each is made for one matrix and called with rows `[rows, in]`, and no row has a part in the product of another. One is
used on a processor only if a trial, of one row and of several, gives what the matrix multiplied out gives. Does not
know: layers, models.
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
"""Rows that torch's product of 8 bits multiplies nearly as quickly as one; eight take six times as long as one."""
TRIED = (1, 9)
"""Rows of a trial: kernels for few differ from those for many."""
OUT = 16
"""torch's product of 4 bits takes matrices with a multiple of so many rows."""


def int8_matmul(matrix: QuantizedMatrix) -> Product:
    """By torch's product of 8 bits, on a CPU, of few rows at a time. It is quick in bfloat16 alone."""
    numbers, scale = matrix.numbers, matrix.scale.view(-1)

    def product(rows: Tensor) -> Tensor:
        if len(rows) <= AT_ONCE:
            return torch._weight_int8pack_mm(rows, numbers, scale)
        return torch.cat([torch._weight_int8pack_mm(some, numbers, scale) for some in rows.split(AT_ONCE)])  # type: ignore[no-untyped-call]

    return product


def int4_matmul(matrix: QuantizedMatrix) -> Product:
    """By torch's product of 4 bits, on a CPU, over a copy in the order of its kernels. Quick in bfloat16 alone."""
    nibbles = torch.ops.aten._convert_weight_to_int4pack_for_cpu((matrix.numbers + 8).int(), 1)
    scale = matrix.scale.T
    scaled = torch.stack((scale, torch.zeros_like(scale)), dim=2).contiguous()
    return lambda rows: torch.ops.aten._weight_int4pack_mm_for_cpu(rows, nibbles, GROUP, scaled)


def fp16_matmul(matrix: QuantizedMatrix) -> Product:
    """In float32 by FBGEMM, over a copy in float16, which holds the numbers exactly; a factor for each row makes up for
    its small range. It reads half of what float32 would be."""
    scale, one = matrix.scale, matrix.scale.shape[1] == 1
    most = scale.abs().amax(1)
    factor = most if one else torch.ldexp(torch.ones_like(most), torch.frexp(most).exponent)
    factor = torch.where(most == 0, torch.ones_like(factor), factor)
    copy = torch.ops.quantized.linear_prepack_fp16(matrix._replace(scale=scale / factor.unsqueeze(1)).whole(), None)
    return lambda rows: torch.ops.quantized.linear_dynamic_fp16(rows, copy) * factor


def fastest_matmul(bits: Bits, dtype: torch.dtype, device: torch.device) -> Making | None:
    """The product to take; None: multiplied out each time is the only one that is right here, or known to be quick."""
    if device.type != "cpu":
        return None
    packed: Making = int8_matmul if bits == "int8" else int4_matmul
    making = {torch.bfloat16: packed, torch.float32: fp16_matmul}.get(dtype)
    return making if making is not None and _agrees(making, bits, dtype) else None


FEW: dict[Making, int] = {int8_matmul: 16, int4_matmul: 24}
"""Up to how many rows a product is quicker than the matrix multiplied out, where bfloat16 is multiplied in hardware."""


def row_limit(making: Making) -> int | None:
    """Up to how many rows it is to be used; None: for any number."""
    return FEW.get(making) if has_bfloat16() else None


def accepts_rows(making: Making, rows: int) -> bool:
    """Whether it can be made for a matrix of so many rows."""
    return making is not int4_matmul or rows % OUT == 0


def _agrees(making: Making, bits: Bits, dtype: torch.dtype) -> bool:
    """Whether the products of a trial are those of the matrix multiplied out."""
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
