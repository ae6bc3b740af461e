"""Reading encodings at the positions they were made at: no key is rotated, and positions may collide."""

from __future__ import annotations

import pytest
import torch

from agentcho import Decode, Engine, Prefill
from agentcho.errors import RequestError

from ..engines import Engines


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    return engines.understudy(store_tokens=4096)


def ends(engine: Engine, ids: list[int]) -> list[int]:
    return [engine.receipt(id).start + len(engine.message(id).tokens) for id in ids]


def test_parents_stand_where_they_were_made_and_the_message_after_the_rightmost(engine: Engine) -> None:
    a = engine.prefill("one two three")
    b = engine.prefill("four", parents=[a], new_offset=40)
    c = engine.prefill("a longer text that ends before the other begins", parents=[a])
    id = engine.prefill("new", parents=[c, b, a], offsets="made")
    receipt = engine.receipt(id)
    assert [entry.offset for entry in receipt.context] == [engine.receipt(each).start for each in (c, b, a)]
    assert receipt.start == max(ends(engine, [a, b, c])) == ends(engine, [b])[0]
    explicit = engine.prefill(
        "new", parents=[c, b, a], offsets=[engine.receipt(e).start for e in (c, b, a)], new_offset=receipt.start
    )
    layers = zip(engine.cached(id), engine.cached(explicit), strict=True)
    assert all(torch.equal(one, two) for mine, other in layers for one, two in zip(mine, other, strict=True))


def test_a_parent_of_the_same_list_has_its_place_too(engine: Engine) -> None:
    first = Prefill("side by side")
    second = Prefill("and another that is longer")
    one, two, both = engine.prefill([first, second, Prefill("read", parents=[first, second], offsets="made")])
    assert {entry.offset for entry in engine.receipt(both).context} == {1}
    assert engine.receipt(both).start == max(ends(engine, [one, two]))


def test_what_is_read_in_place_is_not_what_is_read_in_order(engine: Engine) -> None:
    a, b = engine.prefill("one two three"), engine.prefill("four five six")
    made = engine.score(" seven", parents=[a, b], offsets="made")
    assert not torch.equal(made, engine.score(" seven", parents=[a, b]))
    assert torch.equal(
        made, engine.score(" seven", parents=[a, b], offsets=[1, 1], new_offset=max(ends(engine, [a, b])))
    )


def test_without_parents_it_says_nothing_and_an_own_position_wins(engine: Engine) -> None:
    assert engine.receipt(engine.prefill("alone", offsets="made")).start == 1
    a = engine.prefill("one")
    (id,) = engine.decode([Decode("x", parents=[a], offsets="made", new_offset=77, forced=())])
    assert engine.receipt(id).start == 77
    with pytest.raises(RequestError):
        engine.prefill("new", parents=[a], offsets="elsewhere")
