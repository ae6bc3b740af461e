"""Triton kernels for parts of a network that take torch several kernels: the rotary embedding of queries and keys, and
the gate of an MLP.

Each program computes numbers of one token, and kernels are compiled independently of the number of tokens: so a token
has the same bits beside any others, and a step of another size compiles nothing. Numbers are rounded wherever
transformers rounds them, including between products and sums.

Importing this module requires Triton. `fused` decides when the kernels are used.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl


class TurnForm(NamedTuple):
    """The compile-time constants of the rotary kernel: the numbers of heads of queries and keys, of `dim` dimensions. A
    program rotates `head_block` heads. `pair_block`: half of the dimensions, rounded up to a power of two."""

    heads: int
    key_heads: int
    dim: int
    head_block: int
    pair_block: int


class GateForm(NamedTuple):
    """The compile-time constants of the gate kernel: rows of `width` numbers, of which a program takes a `block`."""

    width: int
    block: int


@triton.jit
def turn(queries, keys, cos, sin, turned_queries, turned_keys, form: tl.constexpr):
    """Rotate queries `[tokens, heads, dim]` and keys `[tokens, key_heads, dim]` by the cosines and sines `[tokens,
    dim]` of their tokens. Dimensions i and i + `dim` / 2 are a pair."""
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first = part * form.head_block
    if first < form.heads:
        _turn_heads(queries, turned_queries, cos, sin, token=token, first=first, heads=form.heads, form=form)
    else:
        first -= (form.heads + form.head_block - 1) // form.head_block * form.head_block
        _turn_heads(keys, turned_keys, cos, sin, token=token, first=first, heads=form.key_heads, form=form)


@triton.jit
def _turn_heads(vectors, turned, cos, sin, token, first, heads: tl.constexpr, form: tl.constexpr):
    """Rotate `head_block` heads of a token, from `first` on."""
    half: tl.constexpr = form.dim // 2
    head, pair = first + tl.arange(0, form.head_block), tl.arange(0, form.pair_block)
    there = (token * heads + head)[:, None] * form.dim + pair[None, :]
    inside = (head < heads)[:, None] & (pair < half)[None, :]
    one = tl.load(vectors + there, mask=inside, other=0.0)
    other = tl.load(vectors + there + half, mask=inside, other=0.0)
    at, known = token * form.dim + pair, pair < half
    cos_one = tl.load(cos + at, mask=known, other=0.0)[None, :]
    cos_other = tl.load(cos + at + half, mask=known, other=0.0)[None, :]
    sin_one = tl.load(sin + at, mask=known, other=0.0)[None, :]
    sin_other = tl.load(sin + at + half, mask=known, other=0.0)[None, :]
    first_half = _rounded_product(one, cos_one) - _rounded_product(other, sin_one)
    second_half = _rounded_product(other, cos_other) + _rounded_product(one, sin_other)
    tl.store(turned + there, first_half.to(one.dtype), mask=inside)
    tl.store(turned + there + half, second_half.to(one.dtype), mask=inside)


@triton.jit
def gate(gates, values, out, form: tl.constexpr):
    """`out` `[tokens, width]`: the SiLU of `gates`, times `values`."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * form.block + tl.arange(0, form.block)
    there, inside = row * form.width + column, column < form.width
    given = tl.load(gates + there, mask=inside, other=0.0)
    wide = given.to(tl.float32)
    small = tl.exp(-tl.abs(wide))  # never overflows
    opened = (wide * tl.where(wide < 0, small, 1.0) / (1 + small)).to(given.dtype)
    product = _rounded_product(opened, tl.load(values + there, mask=inside, other=0.0))
    tl.store(out + there, product.to(given.dtype), mask=inside)


@triton.jit
def _rounded_product(one, other):
    """A product in float32, rounded to the dtype of its factors."""
    return (one.to(tl.float32) * other.to(tl.float32)).to(one.dtype).to(tl.float32)
