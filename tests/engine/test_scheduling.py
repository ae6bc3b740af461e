"""The order of calls, and how much of a long prefill runs beside decodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling, replay
from agentcho.engine.call_layout import CallContext, KVEntry
from agentcho.engine.queue import DEPTH, BurstDetector, CallQueue, TokenBudget
from agentcho.engine.sequence import SHORT, Sequence
from agentcho.lab.bench.recorded import recorded
from agentcho.protocol.call import Repair, SchedulingPriority, Shadow
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.top_k import TopK
from agentcho.runner.kv.decode_kv import Slot

LONG = Sampling(max_tokens=40, temperature=0)
WORDS = "it was said in the open " * 4
Fresh = Callable[..., Engine]


@pytest.fixture
def fresh(llama: Engine) -> Fresh:
    """Engines on the network of `llama`, with their own token budget."""

    def make(packed: int = 4096, beside: int = 8, tokens: int = 1 << 16) -> Engine:
        engine = Engine(llama._model, llama.framing, llama.proofs, tokens, 1 << 16, llama.context)
        engine._scheduler._budget = TokenBudget(packed, beside)
        return engine

    return make


def speaking(engine: Engine) -> int:
    """A running decode."""
    [id] = engine.submit([Decode("so: ", forced=tuple(engine.framing.content.encode("on and on " * 20)))])
    engine.step()
    return id


def finish(engine: Engine) -> list[int]:
    """Step until idle; the tokens fed by each step."""
    fed = []
    while not engine.idle:
        fed.append(engine.step().encoded)
    return fed


def test_a_long_prefill_goes_in_parts_beside_a_speaker_who_speaks_at_every_step(fresh: Fresh) -> None:
    engine = fresh()
    speaker = speaking(engine)
    [long] = engine.submit([Prefill(WORDS)])
    steps = []
    while not engine.finished(long):
        result = engine.step()
        steps.append(([said.id for said in result.spoken], result.encoded))
    assert len(steps) > 5
    assert all(said == [speaker] and fed <= 1 + 8 for said, fed in steps)
    assert sum(fed - 1 for _, fed in steps) == len(engine.message(long).tokens)
    assert len(engine.debug.slots) == 1  # the running decode's


def test_with_nobody_speaking_all_goes_at_once(fresh: Fresh) -> None:
    engine = fresh()
    [long] = engine.submit([Prefill(WORDS)])
    assert engine.step().finished == (long,)


@pytest.mark.parametrize("packed", [64, 7])
def test_parts_make_the_keys_and_values_of_the_whole(fresh: Fresh, packed: int) -> None:
    """Over a context, moved, as a parent and as the base of a repair: as if encoded at once."""
    engine, whole = fresh(packed), fresh()

    def made(on: Engine) -> list[torch.Tensor]:
        parent = Prefill("the rules")
        long = Prefill(WORDS, [parent], offsets=[9], new_offset=30)
        child = Prefill("and then", [long, parent], offsets=[3, None])
        fixed = Repair(long, FirstK(5), [child])
        judged = Repair(long, TopK(0.1), [child])
        ids = on.submit([parent, long, child, fixed, judged])
        finish(on)
        return [tensor for id in ids for pair in on.cached(id) for tensor in pair]

    for one, other in zip(made(engine), made(whole), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_equal_prefills_share_the_parts_and_one_may_be_cancelled_in_between(fresh: Fresh) -> None:
    engine = fresh()
    speaking(engine)
    first, second = engine.submit([Prefill(WORDS), Prefill(WORDS)])
    fed = [engine.step().encoded for _ in range(3)]
    engine.cancel([first])
    fed += finish(engine)
    assert engine.finished(second)
    assert not engine.finished(first)
    plain = fresh()
    [alone] = plain.submit([Prefill(WORDS)])
    finish(plain)
    for (k, v), (one, other) in zip(engine.cached(second), plain.cached(alone), strict=True):
        torch.testing.assert_close(k, one, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(v, other, atol=2e-5, rtol=1e-4)


def test_a_part_that_is_cancelled_leaves_no_page(fresh: Fresh) -> None:
    engine = fresh()
    speaker = speaking(engine)
    before = engine.fullness.used
    [long] = engine.submit([Prefill(WORDS)])
    engine.step()
    engine.cancel([long])
    assert engine.fullness.used == before
    engine.check_integrity()
    engine.cancel([speaker])
    assert len(engine.debug.slots) == 0


def test_who_builds_on_a_part_waits_for_the_whole(fresh: Fresh) -> None:
    engine = fresh()
    speaking(engine)
    long = Prefill(WORDS)
    parent, child = engine.submit([long, Decode("then: ", [long], sampling=LONG)])
    steps = []
    while not engine.finished(parent):
        steps.append(any(said.id == child for said in engine.step().spoken))
    assert len(steps) > 3
    assert steps == [False] * (len(steps) - 1) + [True]  # the reader started in the forward that completed its context


def test_parts_are_smaller_the_more_they_attend_to() -> None:
    assert [TokenBudget(4096, 32).room(1, speaking=True).take(900, True, deep) for deep in (0, DEPTH, 3 * DEPTH)] == [
        32,
        16,
        8,
    ]
    assert TokenBudget(4096, 32).room(1, speaking=True).take(900, True, 1000 * DEPTH) == 1
    assert TokenBudget(4096, 32).room(0, speaking=False).take(900, True, 1000 * DEPTH) == 900


def test_in_the_deterministic_profile_nothing_is_divided(fresh: Fresh) -> None:
    engine = fresh()
    [speaker] = engine.submit([Decode("so: ", sampling=LONG)])
    engine.step(deterministic=True)
    [long] = engine.submit([Prefill(WORDS)])
    assert engine.step(deterministic=True).finished == (long,)
    engine.cancel([speaker])


def test_in_the_deterministic_profile_what_is_more_than_a_forward_may_take_goes_at_once(fresh: Fresh) -> None:
    """Otherwise its last bits would show what else used the budget."""
    engine = fresh(packed=7)
    [long] = engine.submit([Prefill(WORDS)])
    assert engine.step(deterministic=True).finished == (long,)


def test_parts_that_were_encoded_beside_others_do_not_show_in_the_deterministic_profile(fresh: Fresh) -> None:
    engine, plain = fresh(), fresh()
    speaker = speaking(engine)
    [long] = engine.submit([Prefill(WORDS)])
    engine.step()
    engine.step(deterministic=True)
    engine.cancel([speaker])
    [whole] = plain.submit([Prefill(WORDS)])
    plain.step(deterministic=True)
    for (k, v), (one, other) in zip(engine.cached(long), plain.cached(whole), strict=True):
        assert torch.equal(k, one)
        assert torch.equal(v, other)
    assert len(engine.debug.slots) == 0
    engine.check_integrity()


def test_a_low_priority_twin_that_began_goes_on_for_the_high_one_that_waits_for_it(fresh: Fresh) -> None:
    engine = fresh()
    speaking(engine)
    engine.submit([Prefill(WORDS)])
    engine.step()
    twin = Prefill(WORDS)
    [_, child] = engine.submit([twin, Decode("so", [twin], sampling=LONG)], SchedulingPriority("high", 2))
    said = []
    for number in range(40):
        engine.submit([Prefill(f"{number} of a stream of others")], SchedulingPriority("stream", 1))
        said += [spoken.id for spoken in engine.step().spoken]
    assert child in said


def test_what_was_begun_is_finished_before_newcomers_begin(fresh: Fresh) -> None:
    engine = fresh()
    speaking(engine)
    calls = list[int]()
    for number in range(40):
        calls += engine.submit([Prefill(f"number {number} is a newcomer")], SchedulingPriority(str(number)))
        engine.step()
    assert engine.finished(calls[0])
    assert sum(engine.finished(id) for id in calls) > 5


def test_a_higher_priority_overtakes(fresh: Fresh) -> None:
    engine = fresh()
    speaking(engine)
    [low] = engine.submit([Prefill(WORDS)])
    engine.step()
    [high] = engine.submit([Prefill("urgent " * 20)], SchedulingPriority("other", priority=1))
    order = []
    while not (engine.finished(low) and engine.finished(high)):
        order += [id for id in engine.step().finished if id in (low, high)]
    assert order == [high, low]


def test_workflows_are_served_alike(fresh: Fresh) -> None:
    """A workflow that submits many prefills does not hold up another workflow's prefill."""
    engine = fresh()
    speaking(engine)
    many = engine.submit([Prefill(f"{number} of many") for number in range(20)], SchedulingPriority("many"))
    engine.step()
    [one] = engine.submit([Prefill("one of few")], SchedulingPriority("few"))
    while not engine.finished(one):
        engine.step()
    assert sum(engine.finished(id) for id in many) < 5
    finish(engine)


def waiting(number: int) -> Sequence:
    """A waiting prefill."""
    return Sequence(number, Prefill(""), CallContext((), 0), 3, None, KVEntry(bytes([number]), 0, 3))


def test_a_workflow_that_was_away_has_no_credit() -> None:
    queue, calls = CallQueue(), [waiting(number) for number in range(4)]
    queue.add(calls[:1], SchedulingPriority("old"))
    queue.serve(queue.line()[0], 100)
    queue.add(calls[1:2], SchedulingPriority("new"))
    assert [w.call for w in queue.line()] == calls[:2]  # at the same level: by arrival
    queue.serve(queue.line()[0], 1)
    assert [w.call for w in queue.line()] == [calls[1], calls[0]]
    queue.keep(lambda call: call is calls[0])
    queue.add(calls[2:3], SchedulingPriority("new"))
    assert [w.call for w in queue.line()] == [calls[0], calls[2]]


def test_groups_get_equal_shares_however_many_workflows_they_have() -> None:
    queue = CallQueue()
    for number, (group, workflow) in enumerate([("x", "1"), ("x", "2"), ("x", "3"), ("y", "1")]):
        queue.add([waiting(number)] * 2, SchedulingPriority(workflow, group=group))
    served = list[str]()
    while len(served) < 4:
        first = queue.line()[0]
        queue.serve(first, 10)
        served.append(first.turn.group + first.turn.workflow)
    assert served == ["x1", "y1", "x2", "y1"]
    queue.add([waiting(9)], SchedulingPriority("1", group="z"))
    queue.add([waiting(8)], SchedulingPriority("4", group="x"))
    assert queue.line()[0].turn.group == "x", "who was away has no credit"
    queue.keep(lambda call: call.id in (3, 8))
    assert [(each.turn.group, each.turn.workflow) for each in queue.line()] == [("x", "4"), ("y", "1"), ("y", "1")]


def test_what_cannot_be_divided_goes_whatever_its_size_where_nothing_else_does() -> None:
    room = TokenBudget(10, 4).room(0, speaking=False)
    assert room.take(30, divisible=False) == 30
    assert room.take(1, divisible=True) is None
    room = TokenBudget(10, 4).room(2, speaking=True)
    assert [room.take(30, divisible=True), room.take(1, divisible=True), room.take(4, divisible=False)] == [4, None, 4]
    assert room.take(5, divisible=False) is None
    assert room.take(0, divisible=False) == 0


AHEAD = SchedulingPriority(ahead=True)


def test_what_is_made_ahead_goes_beside_speakers_and_waits_while_anybody_waits(fresh: Fresh) -> None:
    engine = fresh(beside=8)
    speaking(engine)
    [early] = engine.submit([Prefill(WORDS)], AHEAD)
    assert 1 < engine.step().encoded <= 1 + 8
    [asked] = engine.submit([Prefill("a question that somebody asks, in words of some length")])
    while not engine.finished(asked):
        assert not engine.finished(early)
        engine.step()
    finish(engine)
    alone = fresh()
    [plain] = alone.submit([Prefill(WORDS)])
    finish(alone)
    for pair, other in zip(engine.cached(early), alone.cached(plain), strict=True):
        torch.testing.assert_close(pair, other, atol=2e-5, rtol=1e-4)


def test_what_is_made_ahead_never_joins_a_first_token(fresh: Fresh) -> None:
    engine, alone = fresh(), fresh()
    engine.submit([Prefill(WORDS)], AHEAD)
    for each in (engine, alone):
        each.submit([Decode("so: ", forced=tuple(engine.framing.content.encode("on and on")))])
    assert engine.step().encoded == alone.step().encoded
    finish(engine)
    finish(alone)


def test_what_is_made_ahead_goes_at_once_where_nobody_is_there(fresh: Fresh) -> None:
    engine = fresh(beside=2)
    [early] = engine.submit([Prefill(WORDS)], AHEAD)
    assert engine.step().finished == (early,)


def test_who_asks_for_what_is_being_made_ahead_gets_it_whole(fresh: Fresh) -> None:
    """Once asked for, its remaining tokens are not held back, and none is encoded twice."""
    engine = fresh(beside=8)
    speaker = speaking(engine)
    [early] = engine.submit([Prefill(WORDS)], AHEAD)
    parts = engine.step().encoded - 1
    engine.cancel([speaker])
    [asked] = engine.submit([Prefill(WORDS)])
    rest = engine.step()
    assert set(rest.finished) == {early, asked}
    assert parts + rest.encoded == len(engine.message(asked).tokens)


def test_a_shadow_goes_some_tokens_at_a_time_and_not_all_shadows_at_once(fresh: Fresh) -> None:
    engine, plain = fresh(), fresh()
    words = tuple(engine.framing.content.encode("on and on " * 8))
    calls = [Decode(f"{number}: ", forced=words) for number in range(4)]
    alone = plain.submit(calls)
    said = engine.submit([each for call in calls for each in (call, Shadow(call))])
    own, shadows = said[::2], said[1::2]
    fed: list[int] = []
    while not engine.idle:
        expected = plain.step()
        result = engine.step()
        assert result.spoken == tuple(word._replace(id=own[alone.index(word.id)]) for word in expected.spoken)
        fed.append(result.encoded - expected.encoded)
    assert set(result.finished) == set(said)
    assert fed[0] == 0
    assert sum(fed) == sum(len(engine.message(id).tokens) for id in shadows)
    busy = [number for number, tokens in enumerate(fed[:-1]) if tokens]
    assert len(words) / 16 + 1 < len(busy) < len(fed) / 2
    for id, shadow in zip(own, shadows, strict=True):
        for (k, v), (one, other) in zip(engine.cached(id), engine.cached(shadow), strict=True):
            torch.testing.assert_close(k, one, atol=2e-5, rtol=1e-4)
            torch.testing.assert_close(v, other, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("ends", [True, False])
def test_what_was_begun_ahead_gives_its_room_back_to_who_needs_it(fresh: Fresh, ends: bool) -> None:
    """It is half encoded, and an urgent call does not fit beside it: it is finished first, and then makes room."""
    long = "what is asked for now, and it is long " * 3
    plain = fresh()
    ids = plain.submit([Prefill(WORDS), Prefill(long)])
    finish(plain)
    sizes = [len(plain.message(id).tokens) for id in ids]
    engine = fresh(beside=8, tokens=max(sizes) + min(sizes) // 2 + 40)
    [speaker] = engine.submit([Decode("so: ", forced=tuple(engine.framing.content.encode("on and on")))])
    engine.step()
    [early] = engine.submit([Prefill(WORDS)], AHEAD)
    engine.step()
    if ends:
        engine.cancel([speaker])
    [asked] = engine.submit([Prefill(long)])
    for _ in range(100):
        engine.step()
    assert engine.idle
    assert engine.finished(early)
    assert engine.finished(asked)


def test_who_builds_on_what_is_made_ahead_gets_it(fresh: Fresh) -> None:
    engine = fresh()
    [early] = engine.submit([Prefill(WORDS)], AHEAD)
    [child] = engine.submit([Prefill("over it", [early])])
    engine.step()
    assert engine.finished(early)
    assert engine.finished(child)


def test_what_is_made_ahead_is_no_turn_of_its_workflow() -> None:
    queue = CallQueue()
    queue.add([waiting(1)], SchedulingPriority("a", ahead=True))
    queue.add([waiting(2)], SchedulingPriority("b"))
    queue.serve(queue.line()[0], 500)
    queue.add([waiting(3)], SchedulingPriority("a"))
    queue.add([waiting(4)], SchedulingPriority("c"))
    assert [each.turn.workflow for each in queue.line()] == ["b", "a", "c"]
    queue.keep(lambda pending: pending.id == 1)
    queue.serve(queue.line()[0], 500)
    queue.add([waiting(5)], SchedulingPriority("c"))
    queue.add([waiting(6)], SchedulingPriority("a"))
    assert [each.turn.workflow for each in queue.line()] == ["c", "a"]


def test_speakers_do_not_read_what_their_shadows_have(fresh: Fresh) -> None:
    engine = fresh()
    call = Decode("so: ", forced=tuple(engine.framing.content.encode("on and on " * 18)))
    engine.submit([call, Shadow(call)])
    for _ in range(SHORT + 2):
        engine.step()
    row, shadow = engine.debug.rows
    assert isinstance(row.slot, Slot)
    assert isinstance(shadow.slot, Slot)
    assert row.slot.pool is not shadow.slot.pool
    finish(engine)


def test_a_rush_begins_where_most_wait_and_lasts_until_nobody_does() -> None:
    rush, seen = BurstDetector(), list[bool]()
    for waiting, speaking in ((1, 0), (1, 1), (1, 8), (2, 8), (2, 2), (1, 3), (0, 4), (1, 1), (9, 0), (1, 8), (0, 9)):
        rush.see(waiting, speaking)
        seen.append(rush.on)
    assert seen == [False, False, False, False, True, True, False, False, True, True, False]


@pytest.mark.slow
def test_a_baseline_of_many_takes_no_more_steps_than_what_is_said(llama: Engine) -> None:
    """Ten solvers whose prompts do not fit into one forward: the first ones do not hold up the others."""
    debate = recorded("parallel-debate", 1, 0.05, agents=10)
    steps = {
        mode: replay(debate, llama, mode=mode, leakage="audit", logits=False).steps
        for mode in ("baseline", "choreographed")
    }
    assert steps["baseline"] <= 1.1 * steps["choreographed"]


def test_a_budget_that_is_asked_for_holds_in_a_rush_too_and_until_another_takes_its_place(fresh: Fresh) -> None:
    """Results are the same with any budget."""
    made = list[object]()
    for budget, most in ((None, 1 << 10), (3, 3)):
        engine = fresh()
        engine.take_place(0, budget)
        speaking(engine)
        read = [Prefill(WORDS), Prefill(f"so {WORDS}")]
        ids = engine.submit([*read, *(Decode("now: ", [each], forced=(5, 6)) for each in read)])
        fed = [engine.step().encoded - 1 for _ in range(3)]
        assert max(fed) <= most
        assert (max(fed) > 3) == (budget is None)
        finish(engine)
        made.append([engine.message(id).tokens for id in ids])
        engine.take_place(0)
        assert engine._scheduler._budget == engine._runner.budget
    assert made[0] == made[1]
