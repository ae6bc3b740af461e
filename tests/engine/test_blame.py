"""A failure inside a step fails only the call that caused it; a failed device fails everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.generation import Generation
from agentcho.engine.queue import TokenBudget
from agentcho.errors import AgentchoError, CallFailed, EngineFailed, RequestError
from agentcho.message import Words
from agentcho.protocol.call import Call, CallFailure, EncodingId, Repair, Shadow
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.top_k import TopK

from ..device import on_processor
from .broken import dead, failing

BAD = 43
GOOD = Decode("Good: ", sampling=Sampling(max_tokens=12, seed=5))
ERRORS = (ZeroDivisionError("x"), MemoryError(), torch.OutOfMemoryError("no memory"), RuntimeError("shape"))
LONG = "what all of them have read, and so long that it pays to be kept once for them " * 2


@pytest.fixture
def engine(llama: Engine) -> Engine:
    """An empty engine on the shared network."""
    own = llama.adapted(None)
    own._scheduler._budget = TokenBudget(4096, 4096)
    return own


def drain(engine: Engine, deterministic: bool = False) -> list[CallFailure]:
    """Step until idle; returns the failures."""
    failed = list[CallFailure]()
    while not engine.idle:
        failed += engine.step(deterministic).failed
    engine.check_integrity()
    return failed


def bad(*parents: Any, **options: Any) -> Prefill:
    """A message that contains the guilty token."""
    return Prefill("", parents, tokens=(44, BAD, 45), **options)


def spoilt(ids: list[int]) -> bool:
    """Whether the guilty token is among the ids."""
    return BAD in ids


def said(engine: Engine, id: EncodingId) -> tuple[Words, torch.Tensor]:
    """The message, and log-probabilities of a continuation."""
    return engine.message(id), engine.score("so", parents=[id])


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("deterministic", [False, True])
def test_of_many_the_guilty_one_alone_fails(engine: Engine, error: Exception, deterministic: bool) -> None:
    told = engine.prefill("told")
    calls: list[Call] = [GOOD, Decode("B", [told], sampling=GOOD.sampling), Prefill("new", [told])]
    expected = engine.submit(calls)
    assert drain(engine, deterministic) == []
    used = engine.fullness.used
    good = engine.submit(calls[:1])
    engine.step(deterministic)
    with failing(engine, spoilt, error) as failed:
        guilty = engine.submit([bad(told)])[0]
        good += engine.submit(calls[1:])
        [failure] = engine.step(deterministic).failed
    assert (failure.id, type(failure.error)) == (guilty, CallFailed)
    assert failure.error.__cause__ is error
    assert len(failed) == (1 if deterministic else 2)  # in the batch, and alone
    assert engine.rows == 2
    assert drain(engine, deterministic) == []
    assert engine.fullness.used >= used
    for one, other in zip(expected, good, strict=True):
        (words, scores), (same, close) = said(engine, one), said(engine, other)
        assert words == same
        assert torch.equal(scores, close) if deterministic else torch.allclose(scores, close, atol=1e-4)
    engine.release([told, *expected, *good])
    assert (engine.fullness.used, engine.fullness.reserved) == (1, 0)


def test_a_row_that_fails_in_the_midst_takes_its_shadow_and_nobody_else(engine: Engine) -> None:
    told = engine.prefill("told")
    call = Decode("", forced=(*range(50, 90), BAD, 50))
    guilty, shadow, good = engine.submit([call, Shadow(call, [told]), GOOD])
    with failing(engine, spoilt, RuntimeError("x")):
        [failure] = drain(engine)
    assert (failure.id, type(failure.error)) == (guilty, CallFailed)
    assert engine.message(good).tokens
    assert not engine.finished(shadow)
    engine.release([told, good])
    assert (engine.fullness.used, engine.fullness.reserved, len(engine.debug.slots)) == (1, 0, 0)


def test_who_reads_the_guilty_one_fails_for_it_and_its_twin_for_itself(engine: Engine) -> None:
    first = bad()
    second = Prefill("over it", [first])
    calls: list[Call] = [first, second, Decode("x", [second], sampling=GOOD.sampling), bad(), GOOD]
    with failing(engine, spoilt, RuntimeError("x")):
        ids = engine.submit(calls)
        failures = {failure.id: type(failure.error) for failure in drain(engine)}
    assert failures == dict(zip(ids, (CallFailed, RequestError, RequestError, CallFailed), strict=False))
    engine.release(ids[4:])
    assert (engine.fullness.used, engine.fullness.reserved, len(engine.debug.slots)) == (1, 0, 0)


def test_an_equal_call_of_another_is_encoded_by_itself(engine: Engine) -> None:
    """Only the call that started the encoding fails; computing the same words may succeed a moment later."""
    times = iter((True, True))
    with failing(engine, lambda ids: spoilt(ids) and next(times, False), RuntimeError("x")):
        one, two = engine.submit([bad(), bad()])
        reader = engine.submit([Decode("x", [two], sampling=GOOD.sampling)])[0]
        failures = {failure.id: type(failure.error) for failure in drain(engine)}
    assert failures == {one: CallFailed}
    assert engine.message(reader).tokens
    engine.release([two, reader])
    assert (engine.fullness.used, engine.fullness.reserved, len(engine.debug.slots)) == (1, 0, 0)


@pytest.mark.parametrize("which", range(3))
@on_processor
def test_a_context_that_many_share_is_gathered_by_the_next(engine: Engine, which: int) -> None:
    told, headers = engine.prefill(LONG), ("Q", "W", "Z")
    rows = [Decode(header, [told], forced=(50, 51), logits=True) for header in headers]
    plain = [engine.decode([row])[0] for row in rows]
    marked = engine.framing.content.encode(headers[which])[-1]
    with failing(engine, lambda ids: marked in ids, RuntimeError("x")):
        ids = engine.submit(rows)
        [failure] = engine.step().failed
    assert (failure.id, len(engine.debug.shared)) == (ids[which], 1)
    assert drain(engine) == []
    good = [n for n in range(3) if n != which]
    assert all(torch.allclose(engine.logits(ids[n]), engine.logits(plain[n]), atol=1e-4) for n in good)
    engine.release([told, *plain, *(ids[n] for n in good)])
    assert (engine.fullness.used, engine.fullness.reserved, len(engine.debug.slots)) == (1, 0, 0)


def test_too_many_at_once_are_not_too_many_one_by_one(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with failing(engine, lambda ids: len(ids) > 16, torch.OutOfMemoryError("no memory")) as failed:
        ids = engine.submit([Prefill("one"), Prefill("two"), GOOD, Decode("b", sampling=GOOD.sampling)])
        assert drain(engine) == []
    assert len(failed) == 1
    assert "each is tried by itself" in caplog.text
    assert all(map(engine.finished, ids))


@pytest.mark.parametrize("choose", [FirstK(2), TopK(0.5)])
def test_a_repair_that_fails_fails_alone(engine: Engine, choose: FirstK | TopK) -> None:
    told, base = engine.prefill("told"), engine.prefill([bad()])[0]
    with failing(engine, spoilt, RuntimeError("x")):
        other = engine.prefill("some words that are repaired too")
        guilty, fine, good = engine.submit([Repair(base, choose, [told]), Repair(other, choose, [told]), GOOD])
        failures = drain(engine)
    assert {failure.id for failure in failures} <= {guilty}  # the recomputed tokens need not include the guilty one
    assert engine.finished(fine)
    assert engine.finished(good)


def test_what_cannot_be_made_again_fails_who_reads_it(engine: Engine) -> None:
    told, gone = engine.prefill("told"), engine.prefill([bad()])[0]
    engine._tiers.drop(engine.debug.entry(gone))
    with failing(engine, spoilt, RuntimeError("x")):
        guilty, good = engine.submit([Prefill("x", [gone]), Decode("y", [told], sampling=GOOD.sampling)])
        [failure] = drain(engine)
    assert (failure.id, type(failure.error)) == (guilty, CallFailed)
    assert engine.finished(good)
    assert engine.score("so", parents=[gone]).isfinite().all()


def postponed(engine: Engine) -> EncodingId:
    """A short shadow that is not encoded yet."""
    call = Decode("", forced=(44, BAD))
    _, shadow = engine.submit([call, Shadow(call)])
    drain(engine)
    assert not engine.debug.entry(shadow).ready
    return shadow


def test_a_postponed_shadow_that_fails_stays_so_and_fails_who_reads_it(engine: Engine) -> None:
    shadow, other = postponed(engine), engine.prefill("other")
    with failing(engine, spoilt, RuntimeError("x")):
        guilty, good = engine.submit([Prefill("x", [shadow]), Decode("y", [other], sampling=GOOD.sampling)])
        [failure] = drain(engine)
    assert (failure.id, type(failure.error)) == (guilty, CallFailed)
    assert engine.finished(good)
    assert engine.finished(engine.prefill("x", parents=[shadow]))


def test_a_row_that_cannot_be_finished_fails_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    guilty, good = engine.submit([Decode("a", forced=()), Decode("b", forced=())])
    engine.step()
    allocate, calls = engine._tiers.allocate, list[object]()

    def first_fails(entry: Any) -> None:
        calls.append(entry)
        if len(calls) == 1:
            raise MemoryError
        allocate(entry)

    monkeypatch.setattr(engine._tiers, "allocate", first_fails)
    [failure] = drain(engine)
    assert (failure.id, type(failure.error)) == (guilty, CallFailed)
    engine.release([good])
    assert (engine.fullness.used, engine.fullness.reserved, len(engine.debug.slots)) == (1, 0, 0)


@pytest.mark.parametrize("words", [False, True])
def test_a_row_that_cannot_be_finished_takes_a_shadow_that_has_not_begun(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, words: bool
) -> None:
    call, finished = Decode("a", forced=()), Generation.words
    guilty, shadow, good = engine.submit([call, Shadow(call), Decode("b", forced=())])
    engine.step()

    def fails(row: Generation) -> Any:
        if row.id == guilty:
            raise MemoryError
        return finished(row)

    allocate = engine._tiers.allocate
    if words:
        monkeypatch.setattr(Generation, "words", fails)
    else:
        times = iter([True])
        monkeypatch.setattr(engine._tiers, "allocate", lambda s: _fail() if next(times, False) else allocate(s))
    result = engine.step()
    assert [(failure.id, type(failure.error)) for failure in result.failed] == [(guilty, CallFailed)]
    assert result.finished == (good,)
    assert not engine.finished(shadow)
    monkeypatch.undo()
    assert drain(engine) == []
    engine.release([good])
    assert (engine.fullness.used, engine.fullness.reserved, len(engine.debug.slots)) == (1, 0, 0)


def _fail() -> None:
    raise MemoryError


class Panic(BaseException):
    """An exception that is not an `Exception`, as libraries in other languages raise it."""


@pytest.mark.parametrize("error", [RuntimeError, Panic])
@pytest.mark.parametrize("where", ["draw", "take"])
def test_a_constraint_that_fails_fails_its_row(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, where: str, error: type[BaseException]
) -> None:
    from agentcho.runner.sampling.constraint import ChoiceConstraint

    def fails(*_: object) -> Any:
        raise error("the grammar is at a loss")

    monkeypatch.setattr(
        ChoiceConstraint, "allowed" if where == "draw" else "take", property(fails) if where == "draw" else fails
    )
    guilty, good = engine.submit([Decode(sampling=Sampling(choices=("yes", "no"))), GOOD])
    [failure] = drain(engine)
    assert failure.id == guilty
    assert isinstance(failure.error, AgentchoError)
    assert engine.finished(good)


def test_a_row_without_a_probability_fails_alone(engine: Engine) -> None:
    """Logits so large that no temperature leaves a finite probability."""
    head = engine._model.network.get_submodule("lm_head")
    hook = head.register_forward_hook(lambda module, given, logits: logits * 1e38)
    try:
        [failed] = engine.submit([Decode(sampling=Sampling(max_tokens=4, temperature=1e-6))])
        [failure] = drain(engine)
    finally:
        hook.remove()
    assert (failure.id, type(failure.error)) == (failed, CallFailed)
    assert isinstance(failure.error, CallFailed)
    assert not failure.error.transient, "the same logits would come again"


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_row_and_its_shadow_that_fail_in_one_forward_are_dropped_once(engine: Engine, deterministic: bool) -> None:
    told, other = engine.prefill("told"), engine.prefill("other")
    call = Decode("", [told], forced=(*[BAD] * 60, 50))
    both = engine.submit([call, Shadow(call, [told, other])])
    [good] = engine.submit([Decode("Good: ", [other], sampling=Sampling(max_tokens=60))])
    fed = list[int]()

    def together(ids: list[int]) -> bool:
        """Fail the two calls, together and alone, from the first forward in which the shadow feeds many tokens."""
        fed.append(ids.count(BAD))
        return BAD in ids and max(fed) > 8

    with failing(engine, together, RuntimeError("x")):
        assert {failure.id for failure in drain(engine, deterministic)} == set(both)
    engine.release([told, other, good])
    assert (engine.fullness.used, engine.fullness.reserved, len(engine.debug.slots)) == (1, 0, 0)


@on_processor
def test_no_room_for_a_row_fails_that_row(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    told = engine.prefill(LONG)
    opened, open = list[object](), engine.debug.slots.open

    def full(*args: Any, **options: Any) -> Any:
        opened.append(args)
        if len(opened) == 2:  # the shared context, then the first row
            raise MemoryError
        return open(*args, **options)

    monkeypatch.setattr(engine.debug.slots, "open", full)
    ids = engine.submit([Decode("x", [told], forced=(50,)) for _ in range(3)])
    [failure] = drain(engine)
    assert failure.id == ids[0]
    engine.release([told, *ids[1:]])
    assert (engine.fullness.used, engine.fullness.reserved, len(engine.debug.slots)) == (1, 0, 0)
    assert not engine.debug.shared


def test_a_row_whose_slot_cannot_grow_fails_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Decode(header, forced=(50,) * 140) for header in "xy"]
    plain = engine.message(engine.decode(rows)[1]).tokens
    guilty, good = engine.submit(rows)
    engine.step()
    slots, narrow = engine.debug.slots, next(row for row in engine.debug.rows if row.id == guilty).slot
    ensure = slots.ensure
    monkeypatch.setattr(slots, "ensure", lambda slot, tokens: _fail() if slot is narrow else ensure(slot, tokens))
    [failure] = drain(engine)
    assert (failure.id, type(failure.error)) == (guilty, CallFailed)
    assert engine.message(good).tokens == plain
    assert len(slots) == 0


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_device_that_fails_ends_all(engine: Engine, monkeypatch: pytest.MonkeyPatch, deterministic: bool) -> None:
    kept = engine.prefill("kept")
    engine.submit([GOOD, bad(kept)])
    dead(monkeypatch)
    with failing(engine, spoilt, RuntimeError("x")), pytest.raises(EngineFailed, match="RuntimeError: x"):
        engine.step(deterministic)
    assert (engine.idle, engine.rows, engine.fullness.reserved) == (True, 0, 0)
    monkeypatch.undo()
    assert engine.score("so", parents=[kept]).isfinite().all()


def test_rows_of_a_device_that_fails_are_dropped_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their slots cannot be closed on it either."""
    kept = engine.prefill("kept")
    ids = engine.submit([GOOD, bad(kept)])
    engine.step()
    before = engine.fullness.used
    dead(monkeypatch)
    monkeypatch.setattr(engine.debug.slots, "close", lambda slot: _fail())
    with failing(engine, lambda ids: True, RuntimeError("x")), pytest.raises(EngineFailed):
        engine.step()
    assert (engine.idle, engine.rows, engine.fullness.reserved) == (True, 0, 0)
    engine.cancel(ids)
    assert engine.fullness.used == before
    monkeypatch.undo()
    assert engine.score("so", parents=[kept]).isfinite().all()


def test_an_interrupt_drops_all_as_before(engine: Engine) -> None:
    engine.submit([GOOD, bad()])
    interrupt: Callable[[], BaseException] = KeyboardInterrupt
    with failing(engine, spoilt, interrupt()), pytest.raises(KeyboardInterrupt):  # type: ignore[arg-type]
        engine.step()
    assert (engine.idle, engine.rows) == (True, 0)
