"""The names that methods with anchors had here up to version 0.4, with a `DeprecationWarning`. They go in 0.6."""

from __future__ import annotations

from warnings import warn

from agentcho.reuse.anchors import Anchor
from agentcho.reuse.kvcomm import THRESHOLD, KVComm

MOVED = {"Anchor": Anchor, "Anchored": KVComm, "THRESHOLD": THRESHOLD}


def __getattr__(name: str) -> object:
    if name not in MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn(f"{__name__}.{name} is now in agentcho.reuse; the old name goes in 0.6", DeprecationWarning, stacklevel=2)
    return MOVED[name]
