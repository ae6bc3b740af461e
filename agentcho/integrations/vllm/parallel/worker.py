"""Methods added to vLLM's worker, through which the engine calls the worker's `Rank`.

vLLM mixes them into its worker class, so their names must not clash with its own.
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
        """The rendezvous address that vLLM gave to all workers."""
        return str(self.distributed_init_method)

    def agentcho_serves(self, model: str, block: int) -> list[FoundLayer] | Refusal:
        """The layers of this rank, or why it cannot serve them."""
        # Ctrl-C in a terminal reaches all of its processes; this one ends when the engine's process says so.
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
        """Make the tensors that a later stage receives from the previous one. vLLM makes them during warm-up, which it
        skips on CPUs."""
        runner = self.model_runner
        if self.rank >= self.vllm_config.parallel_config.tensor_parallel_size and runner.intermediate_tensors is None:
            runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
                batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
            )

    def agentcho_share(self, handle: StoreHandle, shares: Sequence[tuple[int, Heads]]) -> None:
        """Open the store. `shares`: the first layer and the heads of each rank."""
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
        """What this rank wrote in the step. The first rank of the last stage also provides the logits of these
        requests."""
        rank, state = self._agentcho_rank, self.model_runner.execute_model_state
        if names and state is not None and self.rank % self.vllm_config.parallel_config.tensor_parallel_size == 0:
            rank.show(names, state.logits)
        return rank.told()

    def agentcho_forget(self) -> None:
        """Discard a forward whose tokens could not be drawn."""
        self.model_runner.execute_model_state = None

    def agentcho_sample(self, grammar: Any, tokens: dict[str, int]) -> Any:
        """Make vLLM take these tokens as sampled, by request name."""
        self._agentcho_rank.tokens = tokens
        return self.sample_tokens(grammar)  # type: ignore[attr-defined]
