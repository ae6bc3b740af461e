"""The engine: prefill, decode and score over a store of encodings. See `engine.Engine`.

`Engine` loads on first use: what lays calls out here is shared with engines that need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentcho.engine.engine import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> object:
    if name != "Engine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agentcho.engine.engine import Engine

    globals()["Engine"] = Engine
    return Engine
