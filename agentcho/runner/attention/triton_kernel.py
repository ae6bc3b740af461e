"""The Triton kernel that attends to keys and values where they are stored, and rotates keys as it reads them.

A program takes one query token, one key-value head with all query heads that share it, and a part of the tokens that
the query may see. It returns the weighted values of that part, and the logarithms of the sums of their weights. A token
lies in a pool, in the row that a table gives, or in one of the blocks that are its row's own lanes. Keys in a pool are
rotated by the table's shift, as in MiniPIC (arXiv 2606.13126): angles are integers in units of 2^-64 of a turn, which
wrap around, so that large shifts lose no precision.

A second kernel, `merge`, combines the parts.

Importing this module requires Triton. The caller (`triton_paged`) fills and validates the tables.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

NOWHERE = tl.constexpr(float("-inf"))
MERGED = tl.constexpr(16)
"""The number of parts that are combined at a time."""
RADIANS = tl.constexpr(6.283185307179586 / 4294967296)
"""The radians of a 2^32th of a turn."""
WAVE_ERROR = 2**-20.5
"""The error bound of PTX's `cos.approx.f32` and `sin.approx.f32` for angles within a turn. The unit that computes them
is within 2^-20.9; the rest is lost when the instruction brings angles into the unit's range."""
TURN_ERROR = 2**-19
"""The error bound of a dimension of a rotated key, as a share of the length of its pair. The sum is 1.5e-6: 9.5e-7
(2^0.5 x `WAVE_ERROR`) from cosine and sine together, 4.0e-7 from the angle as float32, and 1.2e-7 from products and
their sum in float32. Rounding to bfloat16 has an error of up to 2^-9, a thousand times as much."""


class KernelForm(NamedTuple):
    """The compile-time constants of one kernel.

    - `own`: it reads lanes `[blocks, heads, lane, dim]`; else pools `[token rows, heads, dim]`.
    - `groups` query heads share each of the `heads` key heads, of `dim` dimensions, with values of `value_dim`.
    - `pairs` pairs of dimensions rotate: `begin` + `step` i with the one `gap` further. The `rest` dimensions from
      `rest_begin` on do not.
    - `window`: 0: all keys are seen; 1: those at positions above the query's minus `size`; 2: those of its chunk of
      `size`. `capped`: scores have a soft cap. `wide`: products are in float32. `quick`: cosines and sines use
      approximate instructions of NVIDIA GPUs (see `TURN_ERROR`); elsewhere, as in the interpreter, they are Triton's.
    - A program reads `span` tokens, `block` at a time. The other blocks are `groups`, `value_dim`, `pairs` and `rest`
      rounded up to powers of two that Triton can multiply.
    """

    own: bool
    heads: int
    groups: int
    dim: int
    value_dim: int
    pairs: int
    begin: int
    step: int
    gap: int
    rest: int
    rest_begin: int
    window: int
    size: int
    capped: bool
    wide: bool
    quick: bool
    span: int
    block: int
    lane: int
    group_block: int
    value_block: int
    pair_block: int
    rest_block: int


@triton.jit(
    do_not_specialize=["width", "parts", "first"],
    do_not_specialize_on_alignment=["table", "counts", "rows", "at", "blocks"],
)
def weigh(
    asked,
    keys,
    values,
    table,
    counts,
    rows,
    at,
    turns,
    blocks,
    out,
    sums,
    width,
    parts,
    first,
    scale,
    cap,
    form: tl.constexpr,
):
    """For each query `asked` `[heads, groups, dim]`, each head, and each part from `first` on: `out` `[queries, heads,
    parts, groups, value_dim]`, zeros where nothing is seen, and `sums` without the last dimension, float32.

    - Query i is of row `rows[i]`, at position `at[i]`. In a pool it sees the first `counts[row]` tokens of the row's
      `table` `[3, width]`: rows in the pool, shifts, positions. In its lanes, the row's `blocks` `[rows, width]`, it
      sees the tokens up to place `counts[i]`, which is itself and always seen; there the `table` `[blocks, lane]` has
      only positions.
    - `turns`: the angle of each pair for one position, in units of 2^-64 of a turn.
    """
    query, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    slot, position = tl.load(rows + query), tl.load(at + query)
    count = tl.load(counts + query) + 1 if form.own else tl.load(counts + slot)
    place = query * form.heads + head
    table += 0 if form.own else slot * 3 * width
    best = tl.full([form.group_block], NOWHERE, tl.float32)
    total = tl.full([form.group_block], 0.0, tl.float32)
    found = tl.full([form.group_block, form.value_block], 0.0, tl.float32)
    stop = tl.minimum((part + 1) * form.span, count)
    for start in range(part * form.span, stop, form.block):
        token = start + tl.arange(0, form.block)
        home = tl.load(blocks + slot * width + start // form.lane).to(tl.int64) if form.own else slot
        row, by, seen = _tokens(table, token, token < stop, home, position, count, width, form)
        lane = (home * form.heads + head) * form.lane if form.own else head.to(tl.int64)
        there = tl.where(token < stop, lane + row, -1)
        scores = _scores(asked + place * form.groups * form.dim, keys, there, by, turns, form) * scale
        if form.capped:
            less = tl.exp(-2 * tl.abs(scores) / cap)
            scores = tl.where(scores < 0, -cap, cap) * (1 - less) / (1 + less)
        scores = tl.where(seen[None, :], scores, NOWHERE)
        said = _read(values, there, form.value_dim, 0, 1, form.value_dim, form.value_block)
        best, total, found = _added(best, total, found, scores, said, form)
    _write(out, sums, (place * parts + first + part) * form.groups, best, total, found, form)


@triton.jit(do_not_specialize=["parts"], do_not_specialize_on_alignment=["sinks"])
def merge(found, sums, sinks, out, parts, sunk: tl.constexpr, form: tl.constexpr):
    """Combine what `weigh` `found` in all `parts` of a query's context, for each query and each of its heads: `out`
    `[queries, heads x groups, value_dim]`, zeros where nothing is seen. If `sunk`, `sinks` `[heads x groups]`, float32,
    take their share of the weight."""
    query, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = (query * form.heads + head // form.groups) * parts * form.groups + head % form.groups
    dim = tl.arange(0, form.value_block)
    best, total = tl.full([1], NOWHERE, tl.float32), tl.full([1], 0.0, tl.float32)
    whole = tl.full([form.value_block], 0.0, tl.float32)
    if sunk:
        best = tl.load(sinks + head + tl.arange(0, 1))
        total = tl.where(best == NOWHERE, 0.0, 1.0)
    for start in range(0, parts, MERGED):
        part = start + tl.arange(0, MERGED)
        there = place + part * form.groups
        each = tl.load(sums + there, mask=part < parts, other=NOWHERE)
        mask = (part < parts)[:, None] & (dim < form.value_dim)[None, :]
        values = tl.load(found + there[:, None] * form.value_dim + dim[None, :], mask=mask, other=0.0)
        top = tl.maximum(best, tl.max(each, 0))
        base = tl.where(top == NOWHERE, 0.0, top)
        shares, kept = tl.exp(each - base), tl.exp(best - base)
        whole = whole * kept + tl.sum(values * shares[:, None], 0)
        best, total = top, total * kept + tl.sum(shares, 0)
    done = whole / tl.where(total > 0, total, 1.0)
    to = out + (query * form.heads * form.groups + head) * form.value_dim + dim
    tl.store(to, done.to(out.dtype.element_ty), mask=dim < form.value_dim)


@triton.jit
def _added(best, total, found, scores, said, form: tl.constexpr):
    """Update the largest score, the sum of the weights relative to it, and the weighted values with those of more
    tokens."""
    top = tl.maximum(best, tl.max(scores, 1))
    base = tl.where(top == NOWHERE, 0.0, top)
    weights, kept = tl.exp(scores - base[:, None]), tl.exp(best - base)
    return top, total * kept + tl.sum(weights, 1), found * kept[:, None] + _product(weights, said, form)


@triton.jit
def _tokens(table, token, inside, home, position, count, width, form: tl.constexpr):
    """Where tokens lie, their shifts, and whether they are seen. Those of a lane are all in block `home`."""
    if form.own:
        row, by = (token % form.lane).to(tl.int64), token
        place = tl.load(table + home * form.lane + row, mask=inside, other=0)
    else:
        row = tl.load(table + token, mask=inside, other=0).to(tl.int64) * form.heads
        by = tl.load(table + width + token, mask=inside, other=0)
        place = tl.load(table + 2 * width + token, mask=inside, other=0)
    if form.window == 0:
        return row, by, inside
    near = place > position - form.size if form.window == 1 else place // form.size == position // form.size
    if form.own:
        near = near | (token == count - 1)
    return row, by, inside & near


@triton.jit
def _scores(queries, keys, there, by, phases, form: tl.constexpr):
    """The products `[groups, tokens]` of queries and rotated keys."""
    group = tl.arange(0, form.group_block)
    asked = tl.where(group < form.groups, group, -1)
    scores = tl.full([form.group_block, form.block], 0.0, tl.float32)
    if form.pairs:
        begin, second = form.begin, form.begin + form.gap
        one = _read(keys, there, form.dim, begin, form.step, form.pairs, form.pair_block).to(tl.float32)
        other = _read(keys, there, form.dim, second, form.step, form.pairs, form.pair_block).to(tl.float32)
        one, other = _turned(one, other, by, phases, form)
        query = _read(queries, asked, form.dim, begin, form.step, form.pairs, form.pair_block)
        scores += _product(query, tl.trans(one), form)
        query = _read(queries, asked, form.dim, second, form.step, form.pairs, form.pair_block)
        scores += _product(query, tl.trans(other), form)
    if form.rest:
        left = _read(keys, there, form.dim, form.rest_begin, 1, form.rest, form.rest_block)
        query = _read(queries, asked, form.dim, form.rest_begin, 1, form.rest, form.rest_block)
        scores += _product(query, tl.trans(left), form)
    return scores


@triton.jit
def _turned(one, other, by, phases, form: tl.constexpr):
    """Both dimensions of each pair `[tokens, pairs]`, moved by `by` positions. Each is within `TURN_ERROR` of the exact
    value, as a share of the pair's length."""
    pair = tl.arange(0, form.pair_block)
    phase = tl.load(phases + pair, mask=pair < form.pairs, other=0)
    angle = ((by.to(tl.int64)[:, None] * phase[None, :]) >> 32).to(tl.float32) * RADIANS
    cos, sin = _waves(angle, form)
    return one * cos - other * sin, other * cos + one * sin


@triton.jit
def _waves(angle, form: tl.constexpr):
    """Cosines and sines of angles within [-pi, pi]. The `quick` ones are within `WAVE_ERROR` and need no range
    reduction, which saves its registers and stack."""
    if form.quick:
        cos = tl.inline_asm_elementwise("cos.approx.f32 $0, $1;", "=f,f", [angle], tl.float32, is_pure=True, pack=1)
        sin = tl.inline_asm_elementwise("sin.approx.f32 $0, $1;", "=f,f", [angle], tl.float32, is_pure=True, pack=1)
        return cos, sin
    return tl.cos(angle), tl.sin(angle)


@triton.jit
def _read(
    vectors,
    there,
    dim: tl.constexpr,
    begin: tl.constexpr,
    step: tl.constexpr,
    count: tl.constexpr,
    block: tl.constexpr,
):
    """Every `step`th number, `count` of them, from `begin` on, of the vectors of `dim` numbers at indices `there`;
    zeros where an index is -1."""
    nth = tl.arange(0, block)
    mask = (there >= 0)[:, None] & (nth < count)[None, :]
    return tl.load(vectors + there[:, None] * dim + begin + step * nth[None, :], mask=mask, other=0.0)


@triton.jit
def _product(one, other, form: tl.constexpr):
    """A product of two matrices, one of which comes from memory: in that one's dtype, summed in float32."""
    if form.wide:
        return tl.dot(one.to(tl.float32), other.to(tl.float32), input_precision="ieee")
    if other.dtype == tl.float32:
        return tl.dot(one, other.to(one.dtype))
    return tl.dot(one.to(other.dtype), other)


@triton.jit
def _write(out, sums, place, best, total, found, form: tl.constexpr):
    """Write the results of one program."""
    group, dim = tl.arange(0, form.group_block), tl.arange(0, form.value_block)
    some = tl.where(total > 0, total, 1.0)
    tl.store(sums + place + group, tl.where(total > 0, best + tl.log(some), NOWHERE), mask=group < form.groups)
    mask = (group < form.groups)[:, None] & (dim < form.value_dim)[None, :]
    there = (place + group)[:, None] * form.value_dim + dim[None, :]
    tl.store(out + there, found / some[:, None], mask=mask)
