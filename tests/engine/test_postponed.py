"""Shadows of short messages: reported with their leader, but fed only when somebody reads them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any
from weakref import WeakSet

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.queue import TokenBudget
from agentcho.errors import CallFailed, EngineFailed, LeakageError, RequestError, StoreFull
from agentcho.protocol.call import Call, EncodingId, Repair, SchedulingPriority, Shadow, StepResult
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.top_k import TopK
from agentcho.runner.kv.decode_kv import SlotPool

from .broken import dead

LONG = "on and on and " * 12
Fresh = Callable[..., Engine]


@pytest.fixture
def fresh(llama: Engine) -> Fresh:
    """Empty engines on the network of `llama`."""

    def make(tokens: int = 1 << 14, host: int = 1 << 14) -> Engine:
        return Engine(llama._model, llama.framing, llama.proofs, tokens, host, llama.context)

    return make


class Guarded:
    """A guard that admits the first `most` requests and records them."""

    def __init__(self, most: int = 10) -> None:
        self.most, self.asked = most, list[tuple[EncodingId, tuple[EncodingId, ...]]]()

    def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> None:
        """See `Guard.admit`."""
        if len(self.asked) >= self.most:
            raise LeakageError("bob", ("alice.1", "alice.0"))
        self.asked.append((id, tuple(context)))


def finish(engine: Engine, deterministic: bool = False) -> list[StepResult]:
    """Step until idle, and check the store's integrity."""
    results = list[StepResult]()
    while not engine.idle:
        results.append(engine.step(deterministic))
    engine.check_integrity()
    return results


def speech(engine: Engine, text: str) -> Decode:
    """A message decoded in two forwards, during which its shadow feeds nothing."""
    return Decode("", forced=tuple(engine.framing.content.encode(text)), stride=16)


def vote(engine: Engine, text: str = "yes", parents: Sequence[EncodingId] = (), **options: Any) -> EncodingId:
    """The id of a shadow over `parents` whose leader read nothing, has finished, and is released."""
    call = speech(engine, text)
    leader, shadow = engine.submit([call, Shadow(call, parents, **options)])
    finish(engine)
    engine.release([leader])
    return shadow


def say(engine: Engine, text: str) -> EncodingId:
    """A finished message."""
    [id] = engine.submit([Prefill(text)])
    finish(engine)
    return id


def made(engine: Engine, id: EncodingId) -> bool:
    return engine.debug.entry(id).ready


def size(engine: Engine, *ids: EncodingId) -> int:
    return sum(len(engine.message(id).tokens) for id in ids)


def again(engine: Engine, id: EncodingId) -> EncodingId:
    """The reference: a prefill of the same tokens over the same context at the same positions."""
    words, receipt = engine.message(id), engine.receipt(id)
    parents, offsets = [e.id for e in receipt.context], [e.offset for e in receipt.context]
    tokens, opening = words.tokens[slice(*words.content)], words.tokens[: words.content[0]]
    role = next(role for role in ("user", "assistant") if engine.framing.opening(role, None) == opening)
    [copy] = engine.submit([Prefill("", parents, offsets, receipt.start, role, None, tokens)])
    finish(engine)
    return copy


def alike(engine: Engine, one: EncodingId, other: EncodingId) -> bool:
    pairs = zip(engine.cached(one), engine.cached(other), strict=True)
    return all(torch.allclose(a, b, atol=1e-4) for left, right in pairs for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("stride", [1, 16])
def test_what_nobody_reads_is_fed_nothing(fresh: Fresh, stride: int) -> None:
    engine, plain = fresh(), fresh()
    call = Decode("", forced=tuple(engine.framing.content.encode("y")), stride=stride)
    plain.submit([call])
    public = [say(engine, "Vote."), say(engine, "Now.")]
    leader, shadow = engine.submit([call, Shadow(call, public)])
    expected, results = finish(plain), finish(engine)
    assert [r.encoded for r in results] == [r.encoded for r in expected]
    assert results[-1].finished == (leader, shadow)
    assert engine.message(shadow) == engine.message(leader)
    assert engine.finished(shadow)
    assert [entry.id for entry in engine.receipt(shadow).context] == public
    assert not made(engine, shadow)
    recipe = engine.debug.entry(shadow).recipe
    assert recipe is not None
    assert recipe.way == "stepwise"


def test_what_its_leader_attended_to_is_not_kept_in_slots(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store counts what it keeps; uncounted slot tensors would grow with every vote."""
    pools, begin = WeakSet[SlotPool](), SlotPool.__init__

    def noted(pool: SlotPool, *shape: Any) -> None:
        begin(pool, *shape)
        pools.add(pool)

    monkeypatch.setattr(SlotPool, "__init__", noted)
    engine = fresh()
    talk = say(engine, LONG * 4)
    for turn in range(3):
        public = say(engine, f"Topic {turn}.")
        votes = [Decode("", [talk, public], forced=(70 + turn, 80 + each)) for each in range(4)]
        ids = engine.submit([call for vote in votes for call in (vote, Shadow(vote, [talk]))])
        finish(engine)
        assert not any(made(engine, shadow) for shadow in ids[1::2])
    gc.collect()
    assert set(pools) <= set(engine._runner.slots._pools)


@pytest.mark.parametrize("deterministic", [False, True])
def test_it_is_made_in_the_forward_of_its_first_reader(fresh: Fresh, deterministic: bool) -> None:
    engine = fresh()
    public = say(engine, "Vote.")
    shadow = vote(engine, "yes", [public])
    twin = again(engine, shadow)
    scored = engine.score("so be it", "", [public, twin])
    forced = tuple(engine.framing.content.encode("so be it"))
    [reader] = engine.submit([Decode("", [public, shadow], forced=forced, logits=True)])
    first = engine.step(deterministic)
    opening = len(engine.framing.opening("assistant", None))
    assert first.encoded == size(engine, shadow) + opening
    assert first.spoken[0].id == reader
    rest = finish(engine, deterministic)
    assert {id for result in (first, *rest) for id in result.finished} == {reader}
    logits = engine.logits(reader).log_softmax(-1)
    assert torch.allclose(logits, scored, atol=1e-4)
    assert alike(engine, shadow, twin)
    [second] = engine.submit([Prefill("And?", [shadow])])
    assert sum(result.encoded for result in finish(engine)) == size(engine, second)


def test_a_chain_of_them_is_made_at_once_each_after_what_it_reads(fresh: Fresh) -> None:
    engine = fresh()
    chain = list[EncodingId]()
    for text in ("a", "b", "c", "d"):
        chain.append(vote(engine, text, chain[-2:]))
    aside = vote(engine, "aside", chain[:1])
    [reader] = engine.submit([Prefill("Who?", chain[3:])])
    [result] = finish(engine)
    assert result.finished == (reader,)
    assert result.encoded == size(engine, *chain, reader)
    assert not made(engine, aside)
    assert all(alike(engine, id, again(engine, id)) for id in (*chain, reader, aside))


def test_one_that_waits_beside_others_is_not_made_because_the_engine_steps(fresh: Fresh) -> None:
    engine = fresh()
    shadow = vote(engine)
    [other] = engine.submit([Decode("", forced=tuple(engine.framing.content.encode(LONG)))])
    late = speech(engine, "no")
    leader, over = engine.submit([late, Shadow(late, [shadow])])
    finish(engine)
    assert not made(engine, shadow)
    assert not made(engine, over)
    assert all(map(engine.finished, (other, leader, over)))
    assert alike(engine, over, again(engine, over))


def test_a_shadow_that_reads_one_has_it_made_when_it_begins_and_not_before(fresh: Fresh) -> None:
    engine = fresh()
    shadow = vote(engine)
    call = Decode("", forced=tuple(engine.framing.content.encode(LONG)))
    leader, over = engine.submit([call, Shadow(call, [shadow])])
    began = list[tuple[int, bool]]()
    while not engine.idle:
        engine.step()
        running = {call.id: call.fed for call in engine.debug.rows}
        began.append((running.get(over, 0), made(engine, shadow)))
    assert all((fed > 0) == done for fed, done in began[:-1])
    assert began[0] == (0, False)
    engine.check_integrity()
    assert alike(engine, over, again(engine, over))
    assert size(engine, leader) == size(engine, over)


def test_a_reader_that_lacks_something_else_does_not_have_it_made_before(fresh: Fresh) -> None:
    engine = fresh()
    engine._scheduler._budget = TokenBudget(64, 4)
    shadow = vote(engine)
    engine.submit([Decode("", forced=tuple(engine.framing.content.encode(LONG)))])
    engine.step()
    question = Prefill("a question of many words, in parts")
    _, reader = engine.submit([question, Decode("", [question, shadow], sampling=Sampling(max_tokens=1))])
    while not made(engine, shadow):
        assert not engine.step().finished or made(engine, shadow)
    assert reader in {call.id for call in engine.debug.rows}
    finish(engine)


@pytest.mark.parametrize("choose", [FirstK(3), TopK(0.5)])
def test_a_repair_has_its_base_and_its_context_made(fresh: Fresh, choose: FirstK | TopK) -> None:
    engine = fresh()
    base, context = vote(engine, "the base"), vote(engine, "the context")
    [repaired] = engine.submit([Repair(base, choose, [context])])
    finish(engine)
    copies = again(engine, base), again(engine, context)
    [expected] = engine.submit([Repair(copies[0], choose, [copies[1]])])
    finish(engine)
    assert alike(engine, repaired, expected)


def test_score_and_cached_have_it_made(fresh: Fresh) -> None:
    engine = fresh()
    inner = vote(engine, "yes")
    outer = vote(engine, "no", [inner])
    copies = fresh()
    one = again_elsewhere(engine, copies, inner, {})
    two = again_elsewhere(engine, copies, outer, {inner: one})
    assert torch.allclose(engine.score("so", "", [outer]), copies.score("so", "", [two]), atol=1e-4)
    assert made(engine, inner)
    engine.check_integrity()
    third = vote(engine, "maybe", [outer])
    engine.swap_out([third])
    assert engine.cached(third)[0][0].shape[1] == size(engine, third)
    engine.check_integrity()
    engine.swap_out([third, outer, inner])
    assert alike(engine, third, again(engine, third))


def again_elsewhere(engine: Engine, other: Engine, id: EncodingId, names: dict[EncodingId, EncodingId]) -> EncodingId:
    words, receipt = engine.message(id), engine.receipt(id)
    tokens = words.tokens[slice(*words.content)]
    parents = [names[entry.id] for entry in receipt.context]
    [copy] = other.submit([Prefill("", parents, role="assistant", tokens=tokens)])
    finish(other)
    return copy


def test_released_it_is_gone_with_all_it_holds(fresh: Fresh) -> None:
    engine = fresh()
    empty = engine.fullness.used
    public = say(engine, "Vote.")
    inner = vote(engine, "yes", [public])
    outer = vote(engine, "no", [inner])
    engine.release([public, inner])
    engine.check_integrity()
    assert engine.fullness.used > empty
    engine.release([outer])
    engine.check_integrity()
    assert engine.fullness.used == empty
    assert not engine.debug.deferred


@pytest.mark.parametrize("cancelled", [False, True])
def test_released_while_somebody_waits_for_it_it_is_made_for_that_one_alone(fresh: Fresh, cancelled: bool) -> None:
    engine = fresh()
    empty = engine.fullness.used
    public = say(engine, "Vote.")
    shadow = vote(engine, "yes", [public])
    length = size(engine, shadow)
    [reader] = engine.submit([Prefill("And?", [shadow])])
    engine.release([shadow, public])
    engine.check_integrity()
    assert engine.fullness.used > empty
    if cancelled:
        engine.cancel([reader])
        assert engine.idle
    else:
        assert sum(result.encoded for result in finish(engine)) == length + size(engine, reader)
        engine.release([reader])
    engine.check_integrity()
    assert engine.fullness.used == empty
    assert not engine.debug.deferred


def test_its_id_is_finished_and_cancelling_it_does_nothing(fresh: Fresh) -> None:
    engine = fresh()
    shadow = vote(engine)
    [reader] = engine.submit([Prefill("And?", [shadow])])
    engine.cancel([shadow])
    finish(engine)
    assert engine.finished(shadow)
    assert engine.finished(reader)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_forward_that_fails_leaves_it_postponed(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    engine = fresh()
    inner = vote(engine, "yes")
    outer = vote(engine, "no", [inner])
    used = engine.fullness.used
    real, forwards = engine._model.forward, list[int]()

    def second_fails(*args: Any) -> Any:
        forwards.append(1)
        return real(*args) if deterministic and len(forwards) == 1 else 1 / 0

    engine.submit([Prefill("And?", [outer])])
    with monkeypatch.context() as broken:
        broken.setattr(engine._model, "forward", second_fails)
        dead(broken)
        with pytest.raises(EngineFailed):
            engine.step(deterministic)
    engine.check_integrity()
    assert (made(engine, inner), made(engine, outer)) == (deterministic, False)
    assert (engine.idle, engine.fullness.used > used) == (True, deterministic)
    [reader] = engine.submit([Prefill("And?", [outer])])
    finish(engine)
    assert all(alike(engine, id, again(engine, id)) for id in (inner, outer, reader))


def test_a_forward_that_fails_drops_what_was_to_be_postponed_in_it(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fresh()
    public = say(engine, "Vote.")
    used = engine.fullness.used
    call = Decode("", forced=())
    _, shadow = engine.submit([call, Shadow(call, [public])])
    engine.step()
    with monkeypatch.context() as broken:
        broken.setattr(engine._model, "forward", lambda *_: 1 / 0)
        dead(broken)
        with pytest.raises(EngineFailed):
            engine.step()
    engine.check_integrity()
    assert (engine.finished(shadow), engine.fullness.used, engine.idle) == (False, used, True)


def test_its_guard_is_asked_before_it_counts_as_finished_and_before_it_is_gathered(fresh: Fresh) -> None:
    engine, guard = fresh(), Guarded()
    public = say(engine, "Vote.")
    shadow = vote(engine, "yes", [public], guard=guard)
    assert guard.asked == [(shadow, (public,))]
    engine.submit([Prefill("And?", [shadow])])
    finish(engine)
    assert guard.asked == 2 * [(shadow, (public,))]
    closed = vote(engine, "no", [public], guard=Guarded(0))
    assert not engine.finished(closed)


def test_what_its_guard_refuses_in_the_end_is_never_read(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fresh()
    public = say(engine, "Vote.")
    shadow = vote(engine, "yes", [public], guard=Guarded(1))
    with pytest.raises(LeakageError):
        engine.cached(shadow)
    engine.check_integrity()
    readers = engine.submit([Prefill("And?", [shadow]), Decode("", [shadow], forced=())])
    results = finish(engine)
    errors = {failure.id: type(failure.error) for result in results for failure in result.failed}
    assert errors == {shadow: LeakageError, readers[0]: LeakageError, readers[1]: LeakageError}
    assert sum(result.encoded for result in results) == 0
    with pytest.raises(LeakageError):
        engine.score("so", "", [shadow])
    engine.release([shadow])
    engine.check_integrity()
    assert not engine._scheduler.deferred.refused


def test_what_is_to_be_made_over_it_is_not_taken_for_made(fresh: Fresh) -> None:
    engine = fresh()
    public = say(engine, "Vote.")
    first = vote(engine, "yes", [public], guard=Guarded(1))
    second = vote(engine, "so do I", [first])
    engine.submit([Prefill("And?", [first])])
    finish(engine)
    for _ in range(2):
        with pytest.raises(LeakageError):
            engine.score("so", "", [second])
    [reader] = engine.submit([Prefill("And?", [second])])
    results = finish(engine)
    errors = {failure.id: type(failure.error) for result in results for failure in result.failed}
    assert errors == {second: LeakageError, reader: LeakageError}
    engine.release([first, second])
    engine.check_integrity()


@pytest.mark.parametrize("gone", ["cancelled", "refused"])
@pytest.mark.parametrize("kind", ["prefill", "repair"])
def test_what_one_of_two_equal_ones_was_to_be_made_from_is_made_again_from_the_other(
    fresh: Fresh, kind: str, gone: str
) -> None:
    """Equal calls over equal votes share storage; the vote that the first of them named is never made."""

    def call(shadow: EncodingId) -> Call:
        return Prefill("And?", [shadow]) if kind == "prefill" else Repair(shadow, choose=FirstK(2))

    engine = fresh(host=0)
    shadows = vote(engine, guard=Guarded(1 if gone == "refused" else 10)), vote(engine)
    [one], [other] = (engine.submit([call(id)], SchedulingPriority(str(id))) for id in shadows)
    if gone == "cancelled":
        engine.cancel([one])
        engine.release([shadows[0]])
    failed = {failure.id for result in finish(engine) for failure in result.failed}
    assert failed == ({shadows[0], one} if gone == "refused" else set())
    before = engine.cached(other)
    engine.swap_out([other])
    _, bystander = engine.submit([Prefill("So?", [other]), Prefill("Well?")])
    finish(engine)
    assert engine.finished(bystander)
    assert all(
        torch.allclose(a, b, atol=1e-4)
        for one, two in zip(before, engine.cached(other), strict=True)
        for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("asked", ["score", "cached"])
def test_what_could_not_be_made_for_who_asked_is_still_postponed(fresh: Fresh, asked: str) -> None:
    engine, guard = fresh(), Guarded()
    inner = vote(engine, "yes")
    shadow = vote(engine, "no", [inner], guard=guard)
    ask: Callable[[], object] = (
        (lambda: engine.score("so", "", [shadow])) if asked == "score" else (lambda: engine.cached(shadow))
    )
    forward, calls = engine._model.forward, list[int]()

    def fail_at_second(*words: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("no memory")
        return forward(*words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._model, "forward", fail_at_second)
        with pytest.raises(RuntimeError, match="no memory"):
            ask()
    engine.check_integrity()
    assert (made(engine, inner), made(engine, shadow)) == (True, False)
    assert [call.id for call in engine.debug.deferred] == [shadow]
    assert len(guard.asked) == 2
    ask()
    assert len(guard.asked) == 3
    assert made(engine, shadow)
    engine.check_integrity()
    assert engine.fullness.remade == 0


def test_where_there_is_no_room_for_one_it_is_said_how_much_it_needs(fresh: Fresh) -> None:
    engine = fresh(100, 0)
    public = say(engine, "Vote. " * 8)
    shadow = vote(engine, "yes", [public])
    needed = 1 + size(engine, public, shadow)  # 1 is the BOS
    engine.submit([Decode("", forced=tuple(engine.framing.content.encode("on and on and " * 4)))])
    engine.step()
    with pytest.raises(StoreFull, match=f"needs room for {needed} tokens at once"):
        engine.score("so", "", [shadow])
    assert not made(engine, shadow)
    finish(engine)
    engine.score("so", "", [shadow])
    assert made(engine, shadow)


def test_a_message_that_is_not_short_is_not_left_for_its_reader(fresh: Fresh) -> None:
    engine = fresh()
    call = Decode("", forced=tuple(range(40, 100)), stride=100)
    leader, shadow = engine.submit([call, Shadow(call)])
    fed = sum(result.encoded for result in finish(engine))
    assert fed == 2 * size(engine, leader)
    assert made(engine, shadow)


def test_who_reads_it_is_billed_and_goes_in_its_own_turn(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fresh()
    engine._scheduler._budget = TokenBudget(16, 16)
    shadow = vote(engine, "yes it is")
    served = list[tuple[str, int]]()
    queue = engine._scheduler._waiting
    monkeypatch.setattr(queue, "serve", lambda waiting, tokens: served.append((waiting.turn.workflow, tokens)))
    [low] = engine.submit([Prefill("And?", [shadow])], SchedulingPriority("low"))
    [high] = engine.submit([Prefill("One two three four")], SchedulingPriority("high", priority=1))
    finish(engine)
    assert served[0][0] == "high"
    billed = sum(tokens for workflow, tokens in served if workflow == "low")
    assert billed == size(engine, shadow, low)
    assert sum(tokens for workflow, tokens in served if workflow == "high") == size(engine, high)


def test_a_cancelled_leader_leaves_nothing_postponed(fresh: Fresh) -> None:
    engine = fresh()
    used = engine.fullness.used
    call = speech(engine, "yes")
    leader, shadow = engine.submit([call, Shadow(call)])
    engine.step()
    engine.cancel([leader])
    engine.check_integrity()
    assert (engine.idle, engine.finished(shadow), engine.fullness.used) == (True, False, used)


def test_alone_a_shadow_goes_with_its_leaders_last_forward(fresh: Fresh) -> None:
    engine = fresh()
    call = speech(engine, "yes")
    _, shadow = engine.submit([call, Shadow(call)])
    results = finish(engine, deterministic=True)
    assert made(engine, shadow)
    assert results[-1].encoded > size(engine, shadow)


def test_one_that_waits_for_room_alone_is_postponed_by_a_step_that_is_not(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fresh()
    monkeypatch.setattr(engine._scheduler, "_budget", TokenBudget(1, 1))
    call = Decode("", forced=tuple(engine.framing.content.encode("yes")))
    leader, shadow = engine.submit([call, Shadow(call)])
    while not engine.finished(leader):
        engine.step(deterministic=True)
    assert not engine.finished(shadow)
    [result] = finish(engine)
    assert (result.finished, result.encoded) == ((shadow,), 0)


def test_one_whose_context_is_not_encoded_yet_is_done_when_that_is(fresh: Fresh) -> None:
    engine = fresh()
    engine._scheduler._budget = TokenBudget(64, 1)
    engine.submit([Decode("", forced=tuple(engine.framing.content.encode(LONG)))])
    engine.step()
    question = Prefill("a question of many words")
    call = Decode("", forced=())
    asked, leader, shadow = engine.submit([question, call, Shadow(call, [question])])
    ended = {id: number for number, result in enumerate(finish(engine)) for id in result.finished}
    assert ended[leader] < ended[asked] == ended[shadow]
    assert not made(engine, shadow)


def test_a_store_with_no_room_for_all_makes_one_after_another(fresh: Fresh) -> None:
    roomy, tight = fresh(), fresh(100, 0)
    for engine in (roomy, tight):
        public = say(engine, "What do you say to this, all of you?")
        votes = [vote(engine, f"vote {number}", [public]) for number in range(3)]
        [reader] = engine.submit([Decode("", votes, sampling=Sampling(max_tokens=4, temperature=0))])
        finish(engine)
        assert engine.finished(reader)
        said = engine.message(reader).tokens
        if engine is roomy:
            expected = said
    assert said == expected
    assert tight.fullness.high_water * tight.fullness.page_tokens <= 112


class Crowd:
    """Random actions on one engine: short messages with shadows, readers, ends, failures of the model."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.rng = engine, Random(seed)
        self.held, self.flying = list[EncodingId](), list[EncodingId]()

    def some(self) -> list[EncodingId]:
        return self.rng.sample(self.held, min(len(self.held), self.rng.randint(0, 3)))

    def call(self) -> None:
        text = tuple(self.engine.framing.content.encode(self.rng.choice(["", "no", "yes", "one of the long ones"])))
        said = Decode("", self.some(), forced=text, stride=16 if text and self.rng.random() < 0.7 else 1)
        calls: list[Call] = [said, *(Shadow(said, self.some()) for _ in range(self.rng.randint(0, 2)))]
        if self.rng.random() < 0.5:
            calls.append(Prefill(self.rng.choice(["a", "b", "what was said here"]), self.some()))
        if self.held and self.rng.random() < 0.2:
            calls.append(
                Repair(self.rng.choice(self.held), FirstK(2) if self.rng.random() < 0.5 else TopK(0.4), self.some())
            )
        with suppress(StoreFull):
            self.flying += self.engine.submit(calls)

    def step(self) -> None:
        result = self.engine.step(self.rng.random() < 0.2)
        assert all(isinstance(failure.error, RequestError | CallFailed) for failure in result.failed)
        done = {*result.finished, *(failure.id for failure in result.failed)}
        assert done <= set(self.flying)
        assert len(done) == len(result.finished) + len(result.failed)
        self.flying = [id for id in self.flying if id not in done]
        self.held += result.finished

    def fail(self) -> None:
        good, real = self.rng.randint(0, 1), self.engine._model.forward
        forwards = iter([real] * good)
        self.engine._model.forward = lambda *args: next(forwards)(*args)  # type: ignore[method-assign]
        with pytest.MonkeyPatch.context() as patch:
            if self.rng.random() < 0.5:
                dead(patch)
            try:
                self.step()
            except EngineFailed:
                self.flying = []
            finally:
                del self.engine._model.forward
        assert all(map(self.engine.finished, self.held))

    def look(self) -> None:
        with suppress(StoreFull):
            if self.held:
                self.engine.cached(self.rng.choice(self.held))

    def swap(self) -> None:
        self.engine.swap_out(self.some())

    def release(self) -> None:
        gone = self.some()
        self.held = [id for id in self.held if id not in gone]
        self.engine.release(gone)

    def cancel(self) -> None:
        gone = self.rng.sample(self.flying, min(1, len(self.flying)))
        self.engine.cancel([*gone, *self.some()])
        self.flying = [id for id in self.flying if id in self.engine._scheduler.in_flight]

    def act(self) -> None:
        acts = [self.call] * 3 + [self.step] * 8 + [self.look, self.swap, self.release, self.cancel, self.fail]
        self.rng.choice(acts)()


@pytest.mark.parametrize(
    ("seed", "every"), [(0, 10), *(pytest.param(seed, 1, marks=pytest.mark.slow) for seed in range(3))]
)
@pytest.mark.parametrize("tokens", [96, 1 << 14])
def test_whatever_happens_all_that_is_stored_is_whole_and_right(
    fresh: Fresh, tokens: int, seed: int, every: int
) -> None:
    engine = fresh(tokens, 0)
    crowd, used, seen = Crowd(engine, seed), engine.fullness.used, 0
    for number in range(150):
        crowd.act()
        if number % every == 0:
            engine.check_integrity()
        seen = max(seen, len(engine.debug.deferred))
    while not engine.idle:
        crowd.step()
    assert not crowd.flying
    assert seen
    if tokens > 96:
        assert all(alike(engine, id, again(engine, id)) for id in plain(engine, crowd.held))
    engine.release(crowd.held)
    engine.check_integrity()
    assert not engine.debug.deferred
    if tokens == 96:
        assert engine.fullness.used == used


def plain(engine: Engine, ids: Sequence[EncodingId]) -> list[EncodingId]:
    """The encodings that are not repairs and whose context still exists."""
    return [
        id
        for id in ids
        if engine.receipt(id).base is None and all(engine.finished(e.id) for e in engine.receipt(id).context)
    ]
