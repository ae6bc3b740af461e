"""Slots: a row never sees what another row left behind."""

from __future__ import annotations

import random

import pytest
import torch

from agentcho.runner.kv.decode_kv import Slot
from agentcho.runner.kv.kv_pool import LayerShape
from agentcho.runner.slots import Slots

from ..device import PLACE, on_processor


def fill(slot: Slot, tokens: int, value: float) -> None:
    """Append tokens to a slot as a forward does that fails before its last token is counted."""
    start = slot.length
    slot.place(start, torch.full((tokens,), int(value)))
    for layer in range(2):
        keys, values = slot.room(layer, tokens)
        keys[:], values[:] = value, value
    slot.length += tokens - 1


@pytest.mark.parametrize("seed", range(4))
def test_a_slot_is_all_zeros_when_it_is_handed_out_and_keeps_its_own_while_others_move(seed: int) -> None:
    dice = random.Random(seed)
    slots = Slots([LayerShape(2, 4, 6)] * 2, PLACE, torch.float32, smallest=4)
    open_: dict[Slot, float] = {}
    for number in range(1, 200):
        if open_ and dice.random() < 0.5:
            slot = dice.choice(list(open_))
            if dice.random() < 0.6:
                slots.close(slot)
                del open_[slot]
            else:
                tokens = dice.randint(1, 5)
                slots.ensure(slot, slot.length + tokens)
                fill(slot, tokens, open_[slot])
        else:
            slot = slots.open(dice.choice([3, 9]), alone=dice.random() < 0.2)
            assert not any(pool[slot.index].any() for pool in (*slot.pool.keys, *slot.pool.values))
            assert not slot.pool.positions[slot.index].any()
            open_[slot] = float(number)
        for slot, value in open_.items():
            keys, values = slot.get(1, 0, slot.length)
            assert (keys == value).all()
            assert (values == value).all()
            assert (slot.positions(slot.length) == value).all()
    assert len(slots) == len(open_)


def test_of_a_longer_slot_nothing_stays_behind_a_shorter_one_that_takes_its_place() -> None:
    slots = Slots([LayerShape(1, 2, 2)] * 2, PLACE, torch.float32, smallest=8)
    long, short = slots.open(8), slots.open(8)
    fill(long, 7, 1.0)
    fill(short, 2, 2.0)
    slots.close(long)
    keys, _ = short.get(1, 0, 8)
    assert (keys[:, :2] == 2).all()
    assert not keys[:, 2:].any()
    slots.close(short)
    assert not slots.open(8).get(1, 0, 8)[0].any()


def test_a_slot_that_is_to_be_alone_shares_its_tensors_with_no_other() -> None:
    """In the deterministic profile, shapes and alignment, and so the last bits, must depend on the row alone."""
    slots = Slots([LayerShape(1, 2, 2)], PLACE, torch.float32, smallest=4)
    others = [slots.open(4), slots.open(4, alone=True)]
    own = slots.open(4, alone=True)
    assert own.pool.keys[0].shape[0] == 1
    assert all(own.pool is not other.pool for other in [*others, slots.open(4)])


def test_an_emptied_pool_serves_the_next_of_its_size_and_goes_when_another_is_needed() -> None:
    slots = Slots([LayerShape(1, 2, 2)], PLACE, torch.float32, smallest=4)
    first = slots.open(4)
    keys = first.pool.keys[0]
    slots.close(first)
    again = slots.open(4)
    assert again.pool.keys[0] is keys
    again.place(0, torch.arange(1))
    slots.close(again)
    slots.open(5)
    assert len(slots._pools) == 1


@on_processor
def test_emptied_pools_are_kept_up_to_a_bound_of_what_was_written_the_smallest_goes_first() -> None:
    slots = Slots([LayerShape(1, 2, 2)], PLACE, torch.float32, smallest=4, idle=12)

    def use(tokens: int, written: int) -> None:
        slot = slots.open(tokens)
        slot.place(0, torch.arange(written))
        slots.close(slot)

    use(32, 7)
    use(4, 3)
    use(8, 2)
    kept = {pool.capacity: pool.tokens for pool in slots._pools}
    assert kept == {32: 7, 4: 3, 8: 2}
    use(32, 9)
    use(16, 1)
    assert {pool.capacity for pool in slots._pools} == {32, 4, 16}
    slots.open(64)
    assert [pool.capacity for pool in slots._pools] == [32, 4, 64]


def test_what_was_written_stays_where_a_pool_widens() -> None:
    slots = Slots([LayerShape(2, 4, 6)] * 2, PLACE, torch.float32, smallest=4)
    opened = []
    for number in range(1, 12):
        slot = slots.open(4)
        fill(slot, 3, float(number))
        opened.append(slot)
    for number, slot in enumerate(opened, start=1):
        assert all((each[:, :2] == number).all() for each in slot.get(1, 0, 3))
        assert (slot.positions(3) == number).all()
