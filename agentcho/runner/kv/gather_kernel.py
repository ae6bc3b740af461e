"""The Triton kernel that gathers a context: keys and values of all its pieces, from wherever they lie to where they are
attended to, rotating keys on the way.

A program copies one head of a few tokens of one piece, which share one rotation; so it reads cosines and sines, and
computes none. It is compiled independently of the numbers of pieces and tokens.

Importing this module requires Triton. The caller (`triton_gather`) lays blocks out and validates them.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl


class GatherForm(NamedTuple):
    """The compile-time constants of one kernel: keys of `heads` heads and `dim` dimensions, with values of `value_dim`.
    `pairs` pairs of dimensions rotate: `begin` + `step` i with the one `gap` further. A program copies `block` tokens.
    The other blocks are `pairs`, `dim` and `value_dim` rounded up to powers of two."""

    heads: int
    dim: int
    value_dim: int
    pairs: int
    begin: int
    step: int
    gap: int
    block: int
    pair_block: int
    dim_block: int
    value_block: int


@triton.jit(do_not_specialize=["key_room", "value_room"])
def gather(
    keys,
    values,
    new_keys,
    new_values,
    rows,
    blocks,
    waves,
    out_keys,
    out_values,
    key_room,
    value_room,
    form: tl.constexpr,
):
    """Copy keys and values to `out_keys` and `out_values`, where heads are `key_room` and `value_room` tokens apart.

    - `blocks` `[blocks, 5]`: for each block its first token, its place in the output, its number of tokens, the index
      of its rotation in `waves`, and 1 if its tokens are of this forward.
    - Token i of a context lies in row `rows[i]` of the pools `[rows, heads, dim]`; token i of this forward in row i of
      `new_keys` and `new_values`.
    - `waves` `[shifts, 2, pairs]`: the cosines of each shift, and its sines, float32.
    """
    block, head = blocks + tl.program_id(0).to(tl.int64) * 5, tl.program_id(1).to(tl.int64)
    first, place = tl.load(block).to(tl.int64), tl.load(block + 1).to(tl.int64)
    token = tl.arange(0, form.block)
    inside = token < tl.load(block + 2)
    turned = waves + tl.load(block + 3).to(tl.int64) * 2 * form.pairs
    to_keys, to_values = head * key_room + place + token, head * value_room + place + token
    if tl.load(block + 4):
        there = (first + token) * form.heads + head
        _move(
            new_keys,
            new_values,
            there,
            out_keys=out_keys,
            to_keys=to_keys,
            out_values=out_values,
            to_values=to_values,
            inside=inside,
            waves=turned,
            form=form,
        )
    else:
        there = tl.load(rows + first + token, mask=inside, other=0) * form.heads + head
        _move(
            keys,
            values,
            there,
            out_keys=out_keys,
            to_keys=to_keys,
            out_values=out_values,
            to_values=to_values,
            inside=inside,
            waves=turned,
            form=form,
        )


@triton.jit
def _move(keys, values, there, out_keys, to_keys, out_values, to_values, inside, waves, form: tl.constexpr):
    """Copy keys, rotated, and values unchanged."""
    _turn(keys, there, out_keys, to_keys, inside=inside, waves=waves, form=form)
    _copy(
        values,
        there,
        out_values,
        to_values,
        inside=inside,
        begin=0,
        end=form.value_dim,
        dim=form.value_dim,
        block=form.value_block,
    )


@triton.jit
def _turn(keys, there, out, to, inside, waves, form: tl.constexpr):
    """Copy keys, rotated; the dimensions before and after the rotated ones unchanged."""
    if form.pairs:
        pair = tl.arange(0, form.pair_block)
        known = pair < form.pairs
        mask = inside[:, None] & known[None, :]
        one = there[:, None] * form.dim + form.begin + form.step * pair[None, :]
        first = tl.load(keys + one, mask=mask, other=0.0)
        second = tl.load(keys + one + form.gap, mask=mask, other=0.0).to(tl.float32)
        cos = tl.load(waves + pair, mask=known, other=1.0)[None, :]
        sin = tl.load(waves + form.pairs + pair, mask=known, other=0.0)[None, :]
        wide = first.to(tl.float32)
        goal = out + to[:, None] * form.dim + form.begin + form.step * pair[None, :]
        tl.store(goal, (wide * cos - second * sin).to(first.dtype), mask=mask)
        tl.store(goal + form.gap, (second * cos + wide * sin).to(first.dtype), mask=mask)
    if 2 * form.pairs < form.dim:
        _copy(
            keys,
            there,
            out,
            to,
            inside=inside,
            begin=form.begin,
            end=form.begin + 2 * form.pairs,
            dim=form.dim,
            block=form.dim_block,
        )


@triton.jit
def _copy(
    vectors,
    there,
    out,
    to,
    inside,
    begin: tl.constexpr,
    end: tl.constexpr,
    dim: tl.constexpr,
    block: tl.constexpr,
):
    """Copy vectors of `dim` numbers: all, or those before `begin` and from `end` on."""
    nth = tl.arange(0, block)
    left = nth < dim
    if end - begin < dim:
        left = left & ((nth < begin) | (nth >= end))
    mask = inside[:, None] & left[None, :]
    found = tl.load(vectors + there[:, None] * dim + nth[None, :], mask=mask, other=0.0)
    tl.store(out + to[:, None] * dim + nth[None, :], found, mask=mask)
