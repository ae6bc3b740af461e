"""The logits processor of one engine: the engine draws every token, and vLLM takes it.

The engine gets the row of logits of each request that waits for a token, as the network computed it. Then the row is
changed to allow only the token that was drawn. Independent of how tokens are drawn.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from agentcho.integrations.vllm.bindings import LogitsProcessor, SamplingParams, process_dict_updates
from agentcho.integrations.vllm.jobs import ENGINES, OPTION, Job


class DrawnTokens(LogitsProcessor):  # type: ignore[misc]
    """See `LogitsProcessor`."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._jobs = ENGINES[vllm_config.kv_transfer_config.get_from_extra_config(OPTION, "")]
        self._rows: dict[int, Job] = {}

    def is_argmax_invariant(self) -> bool:
        """False: it decides which token is the best."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Track the rows of the requests in the batch."""
        process_dict_updates(self._rows, batch_update, self._job)

    def _job(self, params: SamplingParams, prompt: list[int] | None, output: list[int]) -> Job | None:
        return self._jobs.get((params.extra_args or {}).get(OPTION, ""))

    def apply(self, logits: Tensor) -> Tensor:
        """Have the engine draw a token for each row that needs one; `logits` `[rows, vocab]`, float32."""
        asking = [(row, job) for row, job in sorted(self._rows.items()) if job.needs_token and row < len(logits)]
        if not asking:
            return logits
        places = torch.tensor([row for row, _ in asking], device=logits.device)
        chosen = logits[places]
        tokens = self._jobs.sample([(job, line) for (_, job), line in zip(asking, chosen, strict=True)])
        logits[places] = float("-inf")
        logits[places, torch.tensor(list(tokens), device=logits.device)] = 0
        return logits
