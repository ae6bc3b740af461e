"""The logits processor of one rank: vLLM takes the tokens that the engine has sent."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from agentcho.integrations.vllm.bindings import LogitsProcessor, SamplingParams, process_dict_updates
from agentcho.integrations.vllm.jobs import OPTION
from agentcho.integrations.vllm.parallel.rank import rank_of


class ToldTokens(LogitsProcessor):  # type: ignore[misc]
    """See `LogitsProcessor`."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rank = rank_of(vllm_config.kv_transfer_config.get_from_extra_config(OPTION, ""))
        self._rows: dict[int, str] = {}

    def is_argmax_invariant(self) -> bool:
        """False: it decides which token is the best."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Track the rows of the requests in the batch."""
        process_dict_updates(self._rows, batch_update, self._name)
        self._rank.places = {name: row for row, name in self._rows.items()}

    def _name(self, params: SamplingParams, prompt: list[int] | None, output: list[int]) -> str | None:
        return (params.extra_args or {}).get(OPTION)

    def apply(self, logits: Tensor) -> Tensor:
        """Make each row of `logits` `[rows, vocab]` whose request got a token allow only that one."""
        return self._rank.force(self._rows, logits)
