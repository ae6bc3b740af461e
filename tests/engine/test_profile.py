"""In the deterministic profile, bits depend only on a call and what it reads, not on anything else in the store.

An encoding is shared only with calls made the same way: fed in the same forwards, over encodings of which the same is
true, its tokens sampled over the same.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.protocol.call import Call, EncodingId, Repair
from agentcho.reuse.top_k import TopK

from ..engines import Engines


@pytest.fixture
def fresh(engines: Engines) -> Callable[[], Engine]:
    """Makes empty engines on the same weights."""
    return engines


def run(engine: Engine, *calls: Call, exact: bool = True) -> tuple[EncodingId, ...]:
    """Submit the calls and step to the end."""
    ids = engine.submit(calls)
    while not engine.idle:
        engine.step(exact)
    return ids


def numbers(engine: Engine, id: EncodingId) -> Tensor:
    """All keys and values of an encoding, flattened."""
    return torch.cat([part.flatten() for pair in engine.cached(id) for part in pair])


def words(engine: Engine) -> tuple[int, ...]:
    """Twelve tokens."""
    return tuple(engine.framing.content.encode("the fox and the sea and the sun and the oak")[:12])


def spoken(engine: Engine, how: str) -> EncodingId:
    """The same tokens over nothing, fed in the given way."""
    said = words(engine)
    match how:
        case "token-by-token":
            call: Call = Decode(forced=said)
        case "in-strides":
            call = Decode(forced=said, stride=4)
        case "with-the-closing":
            call = Decode(sampling=Sampling(choices=(engine.framing.content.decode(said),)))
        case _:
            call = Prefill("", role="assistant", tokens=said)
    return run(engine, call)[0]


WAYS = ("token-by-token", "in-strides", "with-the-closing", "at-once")


def over(engine: Engine, how: str) -> Tensor:
    """The keys and values of a message over that one."""
    (read,) = run(engine, Prefill("so it is told", [spoken(engine, how)]))
    return numbers(engine, read)


@pytest.mark.parametrize("how", WAYS)
def test_what_is_read_over_words_does_not_depend_on_how_another_call_was_fed_the_same(
    fresh: Callable[[], Engine], how: str
) -> None:
    alone = over(fresh(), how)
    engine, others = fresh(), [way for way in WAYS if way != how]
    beside = [over(engine, way) for way in others]
    assert torch.equal(over(engine, how), alone)
    assert any(not torch.equal(other, alone) for other in beside), "nothing would have shown"


def test_equal_feeds_are_shared(fresh: Callable[[], Engine]) -> None:
    engine = fresh()
    ids = [run(engine, Prefill("so it is told", [spoken(engine, "token-by-token")]))[0] for _ in range(2)]
    one, other = (engine.debug.entry(id) for id in ids)
    assert one is other


def test_what_is_chosen_over_other_keys_is_not_shared(fresh: Callable[[], Engine]) -> None:
    engine = fresh()
    one = Prefill("the quick brown fox jumps over a lazy dog")
    first, second = run(engine, one, Prefill("oaks and foxes are red", [one]))
    again = Repair(first, TopK(0.4))

    def repaired(over: Repair | EncodingId) -> EncodingId:
        return run(engine, *([over] if isinstance(over, Repair) else []), Repair(second, TopK(0.4), [over]))[-1]

    (made,) = run(engine, again)
    together, apart, twice = repaired(again), repaired(made), repaired(made)
    entries = [engine.debug.entry(id) for id in (together, apart, twice)]
    assert entries[0] is not entries[1], "judged over what its parent keeps, and over what that became"
    assert entries[1] is entries[2]


@pytest.mark.parametrize("how", WAYS)
def test_what_was_dropped_is_made_again_by_the_same_feeds(fresh: Callable[[], Engine], how: str) -> None:
    engine = fresh()
    id = spoken(engine, how)
    before, entry = numbers(engine, id), engine.debug.entry(id)
    engine._tiers.drop(entry)
    assert entry.dropped
    assert torch.equal(numbers(engine, id), before)
    engine.check_integrity()


def test_what_runs_beside_it_changes_no_bit(fresh: Callable[[], Engine]) -> None:
    """A message decoded over a context while others are decoded and encoded, some over the same context."""

    def said(beside: int, exact: bool) -> Tensor:
        engine = fresh()
        (told,) = run(engine, Prefill("the quick brown fox jumps over a lazy dog and sleeps " * 9))
        own = Decode(parents=[told], forced=words(engine))
        spoken = (Decode(name, [told], forced=words(engine)) for name in ("a", "so it", "and then"))
        others: list[Call] = [Prefill("beside it"), *spoken]
        return numbers(engine, run(engine, own, *others[:beside], exact=exact)[0])

    alone = said(0, exact=True)
    assert torch.equal(said(4, exact=True), alone)
    assert not torch.equal(said(4, exact=False), alone), "nothing would have shown"
