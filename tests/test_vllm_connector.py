"""The connector and the logits processor of engine vllm, without vLLM: empty classes replace its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from agentcho.integrations.vllm.jobs import ENGINES, PAUSE, Job, Jobs

NAME, BEFORE = "engine-of-this-test", 6


class Base:
    """Replaces `KVConnectorBase_V1`."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        self.meta: Any = None

    def _get_connector_metadata(self) -> Any:
        return self.meta


def config() -> Any:
    return SimpleNamespace(kv_transfer_config=SimpleNamespace(get_from_extra_config=lambda name, other: NAME))


def follow(rows: dict[int, Any], update: Any, made: Any) -> None:
    """Replaces `process_dict_updates`: `update` holds the added parameters by row."""
    for row, params in (update or {}).items():
        if (state := made(params, [], [])) is not None:
            rows[row] = state


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The connector's and the processor's modules, imported over empty base classes."""
    bindings: Any = ModuleType("agentcho.integrations.vllm.bindings")
    bindings.KVConnectorBase_V1, bindings.KVConnectorMetadata, bindings.KVConnectorRole = Base, object, object
    bindings.LogitsProcessor, bindings.SamplingParams, bindings.process_dict_updates = object, object, follow
    names = [f"agentcho.integrations.vllm.{name}" for name in ("bindings", "connector", "logits")]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, names[0], bindings)
    yield SimpleNamespace(connector=import_module(names[1]), logits=import_module(names[2]))
    for name in names[1:]:
        sys.modules.pop(name, None)


class Piece:
    """An encoding that a job reads."""

    id, offset = 3, 0
    entry = SimpleNamespace(length=BEFORE, ready=True, pages=(), recipe=SimpleNamespace(tokens=tuple(range(BEFORE))))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    found = Jobs()
    monkeypatch.setitem(ENGINES, NAME, found)
    return found


def job(jobs: Jobs, reads: bool = True, own: int = 4) -> Job:
    pieces: Any = [Piece()] if reads else []
    made = Job("a", pieces, 0, tuple(range(own)))
    jobs.live["a"] = jobs.live["a-1"] = made
    return made


def connector(parts: Any) -> Any:
    return parts.connector.AgentchoConnector(config(), None, None)


def request(computed: int = 0) -> Any:
    return SimpleNamespace(request_id="a-1", num_computed_tokens=computed)


def blocks(*numbers: int) -> Any:
    return SimpleNamespace(get_block_ids=lambda: (list(numbers),))


def scheduled(
    tokens: int, new: int | None = None, cached: int | None = None, added: Any = None, resumed: Any = ()
) -> Any:
    """The scheduler's output for a step in which one request has `tokens` tokens."""
    begun = [] if new is None else [SimpleNamespace(req_id="a-1", num_computed_tokens=new)]
    names = [] if cached is None else ["a-1"]
    rest = SimpleNamespace(
        req_ids=names,
        num_computed_tokens=[cached] * len(names),
        new_block_ids=[added] * len(names),
        resumed_req_ids=resumed,
    )
    return SimpleNamespace(scheduled_new_reqs=begun, scheduled_cached_reqs=rest, num_scheduled_tokens={"a-1": tokens})


def test_as_many_slots_are_filled_as_are_read(parts: Any, jobs: Jobs) -> None:
    job(jobs)
    found = connector(parts)
    assert found.get_num_new_matched_tokens(request(), 0) == (BEFORE, False)
    assert found.get_num_new_matched_tokens(SimpleNamespace(request_id="of others"), 0) == (0, False)


def test_a_request_that_begins_is_loaded_once_and_one_that_paused_is_not_loaded_again(parts: Any, jobs: Jobs) -> None:
    made, found, loads = job(jobs), connector(parts), []

    def load(each: Job) -> None:
        loads.append(each.name)
        each.written.append((0, BEFORE))

    jobs.load_kv = load
    found.update_state_after_alloc(request(), blocks(7, 8), BEFORE)
    found.meta = found.build_connector_meta(scheduled(4, new=BEFORE))
    assert (made.blocks, made.begun, made.needs_token) == ([7, 8], 1, True)
    found.start_load_kv(None)
    assert (loads, made.error, found.get_block_ids_with_load_errors()) == (["a"], None, set())
    found.update_state_after_alloc(request(BEFORE + 4), blocks(7, 8, 9), 0)
    found.meta = found.build_connector_meta(scheduled(2, new=BEFORE + 4))
    found.start_load_kv(None)
    assert (loads, made.error, made.begun, made.blocks) == (["a"], None, 1, [7, 8, 9])


def test_where_vllm_went_around_the_connector_nothing_is_computed(parts: Any, jobs: Jobs) -> None:
    """It asked for fewer slots than are read, or claims that they are filled when they are not."""
    for computed, asked in ((0, BEFORE - 1), (BEFORE, 0)):
        made, found = job(jobs), connector(parts)
        found.update_state_after_alloc(request(computed), blocks(7), asked)
        found.meta = found.build_connector_meta(scheduled(4, new=BEFORE))
        found.start_load_kv(None)
        assert found.get_block_ids_with_load_errors() == {7}
        assert "vLLM asked for" in str(made.error)


@pytest.mark.parametrize("why", ["refused", "not stored", "not all written"])
def test_what_may_not_be_read_or_is_not_there_ends_its_request(parts: Any, jobs: Jobs, why: str) -> None:
    made, found = job(jobs), connector(parts)

    def refuse() -> None:
        raise PermissionError("not for you")

    if why == "refused":
        made.asks = refuse
    if why == "not stored":
        made.stored = [SimpleNamespace(id=3, offset=0, entry=SimpleNamespace(length=BEFORE, ready=False, pages=None))]  # type: ignore[list-item]
    wrote = list[str]()
    jobs.load_kv = lambda each: wrote.append(each.name)
    found.update_state_after_alloc(request(), blocks(7, 8), BEFORE)
    found.meta = found.build_connector_meta(scheduled(4, new=BEFORE))
    found.start_load_kv(None)
    assert wrote == (["a"] if why == "not all written" else [])
    assert made.error is not None
    assert found.get_block_ids_with_load_errors() == {7, 8}
    assert found.get_block_ids_with_load_errors() == set(), "they are told once"


def test_a_token_is_asked_for_when_all_that_is_there_is_computed(parts: Any, jobs: Jobs) -> None:
    made, found = job(jobs), connector(parts)
    found.build_connector_meta(scheduled(3, new=BEFORE))
    assert not made.needs_token, "one own token is left"
    found.build_connector_meta(scheduled(1, cached=BEFORE + 3))
    assert made.needs_token
    made.known.append(5)
    assert made.next(PAUSE) == 5
    found.build_connector_meta(scheduled(1, cached=BEFORE + 3))
    assert not made.needs_token, "it was preempted, and is computed again"


def test_blocks_are_followed_through_a_preemption(parts: Any, jobs: Jobs) -> None:
    made, found = job(jobs), connector(parts)
    found.update_state_after_alloc(request(), blocks(7, 8), BEFORE)
    found.build_connector_meta(scheduled(1, cached=9, added=([9],)))
    assert made.blocks == [7, 8, 9]
    found.build_connector_meta(scheduled(1, cached=9))
    assert made.blocks == [7, 8, 9]
    found.build_connector_meta(scheduled(1, cached=9, added=([4, 5],), resumed={"a-1"}))
    assert made.blocks == [4, 5]


def test_each_row_allows_the_token_that_was_drawn_from_it_alone(parts: Any, jobs: Jobs) -> None:
    made = job(jobs)
    other = Job("b", [], 0, (1,))
    jobs.live["b"] = other
    processor = parts.logits.DrawnTokens(config(), torch.device("cpu"), False)
    named = [SimpleNamespace(extra_args={parts.connector.OPTION: name}) for name in ("a", "b")]
    processor.update_state(dict(enumerate([*named, SimpleNamespace(extra_args=None)])))
    made.needs_token, heard = True, list[tuple[str, list[float]]]()

    def sample(asking: Any) -> list[int]:
        heard.extend((each.name, row.tolist()) for each, row in asking)
        return [2 for _ in asking]

    jobs.sample = sample
    logits = torch.arange(12.0).view(3, 4)
    found = processor.apply(logits.clone())
    assert heard == [("a", [0.0, 1.0, 2.0, 3.0])], "who is not computed whole is not asked"
    assert found[0].tolist() == [float("-inf"), float("-inf"), 0.0, float("-inf")]
    assert torch.equal(found[1:], logits[1:])
    assert not processor.is_argmax_invariant()
