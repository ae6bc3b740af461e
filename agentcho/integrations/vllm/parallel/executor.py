"""vLLM's multiprocess executor, extended to ask the engine for tokens between a forward and its sampling.

Independent of what a request reads and how tokens are drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentcho.errors import EngineFailed
from agentcho.integrations.vllm.bindings import MultiprocExecutor
from agentcho.integrations.vllm.jobs import OPTION
from agentcho.integrations.vllm.parallel.ranks import PARALLEL

TIMEOUT = 300.0
"""Seconds that a rank may take for one call, the same as vLLM allows for a forward."""
ENDED = (None, 0, -15)
"""Exit codes of a worker that is running or was told to end."""


class RankExecutor(MultiprocExecutor):  # type: ignore[misc]
    """See `MultiprocExecutor`."""

    def _init_executor(self) -> None:
        self._ranks = PARALLEL[self.vllm_config.kv_transfer_config.get_from_extra_config(OPTION, "")]
        self._ranks.executor = self
        super()._init_executor()
        met = self.collective_rpc("agentcho_met", timeout=TIMEOUT)[0]
        self._met = Path(met.removeprefix("file://")) if met.startswith("file://") else None
        for segment in Path("/dev/shm").glob(f"{self._met.name}-*") if self._met is not None else ():
            segment.unlink(missing_ok=True)  # all ranks have it open, and vLLM would not remove it

    def shutdown(self) -> None:
        """End all workers, and remove their rendezvous file."""
        super().shutdown()
        if (met := getattr(self, "_met", None)) is not None:
            met.unlink(missing_ok=True)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """Have the engine draw the tokens of the computed forward, and send them to all ranks."""
        return self.collective_rpc(
            "agentcho_sample",
            args=(grammar_output, self._ranks.draw()),
            unique_reply_rank=self.output_rank,
            non_block=non_block,
            timeout=TIMEOUT,
            kv_output_aggregator=self.kv_output_aggregator,
        )

    def call(self, method: str, *args: Any) -> list[Any]:
        """Call a method of `RankWorker` in each rank; return the results in rank order. `EngineFailed`: a rank has
        died."""
        try:
            told: list[Any] = self.collective_rpc(method, timeout=TIMEOUT, args=args)
        except Exception as error:
            self.check(error)
            raise
        return told

    def check(self, error: Exception) -> None:
        """`EngineFailed`, naming the workers, if any have died by themselves."""
        dead = [(each.rank, each.proc.exitcode) for each in getattr(self, "workers", None) or ()]
        told = [f"rank {rank} with exit code {code}" for rank, code in dead if code not in ENDED]
        if told:
            raise EngineFailed(
                f"a worker of vLLM has died ({', '.join(told)}); its running calls were dropped, and this "
                "engine takes no more; load the engine again"
            ) from error
