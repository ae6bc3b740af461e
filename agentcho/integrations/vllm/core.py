"""The core of an engine that computes with vLLM: refuses calls that vLLM cannot compute.

Must not import vLLM.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agentcho.engine.call_layout import Layout
from agentcho.engine.core import EngineCore, Local
from agentcho.engine.framing import Framing
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.errors import ContextOverflow, EngineFailed, RequestError
from agentcho.integrations.vllm.runner import NO_REPAIR, VllmRunner
from agentcho.integrations.vllm.scheduler import VllmScheduler
from agentcho.protocol.call import Call, EncodingId, Repair, StepResult
from agentcho.runner.kv.kv_pool import PagePool


class VllmCore(EngineCore):
    """An `EngineCore` over a `VllmRunner`."""

    SCHEDULER = VllmScheduler
    framing: Framing
    store: PagePool
    _runner: VllmRunner
    _scheduler: VllmScheduler

    def close(self) -> None:
        """Release all encodings, and vLLM with its memory."""
        runner = vars(self).get("_runner")
        super().close()
        if runner is not None:
            runner.close()

    def logits(self, id: EncodingId) -> Tensor:
        """See `agentcho.Engine.logits`."""
        rows = self._encoding(id).logits
        if not rows:
            raise RequestError(f"encoding {id} kept no logits; pass logits=True to its Decode")
        return torch.stack(list(rows))

    @property
    def room(self) -> tuple[int, int]:
        """The capacity in tokens of the store, and of the copies in host memory."""
        return self.store.limit * self.store.page_tokens, self._tiers.outside.limit

    def _advance(self, exact: bool) -> StepResult:
        """Run one step of vLLM."""
        if exact:
            raise EngineFailed(
                "engine vllm has no deterministic profile: vLLM's batches are not deterministic to the last bit; "
                "remove deterministic"
            )
        return self._scheduler.step()

    def _layout(self, call: Call, local: Local | None = None, own: int = 0) -> Layout:
        placed = super()._layout(call, local, own)
        if placed.context.parallel is not None:
            raise RequestError("engine vllm does not support APE's attention weights; remove reuse=ape")
        if (slots := placed.context.length + placed.longest + 1) > self._runner.longest:
            raise ContextOverflow(slots, self._runner.longest)
        return placed

    def _repair(self, call: Repair, local: Local) -> Admitted:
        raise RequestError(NO_REPAIR)
