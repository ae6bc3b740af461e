"""The engine of sets: what reaches an encoding, positions, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentcho.audit.planned import SymbolicEngine
from agentcho.errors import LeakageError, RequestError, UnknownEncoding
from agentcho.protocol.call import CallFailure, Decode, Prefill, Shadow


class Shut:
    """A guard that refuses everything."""

    def admit(self, id: int, context: Sequence[int]) -> None:
        raise LeakageError("bob", ("a", "b"))


def drained(engine: SymbolicEngine) -> tuple[list[int], list[CallFailure], int]:
    """Steps the engine until it is idle; returns the finished and failed calls and the number of encoded tokens."""
    finished, failed, encoded = list[int](), list[CallFailure](), 0
    while not engine.idle:
        result = engine.step()
        finished += result.finished
        failed += result.failed
        encoded += result.encoded
    return finished, failed, encoded


def test_the_engine_of_sets_keeps_what_reached_an_encoding() -> None:
    engine = SymbolicEngine()
    one, two = Prefill("first words"), Prefill("second")
    three = Prefill("third", parents=(one,))
    said = Decode("So:", parents=(two, three), forced=tuple(engine.framing.content.encode("we go")))
    ids = engine.submit([one, two, three, said, Shadow(said, parents=(two,))])
    finished, failed, encoded = drained(engine)
    assert (set(finished), failed) == (set(ids), [])
    tokens = [engine.message(id).tokens for id in ids]
    assert engine.influence(ids[3]) == {tokens[0], tokens[1], tokens[2], tokens[3]}
    assert engine.influence(ids[4]) == {tokens[1], tokens[3]}
    assert (engine.message(ids[4]), engine.receipt(ids[4]).start) == (engine.message(ids[3]), 1 + len(tokens[1]))
    assert encoded == sum(map(len, tokens[:-1]))  # no shadow was encoded, because nobody reads it
    words = engine.message(ids[3])
    assert (words.header, words.text, words.sampled and words.sampled[1]) == ("So:", "we go", words.content[1])
    engine.release(ids)
    assert len(engine.influence(ids[3])) == 4
    with pytest.raises(UnknownEncoding, match="released"):
        engine.message(ids[0])


def test_the_engine_of_sets_places_things_where_they_are_asked_for() -> None:
    engine = SymbolicEngine()
    one, two = Prefill("one"), Prefill("two", offsets=(), new_offset=50)
    ids = engine.submit([one, two, Prefill("x", (one, two, one), offsets=(None, 40, None), new_offset=90)])
    drained(engine)
    length = len(engine.message(ids[0]).tokens)
    placed = [(ids[0], 1, length), (ids[1], 40, length), (ids[0], 40 + length, length)]
    assert engine.receipt(ids[2])[:3] == (tuple(placed), 90, True)
    assert engine.receipt(ids[1])[:3] == ((), 50, True)


def test_a_refused_call_fails_alone_and_with_what_stands_on_it() -> None:
    engine = SymbolicEngine()
    bad, good = Prefill("bad", guard=Shut()), Prefill("good")
    ids = engine.submit([bad, good, Prefill("over", parents=(bad,))])
    finished, failed, _ = drained(engine)
    assert finished == [ids[1]]
    assert [(failure.id, type(failure.error)) for failure in failed] == [
        (ids[0], LeakageError),
        (ids[2], RequestError),
    ]
    with pytest.raises(KeyError):
        engine.influence(ids[0])
    gone = engine.submit([Prefill("gone")])
    engine.cancel(gone)
    assert engine.idle


def test_the_engine_of_sets_refuses_what_engines_refuse() -> None:
    engine = SymbolicEngine()
    elsewhere = Prefill("elsewhere")
    wrong: list[tuple[list[Any], type[Exception]]] = [
        ([], RequestError),
        ([Decode("unforced")], RequestError),
        ([Prefill("x", parents=(7,))], UnknownEncoding),
        ([Prefill("x", parents=(elsewhere,))], RequestError),
        ([Prefill("x", offsets=(1,))], RequestError),
        ([Shadow(Decode("", forced=()))], RequestError),
    ]
    for calls, error in wrong:
        with pytest.raises(error):
            engine.submit(calls)
        assert engine.idle
    assert engine.submit([Prefill("fine")]) == (1,)
