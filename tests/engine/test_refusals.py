"""An invalid call is refused with the reason, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.errors import ContextOverflow, RequestError, UnknownEncoding

from .families import CONTEXT

GREEDY = Sampling(temperature=0, max_tokens=12)


def never(engine: Engine) -> int:
    """An id that no call has."""
    return engine.prefill("x") + 1000


WRONG: dict[str, tuple[type[Exception], str, Callable[[Engine, int], Any]]] = {
    "unknown parent": (UnknownEncoding, "unknown", lambda e, a: e.prefill("x", parents=[never(e)])),
    "unknown in a decode": (UnknownEncoding, "unknown", lambda e, a: e.decode("x", parents=[a, never(e)])),
    "unknown in a score": (UnknownEncoding, "unknown", lambda e, a: e.score("x", parents=[never(e)])),
    "unknown message": (UnknownEncoding, "unknown", lambda e, a: e.message(never(e))),
    "negative offset": (RequestError, "offset", lambda e, a: e.prefill("x", parents=[a], offsets=[-1])),
    "negative new offset": (RequestError, "offset", lambda e, a: e.prefill("x", new_offset=-5)),
    "too few offsets": (RequestError, "offset", lambda e, a: e.prefill("x", parents=[a, a], offsets=[1])),
    "too many offsets": (RequestError, "offset", lambda e, a: e.decode("x", parents=[a], offsets=[1, 2])),
    "offset past the end": (ContextOverflow, str(CONTEXT), lambda e, a: e.prefill("x", parents=[a], offsets=[CONTEXT])),
    "own past the end": (ContextOverflow, str(CONTEXT), lambda e, a: e.prefill("x", new_offset=CONTEXT - 3)),
    "too long": (ContextOverflow, str(CONTEXT), lambda e, a: e.prefill("é" * CONTEXT)),
    "score past the end": (ContextOverflow, str(CONTEXT), lambda e, a: e.score("x", new_offset=CONTEXT - 1)),
    "later in the list": (RequestError, "earlier", lambda e, a: e.prefill(backwards())),
    "in no list": (RequestError, "earlier", lambda e, a: e.prefill("x", parents=[Prefill("y")])),
    "a decode as parent": (RequestError, "parent", lambda e, a: e.decode(chained())),
    "no parent at all": (RequestError, "parent", lambda e, a: e.prefill("x", parents=["a"])),
    "unknown role": (RequestError, "role", lambda e, a: e.prefill("x", role="judge")),
}


def backwards() -> list[Prefill]:
    """A list whose first call has its second as parent."""
    late = Prefill("late")
    return [Prefill("early", parents=[late]), late]


def chained() -> list[Decode]:
    """A list whose second call has its first, a decode, as parent."""
    first: Any = Decode("x", sampling=GREEDY)
    return [first, Decode("y", parents=[first], sampling=GREEDY)]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_says_so_and_leaves_nothing(llama: Engine, wrong: str) -> None:
    error, words, call = WRONG[wrong]
    a = llama.prefill("fine")
    never(llama)
    before, idle = llama.fullness.used, llama.idle
    with pytest.raises(error, match=words):
        call(llama, a)
    assert llama.fullness.used - before <= 1
    assert llama.idle == idle
    assert llama.score("still", parents=[a]).isfinite().all()


def test_one_wrong_call_stops_its_whole_list(llama: Engine) -> None:
    before = llama.fullness.used
    with pytest.raises(RequestError):
        llama.prefill([Prefill("good " * 40), Prefill("bad", new_offset=-1)])
    assert llama.fullness.used == before
    assert llama.idle


def test_the_last_position_is_usable(llama: Engine) -> None:
    length = len(llama.message(llama.prefill("x")).tokens)
    assert llama.receipt(llama.prefill("x", new_offset=CONTEXT - length)).start == CONTEXT - length
    with pytest.raises(ContextOverflow):
        llama.prefill("x", new_offset=CONTEXT - length + 1)


def test_a_decode_that_could_overflow_raises_before_it_starts(llama: Engine) -> None:
    with pytest.raises(ContextOverflow):
        llama.decode("", new_offset=CONTEXT - 40, sampling=Sampling(max_tokens=60))
