"""Deprecated names of methods with anchors, used up to version 0.4, with a `DeprecationWarning`. They go in 0.6."""

from __future__ import annotations

from warnings import warn

from agentcho.reuse import anchors
from agentcho.reuse.method import ByAnchors
from agentcho.reuse.registry import SELECTIONS

METHODS = {kind.formerly: kind for kind in SELECTIONS if issubclass(kind, ByAnchors) and kind.formerly is not None}
MOVED = {"Anchor": anchors.Anchor, **METHODS, "THRESHOLD": 0.3}


def __getattr__(name: str) -> object:
    if name not in MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn(f"{__name__}.{name} is now in agentcho.reuse; the old name goes in 0.6", DeprecationWarning, stacklevel=2)
    return MOVED[name]
