"""Random calls, steps, cancellations, releases and swaps on a store too small for them, next to one with ample room:
in the deterministic profile both give the same bits, and the store is consistent after every action."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.cache import DiskQuota
from agentcho.errors import RequestError, StoreFull
from agentcho.protocol.call import Call, EncodingId, Repair
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.top_k import TopK

STORE = 64
WORDS = st.text("abc ", min_size=1, max_size=12)


class Twins(RuleBasedStateMachine):
    """`held` are finished and not released, on both engines; `flying` are submitted and not finished."""

    load: Callable[[int, int, int], Engine]

    @initialize(host=st.sampled_from([0, 40, 4096]), disk=st.sampled_from([0, 60, 4096]))
    def begin(self, host: int, disk: int) -> None:
        self.roomy, self.tight = self.load(1 << 13, 0, 0), self.load(STORE, host, disk)
        self.held, self.flying = list[EncodingId](), list[EncodingId]()

    @rule(
        data=st.data(),
        words=WORDS,
        kind=st.sampled_from(["prefill", "prefill", "decode", "repair"]),
        steps=st.sampled_from([0, 3, 12]),
    )
    def call(self, data: st.DataObject, words: str, kind: str, steps: int) -> None:
        parents = data.draw(st.lists(st.sampled_from(self.held), min_size=1, max_size=3)) if self.held else []
        call: Call = Prefill(words, parents)
        if kind == "decode":
            most = data.draw(st.integers(1, 5))
            call = Decode(words, parents, sampling=Sampling(max_tokens=most, temperature=0), logits=True)
        elif kind == "repair" and self.held:
            choose: FirstK | TopK = data.draw(st.one_of(st.just(FirstK(3)), st.just(TopK(0.3))))
            call = Repair(data.draw(st.sampled_from(self.held)), choose, parents)
        try:
            [id] = self.tight.submit([call])
        except StoreFull:
            [id] = self.tight.submit([call := Prefill(words)])
        ids = (int(id),)  # a plain number, which either engine accepts as its own
        while self.roomy._ids.last < id - 1:  # skip the number of a refused call
            self.roomy._ids.new()
        assert self.roomy.submit([call]) == ids
        self.flying += ids
        self.step(steps)

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self._take(self.tight.step(deterministic=True))
        self._settle()

    def _take(self, result: Any) -> None:
        assert all(isinstance(failure.error, RequestError) for failure in result.failed)
        self.held += map(int, result.finished)
        gone = {*result.finished, *(failure.id for failure in result.failed)}
        self.flying = [id for id in self.flying if id not in gone]

    def _settle(self) -> None:
        """Let the roomy engine finish what the tight one has finished, and compare."""
        done = [id for id in self.held if not self.roomy.finished(id)]
        while not all(self.roomy.finished(id) for id in done):
            self.roomy.step(deterministic=True)
        for id in done:
            assert self.roomy.message(id) == self.tight.message(id)
            assert self.roomy.receipt(id) == self.tight.receipt(id)
            if self.roomy.debug.encodings[id].logits:
                assert torch.equal(self.roomy.logits(id), self.tight.logits(id))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.flying))
        self.tight.cancel([gone])
        self.roomy.cancel([gone])
        if self.roomy.finished(gone):
            self.roomy.release([gone])
        self.flying.remove(gone)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.held))
        self.tight.release([gone])
        self.roomy.release([gone])
        self.held.remove(gone)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        self.tight.swap_out(data.draw(st.sets(st.sampled_from(self.held), max_size=3)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def compare(self, data: st.DataObject) -> None:
        """Compare one encoding's keys and values, wherever they are. StoreFull only while calls hold reserved room."""
        id = data.draw(st.sampled_from(self.held))
        try:
            found = self.tight.cached(id)
        except StoreFull:
            assert self.tight.fullness.reserved > 0
            return
        for one, other in zip(found, self.roomy.cached(id), strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])

    @invariant()
    def whole(self) -> None:
        if hasattr(self, "tight"):
            self.tight.check_integrity()

    def teardown(self) -> None:
        if not hasattr(self, "tight"):
            return
        while not self.tight.idle:
            self._take(self.tight.step(deterministic=True))
        assert not self.flying
        self._settle()
        self.tight.release(self.held)
        self.tight.check_integrity()
        full = self.tight.fullness
        assert (full.used, full.host_used, full.disk_used, self.tight.idle) == (1, 0, 0, True)


@pytest.mark.parametrize("examples", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_small_store_changes_nothing(llama: Engine, examples: int, tmp_path: Path) -> None:
    class Machine(Twins):
        @staticmethod
        def load(store: int, host: int, disk: int) -> Engine:
            room = DiskQuota(disk, tmp_path)
            return Engine(llama._model, llama.framing, llama.proofs, store, host, llama.context, room)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
