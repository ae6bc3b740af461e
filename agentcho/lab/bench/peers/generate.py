"""Stock `generate` with the best cache reuse that a careful user would write: a peer to compare the engine with.

The network is the engine's own, with the library's attention and caches. Calls that are ready at the same time form one
batch. Each prompt reuses its longest prefix in any kept cache: cropped for a single call, cropped and left-padded for
several. Prefixes that prompts of a batch share are encoded once, beforehand. Independent of messages and workflows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList

from agentcho.lab.bench.peers.prefixes import Ids, Prefix, Prefixes, common, padded, side_by_side, taking
from agentcho.runner.model.device import synchronize
from agentcho.runner.model.model import ATTENTION

WORTH = 32
"""A shared prefix gets a forward of its own if that saves at least this many tokens: about the cost of one memory-bound
forward."""


class Forced(NamedTuple):
    """One call: the ids of its prompt and of the text that it is forced to, at least one of each. Only the newest cache
    of each `view` is kept."""

    view: str
    prompt: Ids
    text: Ids


class Times(NamedTuple):
    """When a call had its first token, and when it ended, by `perf_counter`."""

    first: float
    ended: float


@contextmanager
def stock_attention(network: nn.Module) -> Iterator[None]:
    """Use torch's scaled dot-product attention as the library calls it; restore the engine's attention at the end."""
    network.set_attn_implementation("sdpa")  # type: ignore[operator]
    try:
        yield
    finally:
        network.set_attn_implementation(ATTENTION)  # type: ignore[operator]


def greedy(tokens: int, stop: int) -> GenerationConfig:
    """Greedy generation of at most `tokens` tokens, until `stop`."""
    made: Any = GenerationConfig
    config: GenerationConfig = made(
        max_new_tokens=tokens,
        do_sample=False,
        temperature=1.0,
        top_p=1.0,
        top_k=50,
        eos_token_id=stop,
        pad_token_id=max(stop, 0),
    )
    return config


class Forcing(LogitsProcessor):
    """Forces each row to its text, then `stop`. Records the time of each step, and with `keep` its scores in
    float32."""

    def __init__(self, texts: Sequence[Ids], stop: int, keep: bool) -> None:
        self._texts = texts
        self._stop = stop
        self._keep = keep
        self.times: list[float] = []
        self.rows: list[Tensor] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        step = len(self.times)
        scores[0, 0].item()  # wait until the device has computed the scores
        if self._keep:
            self.rows.append(scores.detach().float().clone())
        chosen = [text[step] if step < len(text) else self._stop for text in self._texts]
        only = torch.full_like(scores, float("-inf"))
        only[torch.arange(len(chosen)), torch.tensor(chosen)] = 0
        self.times.append(perf_counter())
        return only  # type: ignore[return-value]


class Generating:
    """Batched calls of `generate`. Use under `stock_attention`.

    `encoded` counts the tokens fed, without padding. With `keep`, `logits` holds the rows `[tokens + 1, vocab]` of each
    call of the last batch. With `stepwise` False, each text is fed at once after its first token.
    """

    def __init__(self, network: Any, stop: int, stepwise: bool = True, keep: bool = False) -> None:
        self._network = network
        self._stop = stop
        self._stepwise = stepwise
        self._keep = keep
        self._prefixes = Prefixes()
        self._shared = 0
        self.encoded = 0
        self.logits: list[Tensor] = []

    @torch.inference_mode()
    def batch(self, calls: Sequence[Forced]) -> list[Times]:
        """Run these calls as one batch."""
        if len(calls) > 1:
            self._encode_shared(calls)
        found = [self._prefixes.longest(call.prompt) for call in calls]
        past = max(prefix.length for prefix in found)
        kept = [prefix.ids[: prefix.length] for prefix in found]
        fresh = [call.prompt[prefix.length :] for call, prefix in zip(calls, found, strict=True)]
        parts = padded(kept, past, self._stop, True), padded(fresh, max(map(len, fresh)), self._stop, True)
        ids, mask = (torch.cat([one, other], 1).to(self._network.device) for one, other in zip(*parts, strict=True))
        cache, forcing = side_by_side(found), Forcing([call.text for call in calls], self._stop, self._keep)
        self._generate(
            ids=ids,
            mask=mask,
            cache=cache,
            forcing=forcing,
            tokens=max(len(call.text) for call in calls) + 1 if self._stepwise else 1,
        )
        if not self._stepwise:
            self._feed(calls, cache, mask)
        self.encoded += sum(map(len, fresh)) + sum(len(call.text) for call in calls)
        rows = [[step[row] for step in forcing.rows[: len(call.text) + 1]] for row, call in enumerate(calls)]
        self.logits = [torch.stack(kept) for kept in rows] if self._keep else []
        synchronize(self._network.device)
        ended = perf_counter()
        self._remember(calls, cache, mask)
        times = forcing.times
        return [Times(times[0], times[len(call.text)] if self._stepwise else ended) for call in calls]

    def _generate(self, ids: Tensor, mask: Tensor, cache: DynamicCache, forcing: Forcing, tokens: int) -> None:
        config = greedy(tokens, self._stop)
        self._network.generate(
            ids,
            attention_mask=mask,
            generation_config=config,
            logits_processor=LogitsProcessorList([forcing]),
            **taking(self._network, cache),
        )

    def _encode_shared(self, calls: Sequence[Forced]) -> None:
        """Encode prefixes that several prompts share once, short ones first, where that saves more than it costs."""
        prompts = sorted(call.prompt for call in calls)
        pairs = ((one, min(common(pair), min(map(len, pair)) - 1)) for pair in pairwise(prompts) for one in pair[:1])
        for shared in sorted({one[:length] for one, length in pairs if length > 0}, key=len):
            sharers = sum(prompt[: len(shared)] == shared for prompt in prompts)
            kept = self._prefixes.longest((*shared, -1))
            if (sharers - 1) * (len(shared) - kept.length) >= WORTH:
                self._encode(shared, kept)

    def _encode(self, shared: Ids, kept: Prefix) -> None:
        """Encode these ids after their kept prefix, and keep the result."""
        cache, fresh = side_by_side([kept]), shared[kept.length :]
        ids = torch.tensor([fresh], device=self._network.device)
        self._network(input_ids=ids, use_cache=True, logits_to_keep=1, **taking(self._network, cache))
        self.encoded += len(fresh)
        self._shared += 1
        self._prefixes.keep(f"shared {self._shared}", shared, cache, 0, None)

    def _feed(self, calls: Sequence[Forced], cache: DynamicCache, mask: Tensor) -> None:
        """Feed all texts at once, after their first tokens were chosen."""
        ids, real = padded([call.text for call in calls], max(len(call.text) for call in calls), self._stop, False)
        ids, whole = ids.to(mask.device), torch.cat([mask, real.to(mask.device)], 1)
        places = (whole.cumsum(1) - 1)[:, -ids.shape[1] :]
        self._network(
            input_ids=ids,
            attention_mask=whole,
            position_ids=places,
            use_cache=True,
            logits_to_keep=1,
            **taking(self._network, cache),
        )

    def _remember(self, calls: Sequence[Forced], cache: DynamicCache, mask: Tensor) -> None:
        """Keep the cache of every row, without its padding."""
        width = mask.shape[1]
        for row, call in enumerate(calls):
            said = torch.arange(width, width + len(call.text), device=mask.device)
            columns = None if mask[row].all() else torch.cat([mask[row].nonzero()[:, 0], said])
            self._prefixes.keep(call.view, (*call.prompt, *call.text), cache, row, columns)
