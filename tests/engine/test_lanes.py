"""Lanes: what one row leaves behind, another never finds."""

from __future__ import annotations

import random

import pytest
import torch

from agentcho.engine.lanes import Lane, Lanes
from agentcho.engine.store import LayerShape


def fill(lane: Lane, tokens: int, value: float) -> None:
    """Append tokens to a lane as a forward does, that of the last one cut off before it was counted."""
    start = lane.length
    lane.place(start, torch.full((tokens,), int(value)))
    for layer in range(2):
        keys, values = lane.room(layer, tokens)
        keys[:], values[:] = value, value
    lane.length += tokens - 1


@pytest.mark.parametrize("seed", range(4))
def test_a_lane_is_all_zeros_when_it_is_handed_out_and_keeps_its_own_while_others_move(seed: int) -> None:
    dice = random.Random(seed)
    lanes = Lanes([LayerShape(2, 4, 6)] * 2, torch.device("cpu"), torch.float32, smallest=4)
    open_: dict[Lane, float] = {}
    for number in range(1, 200):
        if open_ and dice.random() < 0.5:
            lane = dice.choice(list(open_))
            if dice.random() < 0.6:
                lanes.close(lane)
                del open_[lane]
            else:
                tokens = dice.randint(1, 5)
                lanes.ensure(lane, lane.length + tokens)
                fill(lane, tokens, open_[lane])
        else:
            lane = lanes.open(dice.choice([3, 9]), alone=dice.random() < 0.2)
            assert not any(pool[lane.index].any() for pool in (*lane.bucket.keys, *lane.bucket.values))
            assert not lane.bucket.positions[lane.index].any()
            open_[lane] = float(number)
        for lane, value in open_.items():
            keys, values = lane.get(1, 0, lane.length)
            assert (keys == value).all()
            assert (values == value).all()
            assert (lane.positions(lane.length) == value).all()
    assert len(lanes) == len(open_)


def test_of_a_longer_lane_nothing_stays_behind_a_shorter_one_that_takes_its_place() -> None:
    lanes = Lanes([LayerShape(1, 2, 2)] * 2, torch.device("cpu"), torch.float32, smallest=8)
    long, short = lanes.open(8), lanes.open(8)
    fill(long, 7, 1.0)
    fill(short, 2, 2.0)
    lanes.close(long)
    keys, _ = short.get(1, 0, 8)
    assert (keys[:, :2] == 2).all()
    assert not keys[:, 2:].any()
    lanes.close(short)
    assert not lanes.open(8).get(1, 0, 8)[0].any()


def test_a_lane_that_is_to_be_alone_shares_its_tensors_with_no_other() -> None:
    """In the deterministic profile shapes and alignment, and so the last bits, depend on the row alone."""
    lanes = Lanes([LayerShape(1, 2, 2)], torch.device("cpu"), torch.float32, smallest=4)
    others = [lanes.open(4), lanes.open(4, alone=True)]
    own = lanes.open(4, alone=True)
    assert own.bucket.keys[0].shape[0] == 1
    assert all(own.bucket is not other.bucket for other in [*others, lanes.open(4)])


def test_an_emptied_bucket_serves_the_next_of_its_size_and_goes_when_another_is_needed() -> None:
    lanes = Lanes([LayerShape(1, 2, 2)], torch.device("cpu"), torch.float32, smallest=4)
    first = lanes.open(4)
    keys = first.bucket.keys[0]
    lanes.close(first)
    again = lanes.open(4)
    assert again.bucket.keys[0] is keys
    again.place(0, torch.arange(1))
    lanes.close(again)
    lanes.open(5)
    assert len(lanes._buckets) == 1


def test_emptied_buckets_are_kept_up_to_a_bound_of_what_was_written_the_smallest_goes_first() -> None:
    lanes = Lanes([LayerShape(1, 2, 2)], torch.device("cpu"), torch.float32, smallest=4, idle=12)

    def use(tokens: int, written: int) -> None:
        lane = lanes.open(tokens)
        lane.place(0, torch.arange(written))
        lanes.close(lane)

    use(32, 7)
    use(4, 3)
    use(8, 2)
    kept = {bucket.capacity: bucket.tokens for bucket in lanes._buckets}
    assert kept == {32: 7, 4: 3, 8: 2}
    use(32, 9)
    use(16, 1)
    assert {bucket.capacity for bucket in lanes._buckets} == {32, 4, 16}
    lanes.open(64)
    assert [bucket.capacity for bucket in lanes._buckets] == [32, 4, 64]


def test_what_was_written_stays_where_a_bucket_widens() -> None:
    lanes = Lanes([LayerShape(2, 4, 6)] * 2, torch.device("cpu"), torch.float32, smallest=4)
    opened = []
    for number in range(1, 12):
        lane = lanes.open(4)
        fill(lane, 3, float(number))
        opened.append(lane)
    for number, lane in enumerate(opened, start=1):
        assert all((each[:, :2] == number).all() for each in lane.get(1, 0, 3))
        assert (lane.positions(3) == number).all()
