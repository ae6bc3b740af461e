"""Moves stored keys to another position, by one rotation for the whole message.

A key is stored as its layer made it, rotated to the position where it was encoded. To read it elsewhere, every key of
the message is rotated by the same angle, that of offset - position. If the two are equal nothing is rotated, and stored
keys are never modified. A factor that the model multiplies into its rotation (yarn) is unaffected. Independent of
models; `infer` finds the rotation of a layer by trying the known forms on measured keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Form = Literal["none", "half", "interleaved"]


class Workspace:
    """Memory that every layer of a forward overwrites, because the first write to fresh memory costs as much again. It
    has one tensor for each name, device and dtype, as long as the longest that was requested."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> Tensor:
        """An uninitialised, contiguous tensor, valid until the next one of its name is taken."""
        size, kind = math.prod(shape), (name, device, dtype)
        if kind not in self._blocks or len(self._blocks[kind]) < size:
            self._blocks[kind] = torch.empty(size, device=device, dtype=dtype)
        return self._blocks[kind][:size].view(*shape)


class Angles(NamedTuple):
    """Cosines and sines `[tokens, 2n]`, float32, of the angles by which the n pairs of dimensions rotate: for each
    dimension those of its pair, with negative sines for the first of a pair."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, eq=False)
class Rotation:
    """How one layer's keys depend on position.

    `form` "half" pairs dimension i with i + n, "interleaved" 2i with 2i + 1, "none" is a layer without rotary
    embedding. `frequencies` are the n angles per position (float64, on the CPU); `first` is the first of the 2n rotated
    dimensions. Layers with the same rotation share one object.
    """

    form: Form
    frequencies: Tensor | None = None
    first: int = 0

    @property
    def pairs(self) -> tuple[int, int, int, int]:
        """The number of pairs of dimensions, the first dimension of the first pair, the distance between pairs, and the
        distance between the two dimensions of a pair."""
        if self.form == "none" or self.frequencies is None:
            return 0, 0, 1, 0
        count = len(self.frequencies)
        return count, self.first, *((1, count) if self.form == "half" else (2, 1))

    def waves(self, by: Sequence[int]) -> Tensor:
        """Cosines and sines `[shifts, 2, n]` of the pairs for shifts by these numbers of positions, float32, on the
        CPU."""
        if self.form == "none" or self.frequencies is None:
            return torch.zeros(len(by), 2, 0)
        angles = torch.tensor(by, dtype=torch.float64).unsqueeze(-1) * self.frequencies
        return torch.stack([angles.cos(), angles.sin()], 1).float()

    def turn(self, keys: Tensor, by: int) -> Tensor:
        """Keys `[..., tokens, dim]` moved by `by` positions; computed in float32, returned in their dtype.

        `by` 0, or a layer without rotary embedding, returns `keys` itself.
        """
        if by == 0 or self.form == "none":
            return keys
        cos, sin = self.angles(torch.tensor([by]), keys.device)
        last = self.first + cos.shape[-1]
        old = keys[..., self.first : last].float()
        turned = torch.addcmul(old * cos, self._swapped(old), sin).to(keys.dtype)
        return torch.cat([keys[..., : self.first], turned, keys[..., last:]], -1)

    def angles(self, by: Tensor, device: torch.device) -> Angles:
        """The angles by which `turn_into` moves each token, for `by` `[tokens]` positions (integers, on the CPU)."""
        assert self.frequencies is not None
        angles = by.double().unsqueeze(-1) * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        if self.form == "half":
            each = Angles(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))
        else:
            each = Angles(torch.stack([cos, cos], -1).flatten(-2), torch.stack([-sin, sin], -1).flatten(-2))
        return Angles(each.cos.to(device, torch.float32), each.sin.to(device, torch.float32))

    def angles_of_pieces(self, by: Sequence[int], lengths: Sequence[int], device: torch.device) -> Angles:
        """The angles of the tokens of consecutive pieces, each of which moves as a whole.

        Args:
            by: The number of positions by which each piece moves.
            lengths: The number of tokens of each piece.
            device: Where the angles are needed. One row per piece is sent there, and repeated there.

        Returns:
            Angles `[sum of lengths, 2n]`.
        """
        table = torch.stack(self.angles(torch.tensor(by), torch.device("cpu"))).to(device)
        counts = torch.tensor(lengths).to(device)
        return Angles(*table.repeat_interleave(counts, 1, output_size=sum(lengths)))

    def turn_into(self, out: Tensor, keys: Tensor, angles: Angles, workspace: Workspace) -> None:
        """Write keys `[..., tokens, dim]`, moved, into `out` of the same shape; like `turn`, but without gradients."""
        last = self.first + angles.cos.shape[-1]
        old = keys[..., self.first : last]
        if few_launches(old.device):
            self._turn_in_few_launches(out[..., self.first : last], old, angles, workspace)
        else:
            self._turn_in_cache(out[..., self.first : last], old, angles, workspace)
        if old.shape != keys.shape:
            out[..., : self.first], out[..., last:] = keys[..., : self.first], keys[..., last:]

    def _turn_in_few_launches(self, out: Tensor, old: Tensor, angles: Angles, workspace: Workspace) -> None:
        """Three operations, which convert dtypes as they read and write. The result is the same: float32, rounded
        once."""
        other = self._swapped(old, workspace.take("swapped", old.shape, old.device, old.dtype))
        turned = workspace.take("turned", old.shape, old.device, torch.float32)
        torch.mul(old, angles.cos, out=turned)
        torch.addcmul(turned, other, angles.sin, out=out)

    def _turn_in_cache(self, out: Tensor, old: Tensor, angles: Angles, workspace: Workspace) -> None:
        """One pass over memory, and the rest in float32 in the processor's cache."""
        turned = workspace.take("turned", old.shape, old.device, torch.float32).copy_(old)
        other = self._swapped(turned, workspace.take("swapped", old.shape, old.device, torch.float32))
        turned.mul_(angles.cos).addcmul_(other, angles.sin)
        out.copy_(turned)

    def _swapped(self, keys: Tensor, out: Tensor | None = None) -> Tensor:
        """The rotated dimensions `[..., 2n]`, with the two dimensions of each pair exchanged."""
        if self.form == "half":
            middle = keys.shape[-1] // 2
            return torch.cat([keys[..., middle:], keys[..., :middle]], -1, out=out)
        pairs = None if out is None else out.view(*out.shape[:-1], -1, 2)
        return torch.stack([keys[..., 1::2], keys[..., ::2]], -1, out=pairs).flatten(-2)


def few_launches(device: torch.device) -> bool:
    """Whether every operation on this device costs a launch, so that few operations over much memory are best.
    Elsewhere memory traffic dominates, and work is done in chunks that stay in the processor's cache."""
    return device.type == "cuda"


def candidates(frequencies: Iterable[Tensor], dim: int) -> Iterator[Rotation]:
    """The known forms of rotation for keys of `dim` dimensions, the likely ones first."""
    for form in ("half", "interleaved"):
        for freq in frequencies:
            rotated = 2 * len(freq)
            if rotated <= dim:
                yield Rotation(form, freq)
                if rotated < dim:
                    yield Rotation(form, freq, dim - rotated)
    yield Rotation("none")


def infer(at: dict[int, Tensor], forms: Iterable[Rotation], tolerance: float) -> tuple[Rotation | None, float]:
    """The rotation that explains keys `[heads, tokens, dim]` of the same tokens measured at several shifts.

    `at` maps shift → keys, including shift 0. Returns the best form and its worst error relative to the largest key, or
    None with that error if no form is within `tolerance`.
    """
    base = at[0].float()
    scale = max(float(base.abs().max()), 1e-6)
    best: tuple[Rotation | None, float] = (None, float("inf"))
    for form in forms:
        error = max(float((form.turn(base, by) - keys.float()).abs().max()) / scale for by, keys in at.items())
        if not error >= best[1]:
            best = (form, error)
    rotation, error = best
    return (rotation if error <= tolerance else None), error
