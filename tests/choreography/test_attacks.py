"""An invalid call gets one of our errors, and concurrent decodes continue unharmed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentcho import Decode, Prefill, Sampling
from agentcho.errors import AgentchoError, RequestError, UnknownEncoding
from agentcho.protocol.call import EncodingId

from .attacks import Attack, Odd, attacks, unread
from .contract import Bench, Held, fake, real

GOOD = Decode("Good: ", sampling=Sampling(max_tokens=24, seed=5, temperature=0.7))


@pytest.fixture(scope="module", params=["fake", "real"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Both engines."""
    return Bench(fake(True) if request.param == "fake" else real(tmp_path_factory.mktemp("tiny"), "llama3"))


@pytest.fixture
def ids(bench: Bench) -> Iterator[tuple[EncodingId, ...]]:
    """A finished prefill and a decode; asserts that nothing else is held afterwards."""
    made = bench.make(Prefill("one"), Decode(sampling=Sampling(max_tokens=3)))
    yield made
    bench.engine.release(made)
    assert (bench.engine.idle, bench.held) == (True, Held(0, 0, 0))


def hurt(bench: Bench, attack: Attack, ids: tuple[EncodingId, ...]) -> list[Exception]:
    """The errors of an attack, from `submit` or from the step after it."""
    calls, turn = attack(ids)
    try:
        bad = bench.engine.submit(calls, turn)
    except AgentchoError as error:
        bench.engine.step(deterministic=True)
        return [error]
    result = bench.engine.step(deterministic=True)
    assert not set(result.finished).intersection(bad)
    return [failure.error for failure in result.failed if failure.id in bad]


def finish(bench: Bench) -> None:
    """Step until the engine is idle."""
    while not bench.engine.idle:
        bench.engine.step(deterministic=True)


@pytest.mark.slow
def test_each_attack_gets_one_error_of_ours_and_hurts_nobody(bench: Bench, ids: tuple[EncodingId, ...]) -> None:
    [alone] = bench.engine.submit([GOOD])
    finish(bench)
    expected, good = bench.engine.message(alone), list[EncodingId]()
    bench.engine.release([alone])
    for name, attack in attacks().items():
        if not bench.engine.rows:
            good += bench.engine.submit([GOOD])
            bench.engine.step(deterministic=True)
        assert bench.engine.rows == 1
        errors = hurt(bench, attack, ids)
        assert [isinstance(error, AgentchoError) for error in errors] == [True], name
        assert 10 < len(str(errors[0])) < 600, name
    finish(bench)
    assert len(good) > 5
    assert {bench.engine.message(id) for id in good} == {expected}
    bench.engine.release(good)


@pytest.mark.parametrize("verb", ["release", "swap_out", "cancel", "message", "receipt"])
def test_what_is_no_id_is_refused_with_nothing_given_up(bench: Bench, ids: tuple[EncodingId, ...], verb: str) -> None:
    wrong: tuple[object, ...] = (10**5000, Odd(ids[0]), True, "1", None, 1.0, [], object())
    for id in wrong:
        if verb == "cancel" and type(id) is int:
            continue  # cancelling an unknown id is not an error
        with pytest.raises(RequestError):
            getattr(bench.engine, verb)(id if verb in ("message", "receipt") else [ids[0], id])
    for several in () if verb in ("message", "receipt") else (None, 5, "1", unread()):
        with pytest.raises(RequestError):
            getattr(bench.engine, verb)(several)
    assert bench.engine.message(ids[0]).text == "one"


def test_an_id_is_released_once_though_it_is_named_twice(bench: Bench, ids: tuple[EncodingId, ...]) -> None:
    with pytest.raises(UnknownEncoding, match="released"):
        bench.engine.release([ids[0], ids[1], ids[0]])
    assert bench.engine.message(ids[1]).sampled is not None
