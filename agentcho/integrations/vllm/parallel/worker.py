"""What vLLM's worker can be asked by the engine, beside its own methods: the doors to its `Rank`.

vLLM adds the methods to its worker, so they have names that it has not. Does not know: what is moved, and why.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from agentcho.errors import UnsupportedModel
from agentcho.integrations.vllm.gate import FoundLayer, served_layers
from agentcho.integrations.vllm.jobs import OPTION
from agentcho.integrations.vllm.mover import Save
from agentcho.integrations.vllm.parallel.rank import Rank, Refusal, Told, rank_of
from agentcho.integrations.vllm.parallel.shares import Heads, StoreHandle


class RankWorker:
    """Methods that are added to vLLM's worker."""

    rank: int
    distributed_init_method: str
    model_runner: Any
    vllm_config: Any

    @property
    def _agentcho_rank(self) -> Rank:
        return rank_of(self.vllm_config.kv_transfer_config.get_from_extra_config(OPTION, ""))

    def agentcho_met(self) -> str:
        """Where the workers met: the address that vLLM has given to all of them."""
        return str(self.distributed_init_method)

    def agentcho_serves(self, model: str, block: int) -> list[FoundLayer] | Refusal:
        """The layers that this rank has, or why it cannot serve them."""
        # Ctrl-C in a terminal reaches all its processes; this one ends when that of the engine says so.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        rank = self._agentcho_rank
        self._agentcho_receives()
        layers = self.vllm_config.compilation_config.static_forward_context
        try:
            found = served_layers(model, self.model_runner.model, layers=layers, caches=rank.caches, block=block)
        except UnsupportedModel as error:
            return Refusal.of(error)
        return rank.serves(dict(zip(rank.caches, found, strict=True)))

    def _agentcho_receives(self) -> None:
        """Make what a later stage receives from the one before it. vLLM does so as it warms up, which it leaves out on
        processors."""
        runner = self.model_runner
        if self.rank >= self.vllm_config.parallel_config.tensor_parallel_size and runner.intermediate_tensors is None:
            runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
                batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
            )

    def agentcho_share(self, handle: StoreHandle, shares: Sequence[tuple[int, Heads]]) -> None:
        """Open the store; `shares`: the first layer and the heads of each rank."""
        first, heads = shares[self.rank]
        self._agentcho_rank.share(handle, first, heads)

    def agentcho_save(self, save: Save) -> None:
        """See `Rank.save`."""
        self._agentcho_rank.save(save)

    def agentcho_turn_errors(self, blocks: Sequence[int], count: int) -> list[float]:
        """See `Rank.turn_errors`."""
        return self._agentcho_rank.turn_errors(blocks, count)

    def agentcho_probe(self) -> None:
        """See `Rank.probe`."""
        self._agentcho_rank.probe()

    def agentcho_told(self, names: Sequence[str]) -> Told:
        """What this rank wrote in the step. The first one of the last stage also shows the logits of these requests."""
        rank, state = self._agentcho_rank, self.model_runner.execute_model_state
        if names and state is not None and self.rank % self.vllm_config.parallel_config.tensor_parallel_size == 0:
            rank.show(names, state.logits)
        return rank.told()

    def agentcho_forget(self) -> None:
        """Let go of a forward whose tokens could not be drawn."""
        self.model_runner.execute_model_state = None

    def agentcho_sample(self, grammar: Any, tokens: dict[str, int]) -> Any:
        """Let vLLM sample, of the requests that are told of, these tokens."""
        self._agentcho_rank.tokens = tokens
        return self.sample_tokens(grammar)  # type: ignore[attr-defined]
