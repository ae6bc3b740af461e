"""Verifies that a peer computes the same network: compares the likeliest tokens and their log-probabilities over the
same ids, at float32.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from agentcho.errors import ConfigError
from agentcho.lab.bench.peers.generate import stock_attention
from agentcho.lab.bench.peers.llama import asked

PROMPT, SAID, LIKELIEST = 64, 8, 10
"""Token ids of the prompt, tokens that the peer generates, and how many probabilities of each are compared."""
NEAR = 0.01
"""Nats within which two log-probabilities at float32 count as the same: other networks differ by tenths."""
EXACT = (("-fa", "off"), ("-ctk", "f32"), ("-ctv", "f32"), ("--cache-reuse", "0"), ("-lv", "4"))
"""Server options that keep keys and values in float32 too, and make it report the system that it was built for."""


class Peeked(NamedTuple):
    """The tokens that a peer generated after a prompt, and at each position the likeliest ones with
    log-probabilities."""

    prompt: tuple[int, ...]
    said: tuple[int, ...]
    likeliest: tuple[Mapping[int, float], ...]


class Same(NamedTuple):
    """Over `tokens` positions: how often the likeliest token is the same, and the largest difference between
    log-probabilities, in nats."""

    tokens: int
    agree: float
    apart: float


def prompt_of(vocabulary: int, seed: int) -> tuple[int, ...]:
    """Random token ids."""
    return tuple(random.Random(seed).choices(range(vocabulary), k=PROMPT))


def peek(port: int, prompt: Sequence[int]) -> Peeked:
    """Query the peer. `ArmUnavailable`."""
    found = asked(port, prompt, SAID, n_probs=LIKELIEST, n_cache_reuse=0)
    steps = [
        {int(one["id"]): float(one["logprob"]) for one in step["top_logprobs"]}
        for step in found["completion_probabilities"][:SAID]
    ]
    return Peeked(tuple(prompt), tuple(found["tokens"])[:SAID], tuple(steps))


@torch.inference_mode()
def compared(network: Any, peeked: Peeked) -> Same:
    """Compare the peer with the library's own attention over the same ids. The network must be in float32."""
    ids = torch.tensor([[*peeked.prompt, *peeked.said]], device=network.device)
    with stock_attention(network):
        logits = network(input_ids=ids, use_cache=False).logits[0, len(peeked.prompt) - 1 : -1]
    ours = logits.float().log_softmax(-1)
    first = [max(step, key=lambda id: step[id]) for step in peeked.likeliest]
    agree = sum(int(row.argmax()) == id for row, id in zip(ours, first, strict=True))
    apart = max(
        abs(float(row[id]) - p) for row, step in zip(ours, peeked.likeliest, strict=True) for id, p in step.items()
    )
    return Same(len(first), agree / len(first), apart)


def check_same(found: Same, name: str) -> None:
    """`ConfigError`: the peer computes another network."""
    if found.apart > NEAR:
        raise ConfigError(
            f"the peer does not reproduce {name}: the log-probability of a likely token differs by "
            f"{found.apart:.3f} nats at float32, and {found.agree:.0%} of {found.tokens} tokens are the same. It is "
            "not timed; give another build"
        )
