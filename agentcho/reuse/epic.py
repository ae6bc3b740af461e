"""EPIC (arXiv 2410.15332): its LegoLink recomputes the first tokens of each chunk."""

from __future__ import annotations

from dataclasses import dataclass

from agentcho.reuse.first_k import FirstK
from agentcho.reuse.method import Source


@dataclass(frozen=True)
class Epic(FirstK):
    """For `Repair`: LegoLink of EPIC. The same as `FirstK` under its published name, with the same keys of encodings.

    Args:
        tokens: Number of tokens, at least 1.
    """

    name = "epic"
    form = "epic:TOKENS"
    usual = "epic:16"
    attacked = None  # it recomputes the same tokens as `FirstK`
    examples = ("epic:16",)
    about = "its first 16 tokens, as `first-k` does"
    source = Source("LegoLink of EPIC", "2410.15332")
