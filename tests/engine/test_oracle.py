"""The oracle against plain stock forwards: it must be right, and detect what it is meant to detect."""

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..engines import Engines
from .families import Family, families
from .oracle import Message, Oracle

A, B, C = tuple(range(40, 53)), tuple(range(70, 81)), tuple(range(100, 117))


@pytest.mark.parametrize("bos", [None, 9], ids=["bare", "bos"])
def test_a_line_is_one_stock_forward(family: Family, engines: Engines, bos: int | None) -> None:
    model = engines.stock(family)
    first = 0 if bos is None else 1
    oracle, line = _line(model, family, bos, first)
    ids = torch.tensor([[*([] if bos is None else [bos]), *A, *B, *C]])
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits[0, first:]
    ours = torch.cat([oracle.logits(index) for index in line])
    assert _gap(ours, whole) < 1e-5


def test_a_shifted_line_says_the_same(family: Family, engines: Engines) -> None:
    near, far = (_line(engines.stock(family), family, None, start) for start in (0, 96))
    assert max(_gap(near[0].logits(i), far[0].logits(i)) for i in near[1]) < 2e-5


def test_a_parent_one_place_off_shows(family: Family, engines: Engines) -> None:
    right, wrong = (Oracle(engines.stock(family), family.layers) for _ in range(2))
    for oracle, at in ((right, 0), (wrong, 1)):
        oracle.add(Message(A, 0))
        oracle.add(Message(B, len(A), ((0, at),)))
    assert _gap(right.logits(1), wrong.logits(1)) > 1e-2


def test_the_table_covers_the_families_asked_for() -> None:
    assert len({family.name for family in families()}) >= 21


def _line(model: PreTrainedModel, family: Family, bos: int | None, start: int) -> tuple[Oracle, list[int]]:
    oracle = Oracle(model, family.layers, bos)
    context: tuple[tuple[int, int], ...] = ()
    for tokens in (A, B, C):
        index = oracle.add(Message(tokens, start, context))
        context, start = (*context, (index, start)), start + len(tokens)
    return oracle, [index for index, _ in context]


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one.log_softmax(-1) - other.log_softmax(-1)).abs().max())
