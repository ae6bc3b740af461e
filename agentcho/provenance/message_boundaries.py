"""Checks before a game that messages are separated by tokens that no text can spell.

Independent of chat templates and engines.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcho.config import Markers, ReusePolicy
from agentcho.errors import UnsupportedModel


def required_markers(reuse: ReusePolicy, markers: Markers) -> Markers:
    """What a reuse policy requires of a model: claims about who reads what presume that one message cannot pass for
    two."""
    claims = reuse.mode == "choreographed" and reuse.leakage != "audit"
    return markers if claims else "accept"


def check_markers(plain: Sequence[tuple[str, str]], markers: Markers, model: str | None = None) -> None:
    """Raise `UnsupportedModel` if `plain` has pairs of roles whose messages are only separated by what a text can
    spell, unless that is accepted."""
    if not plain or markers == "accept":
        return
    between = ", ".join(f"{one} and {other}" for one, other in plain)
    raise UnsupportedModel(
        model or "this model",
        f"its chat template separates messages of {between} by plain text alone, so one agent's words "
        "can pass for another's, and enforce and deny require that they cannot",
        "Use a model whose template has special tokens there, or give --plain-markers accept "
        "(plain_markers='accept'), which audits report as a warning",
    )
