"""The engine on vLLM, without vLLM: a client stands in for it and checks its own cache.

Every token has a key that encodes the token and its position, and a value that encodes the token. Before a request
computes, the client compares the contents of its slots with the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho import Decode, FirstK, Prefill, Sampling
from agentcho.engine.template import derive
from agentcho.errors import CallFailed, ConfigError, EngineFailed, RequestError, UnsupportedModel
from agentcho.integrations.vllm.core import VllmCore
from agentcho.integrations.vllm.jobs import PAUSE, Job, Jobs
from agentcho.integrations.vllm.kv_layout import BlockLayout
from agentcho.integrations.vllm.mover import Mover
from agentcho.integrations.vllm.runner import VllmRunner, fill
from agentcho.integrations.vllm.scheduler import BLOCK as BLOCK_OF_SHADOWS
from agentcho.protocol.call import Repair, SchedulingPriority, Shadow
from agentcho.runner.kv.kv_pool import LayerShape, PagePool
from agentcho.runner.kv.rope import Rotation

from .engine.templates import tokenizer

BLOCK, BLOCKS, DIM = 4, 400, 8
TURNING = Rotation("half", torch.tensor([1.0, 0.3, 0.07, 0.01], dtype=torch.double))
TOKENIZER: Any = tokenizer("chatml")
VALUES = torch.randn(len(TOKENIZER), DIM, generator=torch.Generator().manual_seed(1))


class Packed:
    """An attention backend that stores the keys of a block in a different order than their tokens."""

    def do_kv_cache_update(self, layer: Any, keys: Tensor, values: Tensor, cache: Tensor, slots: Tensor) -> None:
        """Write keys and values `[tokens, heads, dim]`."""
        blocks, places = slots // BLOCK, slots % BLOCK
        cache[blocks, 0, :, places] = keys[:, 0].flip(-1)
        cache[blocks, 1, places] = values[:, 0]


def layer(impl: Any) -> Any:
    return SimpleNamespace(impl=impl, num_kv_heads=1, head_size=DIM)


def empty() -> Tensor:
    """Keys as `[block, dim, token]`, flipped, and values as `[block, token, dim]`, in one tensor."""
    return torch.zeros(BLOCKS, 2, DIM, max(BLOCK, DIM))


class Client:
    """Computes what `Packed` stores, and after each token outputs the next id. `steps`: the number of steps so far."""

    longest, vocabulary, usage = 1000, len(TOKENIZER), 0.0

    def __init__(self, jobs: Jobs, layout: BlockLayout) -> None:
        self.jobs, self.layout = jobs, layout
        self.live: dict[str, Job] = {}
        self.tokens: dict[str, list[int]] = {}
        self.computed: dict[str, int] = {}
        self.together: list[int] = []
        self.free = list(range(BLOCKS))
        self.aborted: list[str] = []

    def add(self, job: Job) -> str:
        """Begin a request."""
        self.live[job.name], self.tokens[job.name] = job, list(job.prompt)
        self.computed[job.name] = 0
        return f"{job.name}-inner"

    def extend(self, job: Job) -> None:
        """Add a request's next tokens, which are computed together."""
        self.tokens[job.name] += job.more
        self.together.append(len(job.more))

    def abort(self, job: Job) -> None:
        """End a request and free its blocks."""
        self.aborted.append(job.name)
        self.free += job.blocks
        del self.live[job.name], self.tokens[job.name]

    def close(self) -> None:
        """Do nothing."""

    def preempt(self, job: Job) -> None:
        """Take a request's blocks away and overwrite them."""
        self.layout.cache[job.blocks] = 7.0
        self.free += job.blocks
        job.blocks, self.computed[job.name] = [], 0

    def step(self) -> dict[str, bool]:
        """Compute all tokens that are not computed, and ask for the next ones."""
        stopped, asking = dict[str, bool](), list[tuple[Job, Tensor]]()
        for name, job in list(self.live.items()):
            tokens = self.tokens[name]
            if self.computed[name] == len(tokens):
                continue  # paused
            job.blocks += [self.free.pop(0) for _ in range(-(-len(tokens) // BLOCK) - len(job.blocks))]
            if not self.computed[name]:
                job.written.clear()
                job.begun += 1
                if not self.jobs.load(job):
                    stopped[f"{name}-inner"] = False
                    continue
                self.computed[name] = job.before
            self.compute(job, range(self.computed[name], len(tokens)))
            self.computed[name] = len(tokens)
            self.compare(job)
            assert job.slots == len(tokens)
            row = torch.zeros(self.vocabulary)
            row[(tokens[-1] + 1) % self.vocabulary] = 9.0
            asking.append((job, row))
        for (job, _), token in zip(asking, self.jobs.sample(asking), strict=True):
            if token == PAUSE:
                stopped[f"{job.name}-inner"] = True
            else:
                self.tokens[job.name].append(token)
        return stopped

    def compute(self, job: Job, slots: range) -> None:
        """Write keys and values of the tokens in these slots."""
        at = torch.tensor(slots)
        values = VALUES[torch.tensor(self.tokens[job.name])[at]]
        keys = torch.stack([TURNING.turn(value[None], int(slot))[0] for value, slot in zip(values, at, strict=True)])
        numbers = torch.tensor(job.blocks)[at // BLOCK] * BLOCK + at % BLOCK
        self.layout.write(keys[:, None], values[:, None], numbers)

    def compare(self, job: Job) -> None:
        """Check that each slot holds the value of its token, and a key rotated to the position where the token is read,
        which lies at the same distance from all slots."""
        ids = torch.tensor(self.tokens[job.name])
        keys, values = self.layout.read(job.blocks, 0, len(ids))
        assert torch.allclose(values[:, 0], VALUES[ids])
        logical = [piece.offset + nth + job.shift for piece in job.stored for nth in range(piece.entry.length)]
        wanted = torch.stack([TURNING.turn(VALUES[ids[n]][None], at)[0] for n, at in enumerate(logical)] or [VALUES[0]])
        assert torch.allclose(keys[: len(logical), 0], wanted[: len(logical)], atol=1e-5)


@pytest.fixture
def engine() -> Iterator[VllmCore]:
    jobs = Jobs()
    layout = BlockLayout("tiny", layer(Packed()), empty(), BLOCK)
    client = Client(jobs, layout)
    pages = PagePool([LayerShape(1, DIM, DIM)], 600, torch.device("cpu"), torch.float32)
    mover = Mover([layout], [TURNING], pages)
    jobs.load_kv = partial(fill, mover)
    framing = derive(TOKENIZER, "tiny", frozenset(TOKENIZER.convert_tokens_to_ids(["<|im_end|>"])))
    runner = VllmRunner(
        client,
        jobs,
        pages,
        mover=mover,
        template=framing,
        tokenizer=TOKENIZER,
        origin="tiny",
    )
    with VllmCore(runner, framing, 1000, 0) as found:
        yield found


def client_of(engine: VllmCore) -> Client:
    client = engine._runner._client
    assert isinstance(client, Client)
    return client


def forced(engine: VllmCore, text: str) -> tuple[int, ...]:
    return tuple(engine.framing.content.encode(text))


def finish(engine: VllmCore) -> list[tuple[int, Exception]]:
    failed = []
    while not engine.idle:
        failed += [(failure.id, failure.error) for failure in engine.step().failed]
    return failed


def test_encodings_are_read_in_any_order_and_place_and_generated_ones_too(engine: VllmCore) -> None:
    a, b = engine.prefill([Prefill("the first"), Prefill("the second one")])
    reads: list[tuple[list[int], Any, int | None]] = [
        ([b, a], None, None),
        ([a, b], [40, 3], 90),
        ([a, a], [2, 2], 30),
    ]
    calls = [Decode(parents=p, offsets=o, new_offset=n, forced=forced(engine, "some words")) for p, o, n in reads]
    said = engine.decode(calls)
    [last] = engine.decode([Decode(parents=[*said, a], forced=forced(engine, "and more"))])
    assert engine.message(last).text == "and more"
    assert engine.receipt(said[1]).start == 90
    assert [entry.offset for entry in engine.receipt(said[1]).context] == [40, 3]
    engine.check_integrity()


def test_a_token_is_drawn_from_the_row_of_its_own_request(engine: VllmCore) -> None:
    """The client outputs the id after the last one; headers make the last ids different."""
    ids = engine.decode([Decode(header=word, sampling=Sampling(max_tokens=1, temperature=0)) for word in ("a", "b")])
    tokens = [engine.message(id).tokens for id in ids]
    for found, words in zip(tokens, map(engine.message, ids), strict=True):
        assert words.sampled is not None
        begin = words.sampled[0]
        assert found[begin] == found[begin - 1] + 1


def test_what_closes_a_message_is_computed_in_one_step(engine: VllmCore) -> None:
    client = client_of(engine)
    [id] = engine.submit([Decode(forced=forced(engine, "one two three"))])
    steps = 0
    while not engine.idle:
        engine.step()
        steps += 1
    closing, words = engine.framing.closing("assistant"), forced(engine, "one two three")
    assert len(closing) > 1
    assert client.together == [len(closing)]
    assert steps == 1 + len(words) + 1
    assert engine.message(id).text == "one two three"


def test_a_token_that_vllm_would_take_for_a_pause_is_said_all_the_same(engine: VllmCore) -> None:
    words = (5, PAUSE, 6, PAUSE, PAUSE)
    [id] = engine.decode([Decode(forced=words)])
    [read] = engine.decode([Decode(parents=[id], forced=(7,))])
    sampled = engine.message(id).sampled
    assert sampled is not None
    assert engine.message(id).tokens[sampled[0] : sampled[0] + 5] == words
    assert engine.finished(read)


def test_a_request_that_is_preempted_reads_all_again(engine: VllmCore) -> None:
    [a] = engine.prefill([Prefill("what stands before")])
    [id] = engine.submit([Decode(parents=[a], forced=forced(engine, "one two three four"))])
    for _ in range(4):
        engine.step()
    client = client_of(engine)
    client.preempt(next(iter(client.live.values())))
    assert finish(engine) == []
    assert engine.message(id).text == "one two three four"
    engine.decode([Decode(parents=[id], forced=forced(engine, "yes"))])


def test_a_shadow_is_encoded_when_it_is_read(engine: VllmCore) -> None:
    [a] = engine.prefill([Prefill("for one alone")])
    leader = Decode(parents=[a], forced=forced(engine, "said to all"))
    said, shadow = engine.submit([leader, Shadow(leader)])
    assert finish(engine) == []
    assert not engine._encodings[shadow].entry.ready
    [read] = engine.decode([Decode(parents=[shadow], forced=forced(engine, "heard"))])
    assert engine._encodings[shadow].entry.ready
    assert engine.message(shadow).tokens == engine.message(said).tokens
    assert engine.receipt(shadow).context == ()
    assert engine.message(read).text == "heard"


LONG = "a message that is so long that a shadow begins while it is being said " * 2


def shadowed(engine: VllmCore) -> tuple[int, int]:
    """A long message over one context, and its shadow over another; neither has started."""
    a, b = engine.prefill([Prefill("for one alone"), Prefill("for all")])
    leader = Decode(parents=[a], forced=forced(engine, LONG))
    said, shadow = engine.submit([leader, Shadow(leader, parents=[b])])
    return said, shadow


def check_shadow(engine: VllmCore, said: int, shadow: int) -> None:
    """Check that the shadow is complete and can be read."""
    assert engine._encodings[shadow].entry.ready
    assert engine.message(shadow).tokens == engine.message(said).tokens
    [read] = engine.decode([Decode(parents=[shadow, said], forced=forced(engine, "heard"))])
    assert engine.message(read).text == "heard"
    engine.check_integrity()


def test_a_long_message_has_its_shadow_encoded_in_blocks_while_it_is_said(engine: VllmCore) -> None:
    client = client_of(engine)
    said, shadow = shadowed(engine)
    assert finish(engine) == []
    blocks = [count for count in client.together if count >= BLOCK_OF_SHADOWS]
    length = len(engine.message(said).tokens)
    assert len(blocks) == length // BLOCK_OF_SHADOWS - 1, "the first block is the prompt of its request"
    check_shadow(engine, said, shadow)


@pytest.mark.parametrize("how", ["tight", "preempted", "never roomy"])
def test_a_shadow_gives_way_where_those_who_speak_need_room(engine: VllmCore, how: str) -> None:
    client = client_of(engine)
    client.usage = 0.6 if how == "never roomy" else 0.0
    said, shadow = shadowed(engine)
    for _ in range(60):
        engine.step()
    assert len(client.live) == (1 if how == "never roomy" else 2)
    if how == "tight":
        client.usage = 0.95
    if how == "preempted":
        client.preempt(next(iter(client.live.values())))
        engine.step()
    engine.step()
    assert len(client.live) == 1
    assert finish(engine) == []
    if how == "never roomy":
        engine.decode([Decode(parents=[shadow], forced=(5,))])
    check_shadow(engine, said, shadow)


@pytest.mark.parametrize("steps", [40, 50, 80])
def test_a_shadow_ends_with_a_leader_that_is_cancelled(engine: VllmCore, steps: int) -> None:
    said, _ = shadowed(engine)
    for _ in range(steps):
        engine.step()
    engine.cancel([said])
    assert engine.idle
    assert not client_of(engine).live
    engine.check_integrity()


class Refuses:
    """A guard that refuses the n-th request: at admission, or later while context is being read."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def admit(self, id: int, context: Any) -> bool:
        self.left -= 1
        if self.left == 0:
            raise ConfigError("not for you")
        return False


@pytest.mark.parametrize("nth", [1, 2])
def test_a_guard_is_asked_twice_and_who_is_refused_hurts_nobody(engine: VllmCore, nth: int) -> None:
    [a] = engine.prefill([Prefill("a secret")])
    guard = Refuses(nth)
    refused, other = engine.submit([Decode(parents=[a], forced=(5,), guard=guard), Prefill("go on")])
    [(failed, _)] = finish(engine)
    assert failed == refused
    assert guard.left == 0
    assert engine.message(other).text == "go on"
    assert not client_of(engine).live
    engine.check_integrity()


@pytest.mark.parametrize("steps", range(5))
def test_what_is_cancelled_in_any_state_leaves_nothing(engine: VllmCore, steps: int) -> None:
    [a] = engine.prefill([Prefill("before")])
    leader = Decode(parents=[a], forced=forced(engine, "a b c d e f"))
    ids = engine.submit([Prefill("beside"), leader, Shadow(leader)])
    for _ in range(steps):
        engine.step()
    engine.cancel(ids)
    assert engine.idle
    assert not client_of(engine).live
    engine.release([id for id in (a, *ids) if engine.finished(id)])
    engine.check_integrity()
    assert engine.store.used == engine.bos


def test_what_vllm_ends_by_itself_fails_alone(engine: VllmCore) -> None:
    client = client_of(engine)
    [id, other] = engine.submit([Decode(forced=forced(engine, "lost")), Decode(forced=forced(engine, "kept"))])
    engine.step()
    names = iter([{f"{next(iter(client.live))}-inner": False}])
    step = client.step
    client.step = lambda: step() | next(names, {})  # type: ignore[method-assign]
    [(failed, error)] = finish(engine)
    assert failed == id
    assert isinstance(error, CallFailed)
    assert engine.message(other).text == "kept"


def test_where_vllm_fails_while_a_message_is_made_again_the_run_ends(engine: VllmCore) -> None:
    text = "words that take room in a store that is small " * 8
    ids = engine.prefill([Prefill(f"{number} {text}") for number in range(4)])
    assert engine.fullness.dropped > 0

    def fails() -> dict[str, bool]:
        raise RuntimeError("the device is gone")

    client_of(engine).step = fails  # type: ignore[method-assign]
    engine.submit([Decode(parents=ids[:1], forced=(5,))])
    with pytest.raises(EngineFailed, match="the device is gone"):
        finish(engine)


def test_groups_that_wait_for_room_take_turns(engine: VllmCore) -> None:
    calls = [Decode(sampling=Sampling(max_tokens=400, min_tokens=30)) for _ in range(6)]
    red = engine.submit(calls, SchedulingPriority("1", group="red"))
    [blue] = engine.submit(calls[:1], SchedulingPriority("2", group="blue"))
    begun = list[int]()
    while not engine.idle:
        begun += [each.id for each in engine.step().begun]
    assert {*begun} == {*red, blue}
    assert begun.index(blue) < 4, "the calls of one group all began before that of another"


def test_what_it_cannot_do_is_refused(engine: VllmCore) -> None:
    [a] = engine.prefill([Prefill("a message")])
    with pytest.raises(RequestError, match="engine vllm cannot repair messages"):
        engine.submit([Repair(of=a, choose=FirstK(2), parents=[])])
    with pytest.raises(RequestError, match="needs positions up to"):
        engine.submit([Decode(parents=[a] * 300, forced=(5,))])


def test_how_keys_turn_is_measured_by_a_token_that_is_repeated(engine: VllmCore) -> None:
    runner = engine._runner
    assert runner.turn_errors(5)[0] < 1e-5
    assert TURNING.frequencies is not None
    assert isinstance(runner._mover, Mover)
    runner._mover.rotations = [Rotation("half", TURNING.frequencies * 1.01)]
    assert runner.turn_errors(5)[0] > 1e-2
    assert not client_of(engine).live


def test_a_layout_that_cannot_be_read_back_is_refused() -> None:
    class Rounding(Packed):
        def do_kv_cache_update(self, layer: Any, keys: Tensor, values: Tensor, cache: Tensor, slots: Tensor) -> None:
            super().do_kv_cache_update(layer, keys // 8, values, cache, slots)

    with pytest.raises(UnsupportedModel, match="Rounding keeps keys and values in an unknown layout"):
        BlockLayout("tiny", layer(Rounding()), empty(), BLOCK)
