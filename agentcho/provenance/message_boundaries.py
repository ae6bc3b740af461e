"""Whether messages stand apart by what nobody can write: asked before a game begins.

Does not know: chat templates, engines.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcho.config import Markers, ReusePolicy
from agentcho.errors import UnsupportedModel


def required_markers(reuse: ReusePolicy, markers: Markers) -> Markers:
    """What such a reuse policy asks of a model: a claim about who reads what presumes that one message cannot pass
    for two."""
    claims = reuse.mode == "choreographed" and reuse.leakage != "audit"
    return markers if claims else "accept"


def check_markers(plain: Sequence[tuple[str, str]], markers: Markers, model: str | None = None) -> None:
    """`UnsupportedModel` where roles are given between whose messages nothing stands but what a text can spell, unless
    that is accepted."""
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
