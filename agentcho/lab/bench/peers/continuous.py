"""The library's continuous batching with prefix sharing, with every text forced: a peer to compare the engine with.

One manager, made as by `generate_batch`, is kept for a whole workflow, so that pages of finished requests are shared
with later ones that have the same prefix. Requests that begin in the same step share none; that is the library's
behavior. Independent of messages and workflows.
"""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Any

import torch
from torch import Tensor
from transformers import ContinuousBatchingConfig
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor

from agentcho.lab.bench.peers.generate import Forced, Times, greedy
from agentcho.lab.bench.played import ArmUnavailable

PAGE = 32
"""Tokens per page: small, because prefixes are shared in whole pages."""
PACKED = 4096
"""Maximum of tokens in one forward, as in the engine."""
SHORT = 2
"""Tokens to generate in a request whose pages are to be shared: the library never shares those of a request that ends
with its first token."""
WARM, FEED = "warm up", " (fed)"


class _Forcing(ContinuousBatchingLogitsProcessor):
    """Forces each request to its registered tokens, then `stop`. Counts the tokens of each request itself, because on a
    GPU a step is prepared before the last one's tokens are known."""

    supported_kwargs: dict[str, type] = {}  # noqa: RUF012  the library's own way of saying it
    ignored_kwargs = ()

    def __init__(self, stop: int) -> None:
        self._stop, self.texts = stop, dict[str, tuple[int, ...]]()
        self._said = Counter[str]()

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        int32_tensor.fill_(self._stop)

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        return torch.tensor([self._next(r.state.request_id) for r in requests_with_new_token], dtype=torch.int32)

    def _next(self, id: str) -> int:
        text, place = self.texts.get(id, ()), self._said[id]
        self._said[id] += 1
        return text[place] if place < len(text) else self._stop

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        chosen = tensor_arg[: scores.shape[0]].long()[:, None]
        return torch.full_like(scores, float("-inf")).scatter_(-1, chosen, 0.0)


class Continuous:
    """A running manager, as a context manager. Use under `stock_attention`.

    `tokens` is the size of its cache, `calls` the maximum of concurrent calls. `encoded` counts the tokens fed. With
    `stepwise` False, a call generates only its first token, and its text is fed in a separate request. Entering
    allocates the cache, captures the library's CUDA graphs on a GPU, and runs one small request, so that none of this
    is timed. Raises `ArmUnavailable`.
    """

    def __init__(self, network: Any, stop: int, tokens: int, calls: int, stepwise: bool = True) -> None:
        self._network = network
        self._stop = stop
        self._stepwise = stepwise
        self._room: dict[str, Any] = {
            "num_blocks": ceil(tokens / PAGE) + 64,
            "page_size": PAGE,
            "max_batch_tokens": PACKED,
            "allow_block_sharing": True,
            "max_requests_per_batch": calls,
        }
        self._forcing = _Forcing(stop)
        self._first, self._calls = dict[str, float](), dict[str, Forced]()
        self.encoded = 0

    def __enter__(self) -> Continuous:
        try:
            room = ContinuousBatchingConfig(**self._room)  # transformers 5.17 takes other arguments
            self._manager = self._network.init_continuous_batching(greedy(1, stop=-1), room)
            processors = self._manager.logit_processor  # there is no public way to add a processor
            processors.logits_processor.append(self._forcing)
            processors.tensors_required += 1
            processors.do_processing = True
            self._count(processors)
            self._manager.warmup()
        except (AttributeError, ImportError, RuntimeError, TypeError, ValueError) as error:
            raise ArmUnavailable(f"{type(error).__name__}: {error}") from error
        self._manager.start()
        try:
            self.submit(WARM, Forced("", (self._stop,) * 2, (self._stop,)))
            self.next()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.encoded = 0
        return self

    def __exit__(self, *raised: object) -> None:
        if self._manager.is_running():
            self._manager.stop(block=True, timeout=30)
        self._manager.destroy()

    def submit(self, id: str, call: Forced) -> None:
        """Submit a call; it joins the next step."""
        self._forcing.texts[id] = call.text
        self._calls[id] = call
        self._add(id, call.prompt, len(call.text) + 1 if self._stepwise else SHORT)

    def next(self) -> tuple[str, Times]:
        """Wait for the next call that ends. `ArmUnavailable`: the manager has died."""
        while True:
            result = self._finished()
            first, last = result.timestamps[0], result.timestamps[-1]
            id = result.request_id.removesuffix(FEED)
            if self._stepwise or result.request_id != id:
                return id, Times(self._first.get(id, first), last)
            self._first[id] = first
            call = self._calls[id]
            self._add(id + FEED, (*call.prompt, *call.text), SHORT)

    def _add(self, id: str, prompt: tuple[int, ...], tokens: int) -> None:
        self._manager.add_request(list(prompt), request_id=id, max_new_tokens=tokens, record_timestamps=True)

    def _finished(self) -> Any:
        while True:
            result = self._manager.get_result(timeout=1)
            if result is None and not self._manager.is_running():
                raise ArmUnavailable(
                    f"the background thread stopped early: {self._manager.background_thread_status.fatal_error}"
                )
            if result is not None and result.error is not None:
                raise ArmUnavailable(str(result.error))
            if result is not None and result.is_finished():
                return result

    def _count(self, processors: Any) -> None:
        """Count the tokens fed where the library prepares a step: on a GPU, forwards are captured and padded."""
        prepare = processors.prepare_tensor_args

        def counted(requests_in_batch: list[Any], arg_storage: Tensor) -> Tensor:
            self.encoded += sum(request.query_length for request in requests_in_batch)
            prepared: Tensor = prepare(requests_in_batch, arg_storage)
            return prepared

        processors.prepare_tensor_args = counted
