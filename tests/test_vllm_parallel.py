"""Ranks of engine vllm, without vLLM: their caches are tensors, and calls run in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho.errors import ModelError, UnsupportedModel
from agentcho.integrations.vllm.gate import ServedLayer
from agentcho.integrations.vllm.jobs import Job, Jobs
from agentcho.integrations.vllm.kv_layout import BlockLayout
from agentcho.integrations.vllm.mover import Load, Mover, Read, Save
from agentcho.integrations.vllm.parallel.division import Division
from agentcho.integrations.vllm.parallel.rank import Rank, Refusal
from agentcho.integrations.vllm.parallel.ranks import Ranks
from agentcho.integrations.vllm.parallel.shares import Heads, SharedPool
from agentcho.runner.kv.kv_pool import LayerShape
from agentcho.runner.kv.rope import Rotation

BLOCK, BLOCKS, DIM, LAYERS, ROWS, VOCABULARY = 4, 12, 8, 4, 64, 11
TURNING = Rotation("half", torch.tensor([1.0, 0.3, 0.07, 0.01], dtype=torch.double))
BLOCKS_OF_A = (3, 7, 1, 9)


class Backend:
    """An attention backend that stores the keys of all heads, then the values, in the order of their tokens."""

    def do_kv_cache_update(self, layer: Any, keys: Tensor, values: Tensor, cache: Tensor, slots: Tensor) -> None:
        """Write keys and values `[tokens, heads, dim]`."""
        cache[slots // BLOCK, 0, slots % BLOCK] = keys
        cache[slots // BLOCK, 1, slots % BLOCK] = values


def layout(heads: int) -> BlockLayout:
    layer = SimpleNamespace(impl=Backend(), num_kv_heads=heads, head_size=DIM)
    return BlockLayout("tiny", layer, torch.zeros(BLOCKS, 2, BLOCK, heads, DIM), BLOCK)


def layers(heads: int, numbers: range) -> dict[str, ServedLayer]:
    shape = LayerShape(heads, DIM, DIM)
    return {f"layers.{number}": ServedLayer(layout(heads), shape, TURNING) for number in numbers}


def pool(heads: int) -> SharedPool:
    return SharedPool([LayerShape(heads, DIM, DIM)] * LAYERS, ROWS, torch.float32, (3, VOCABULARY))


class Executor:
    """Calls ranks one after another, as vLLM calls its workers. `fails`: what a method does instead, by rank."""

    def __init__(self, ranks: list[Rank], stages: list[dict[str, ServedLayer]]) -> None:
        self.ranks, self.stages = ranks, stages
        self.called: list[str] = []
        self.fails: dict[tuple[str, int], Callable[[], Any]] = {}
        self.logits = torch.zeros(3, VOCABULARY)

    def call(self, method: str, *args: Any) -> list[Any]:
        """See `RankExecutor.call`."""
        self.called.append(method)
        return [
            self.fails.get((method, number), lambda number=number: self.one(number, method, args))()
            for number in range(len(self.ranks))
        ]

    def one(self, number: int, method: str, args: Any) -> Any:
        """Run a method on one rank, as `RankWorker` does."""
        rank = self.ranks[number]
        match method.removeprefix("agentcho_"):
            case "serves":
                return rank.serves(self.stages[number])
            case "share":
                handle, shares = args
                return rank.share(handle, *shares[number])
            case "told":
                if number == 0:
                    rank.show(args[0], self.logits)
                return rank.told()
            case "forget":
                return None
            case other:
                return getattr(rank, other)(*args)

    def check(self, error: Exception) -> None:
        """No rank has died."""

    def shutdown(self) -> None:
        """Nothing to stop: there are no processes."""


def divided(tensor: int, pipeline: int, heads: int, jobs: Jobs | None = None) -> tuple[Ranks, Executor, SharedPool]:
    """A model with `heads` heads, divided among ranks that share a store."""
    each, count = LAYERS // pipeline, Heads.of(0, tensor, heads).number
    stages = [
        layers(count, range(stage * each, (stage + 1) * each)) for stage in range(pipeline) for _ in range(tensor)
    ]
    executor = Executor([Rank() for _ in stages], stages)
    ranks = Ranks(Jobs() if jobs is None else jobs, Division(tensor, pipeline))
    ranks.executor = executor
    found = ranks.served("tiny", heads, BLOCK)
    assert [(layer.name, layer.heads) for layer in found] == [(f"layers.{n}", heads) for n in range(LAYERS)]
    store = pool(heads)
    ranks.share(store)
    return ranks, executor, store


def whole(heads: int) -> tuple[Mover, SharedPool]:
    """The same model in one process."""
    served, store = layers(heads, range(LAYERS)), pool(heads)
    return Mover([each.layout for each in served.values()], [TURNING] * LAYERS, store), store


WAYS = [(2, 1, 4), (2, 1, 2), (2, 1, 1), (4, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 1)]


@pytest.mark.parametrize(("tensor", "pipeline", "heads"), WAYS)
def test_what_ranks_write_and_store_together_is_what_one_process_does(tensor: int, pipeline: int, heads: int) -> None:
    """Keys and values are stored once, rotated, read at other positions into all ranks' caches, and stored again."""
    one, store = whole(heads)
    ranks, executor, shared = divided(tensor, pipeline, heads)
    rows, made = torch.tensor([8, 9, 2, 3, 30]), torch.Generator().manual_seed(1)
    for layer in range(LAYERS):
        keys, values = (torch.randn(heads, 5, DIM, generator=made) for _ in range(2))
        for each in (store, shared):
            each.put(rows, layer, keys, values)
    load = Load(BLOCKS_OF_A, rows, (Read(2, 5, 40), Read(3, -1, 7)))
    assert one.load(load) == [(40, 2), (7, 3)]
    for number, rank in enumerate(executor.ranks):
        assert rank.load("a", load)
        assert rank.told().loads == {"a": [(40, 2), (7, 3)]}, "what was told is not told again"
        mine = Heads.of(number % tensor, tensor, heads)
        first = number // tensor * LAYERS // pipeline
        for nth, served in enumerate(executor.stages[number].values()):
            wanted = one.layouts[first + nth].cache[:, :, :, mine.first : mine.first + mine.number]
            assert torch.equal(served.layout.cache, wanted)
    save = Save(BLOCKS_OF_A, 1, torch.tensor([50, 20, 21]), -3)
    one.save(save)
    ranks.save(save)
    for layer in range(LAYERS):
        for ours, theirs in zip(store.pools(layer), shared.pools(layer), strict=True):
            assert ours[save.rows].any()
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("ranks", "total"), [(1, 3), (2, 4), (4, 4), (4, 2), (8, 1)])
def test_each_head_is_stored_by_one_rank(ranks: int, total: int) -> None:
    shares = [Heads.of(rank, ranks, total) for rank in range(ranks)]
    stored = [head for each in shares if each.writes for head in range(each.first, each.first + each.number)]
    assert sorted(stored) == list(range(total))


def test_a_store_is_opened_by_others_and_has_no_name_that_could_be_left() -> None:
    store = pool(2)
    assert os.readlink(store.handle.path).startswith("/memfd:")
    opened = store.handle.opened()
    store.close()
    store.put(torch.tensor([5]), 1, torch.ones(2, 1, DIM), torch.full((2, 1, DIM), 2.0))
    opened.logits[0, 3] = 7
    assert opened.keys[1][5].eq(1).all()
    assert opened.values[1][5].eq(2).all()
    assert (bool(opened.keys[0].any()), int(store.logits[0, 3])) == (False, 7)
    with pytest.raises(OSError, match="No such file"):
        store.handle.opened()


def test_a_store_that_the_system_does_not_give_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(ModelError, match=r"no shared memory for a store of 64 tokens"):
        pool(2)


def test_pages_are_given_and_taken_back_as_in_any_store() -> None:
    store = pool(2)
    pages = store.allocate(5)
    store.copy_in([(pages, tuple((torch.ones(5, 2, DIM), torch.ones(5, 2, DIM)) for _ in range(LAYERS)))])
    assert all(torch.equal(keys, torch.ones(2, 5, DIM)) for keys, _ in [store.read(pages, 0)])
    store.free(pages)
    store.check([])


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2), (2, 2)])
def test_how_keys_turn_is_measured_in_every_rank(tensor: int, pipeline: int) -> None:
    ranks, executor, _ = divided(tensor, pipeline, 2)
    for stage in executor.stages:
        for served in stage.values():
            for place in range(9):
                key = TURNING.turn(torch.ones(1, 1, DIM), place)[0].expand(1, served.shape.heads, DIM)
                served.layout.write(key, key, torch.tensor([BLOCKS_OF_A[place // BLOCK] * BLOCK + place % BLOCK]))
    assert max(ranks.turn_errors(BLOCKS_OF_A, 9)) < 1e-5
    last = list(executor.stages[-1].values())[-1]
    last.layout.write(torch.ones(1, last.shape.heads, DIM), torch.ones(1, last.shape.heads, DIM), torch.tensor([13]))
    errors = ranks.turn_errors(BLOCKS_OF_A, 9)
    assert len(errors) == LAYERS
    assert (max(errors[:-1]) < 1e-5, errors[-1] > 1e-3) == (True, True)


# -- a step -------------------------------------------------------------------------------------------------


class Piece:
    """An encoding that is read."""

    id, offset, shift = 3, 6, 2

    def __init__(self, rows: Sequence[int]) -> None:
        pages = SimpleNamespace(rows=torch.tensor(rows))
        self.entry = SimpleNamespace(length=len(rows), ready=True, pages=pages, block=pages)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def job(name: str, rows: Sequence[int] = (4, 5), blocks: Sequence[int] = (1, 2)) -> Job:
    pieces: Any = [Piece(rows)] if rows else []
    return Job(name, pieces, 0, (1,), blocks=list(blocks))


def step(executor: Executor, ranks: Ranks, loading: list[Job], asking: list[Job]) -> set[int]:
    """What the scheduler's and the workers' connectors do until a forward has ended."""
    loads, refused = ranks.plan(loading, asking)
    for rank in executor.ranks:
        rank.places = {each.name: row for row, each in enumerate(asking)}
        for name, load in loads.items():
            if not rank.load(name, load):
                refused.update(load.blocks)
    return refused


def test_tokens_are_drawn_from_the_logits_that_are_shown_and_told_to_all_ranks(jobs: Jobs) -> None:
    ranks, executor, _ = divided(2, 1, 2, jobs)
    executor.logits = torch.arange(3.0 * VOCABULARY).view(3, VOCABULARY)
    a, b = job("a"), job("b", ())
    heard = list[tuple[str, int]]()

    def sample(asking: Sequence[tuple[Job, Tensor]]) -> list[int]:
        heard.extend((each.name, int(row[0])) for each, row in asking)
        return [7, 2]

    jobs.sample = sample
    assert step(executor, ranks, [a], [b, a]) == set()
    assert ranks.draw() == {"b": 7, "a": 2}
    assert heard == [("b", 0), ("a", VOCABULARY)]
    assert (a.written, a.error) == ([(6, 2)], None)
    assert ranks.draw() == {}, "a step without requests asks nobody"
    assert executor.called.count("agentcho_told") == 1


def test_a_rank_lets_rows_allow_the_tokens_alone_that_were_told() -> None:
    rank, logits = Rank(), torch.zeros(3, VOCABULARY)
    rank.tokens = {"b": 5}
    found = rank.force({0: "a", 1: "b", 7: "b"}, logits.clone())
    assert torch.equal(found[::2], logits[::2])
    assert found[1].argmax() == 5
    assert found[1].isinf().sum() == VOCABULARY - 1


def test_what_a_guard_refuses_is_in_no_plan(jobs: Jobs) -> None:
    ranks, executor, _ = divided(2, 1, 2, jobs)
    jobs.sample = lambda asking: [0 for _ in asking]
    a, b = job("a"), job("b", blocks=(5,))

    def refuse() -> None:
        raise PermissionError("not for you")

    a.asks = refuse
    assert step(executor, ranks, [a, b], [a, b]) == {1, 2}
    assert all(not served.layout.cache[[1, 2]].any() for served in executor.stages[0].values())
    ranks.draw()
    assert isinstance(a.error, PermissionError)
    assert (a.written, b.error, b.written) == ([], None, [(6, 2)])


@pytest.mark.parametrize("why", ["a rank failed", "a rank wrote less", "a rank told nothing", "nobody was asked"])
def test_a_request_goes_on_only_where_all_ranks_have_written_all(jobs: Jobs, why: str) -> None:
    ranks, executor, _ = divided(2, 1, 2, jobs)
    jobs.sample = lambda asking: [0 for _ in asking]
    a = job("a", (4, 999) if why == "a rank failed" else (4, 5))
    refused = step(executor, ranks, [a], [a])
    assert refused == ({1, 2} if why == "a rank failed" else set())
    told = {"a rank wrote less": {"a": [(6, 1)]}, "a rank told nothing": {}}
    if why in told:
        executor.fails["agentcho_told", 1] = lambda: SimpleNamespace(loads=told[why])
    if why == "nobody was asked":
        ranks.plan([], [])
    ranks.draw()
    assert a.written == []
    assert "rank" in str(a.error)


def test_what_fails_as_tokens_are_drawn_leaves_no_forward_behind(jobs: Jobs) -> None:
    ranks, executor, _ = divided(2, 1, 2, jobs)

    def fail(asking: Sequence[tuple[Job, Tensor]]) -> list[int]:
        raise ValueError("no such token")

    jobs.sample = fail
    a = job("a")
    step(executor, ranks, [a], [a])
    with pytest.raises(ValueError, match="no such token"):
        ranks.draw()
    assert executor.called[-1] == "agentcho_forget"


# -- indivisible models -------------------------------------------------------------------------------------


def test_a_rank_that_cannot_serve_its_share_refuses_the_model() -> None:
    ranks, executor, _ = divided(2, 1, 2)
    executor.fails["agentcho_serves", 1] = lambda: Refusal("its layer sees a window", "use another")
    with pytest.raises(UnsupportedModel, match=r"its layer sees a window\. use another"):
        ranks.served("tiny", 2, BLOCK)
    del executor.fails["agentcho_serves", 1]
    with pytest.raises(UnsupportedModel, match="different numbers of key-value heads"):
        ranks.served("tiny", 4, BLOCK)


def test_the_device_of_every_rank_is_probed() -> None:
    """Otherwise a failed device would be blamed on one call after another."""
    ranks, executor, _ = divided(2, 1, 2)
    ranks.probe()

    def lost() -> None:
        raise RuntimeError("device lost")

    executor.fails["agentcho_probe", 1] = lost
    with pytest.raises(RuntimeError, match="device lost"):
        ranks.probe()


def config(heads: int = 8, shared: int = 4, depth: int = 3) -> Any:
    text = SimpleNamespace(num_attention_heads=heads, num_key_value_heads=shared, num_hidden_layers=depth)
    return SimpleNamespace(get_text_config=lambda: text)


@pytest.mark.parametrize(
    ("tensor", "pipeline", "devices", "told"),
    [
        (2, 2, 3, "need 4 GPUs, but this machine has 3"),
        (3, 1, None, "8 attention heads and 4 key-value heads, which cannot be divided evenly among 3 ranks"),
        (1, 4, None, "has 3 layers; give at most as many stages as layers"),
    ],
)
def test_what_cannot_be_divided_is_told_before_anything_is_loaded(
    tensor: int, pipeline: int, devices: int | None, told: str
) -> None:
    with pytest.raises(ModelError, match=told):
        Division(tensor, pipeline).check("tiny", config(), devices)
    for good in (Division(), Division(2, 1), Division(8, 1), Division(4, 3)):
        good.check("tiny", config(), None)


@pytest.mark.parametrize("given", [0, -1, True, "2", 2.0])
def test_a_number_of_ranks_is_a_whole_number(given: object) -> None:
    with pytest.raises(ModelError, match=r"tensor_parallel_size .*: give a whole number, 1 or more"):
        Division.of({"tensor_parallel_size": given})
    assert Division.of({"pipeline_parallel_size": 3}) == (1, 3)
