"""Information flow: who may read what, through which encodings. No torch, no event loop."""

from agentcho.flow.salts import cache_salts

__all__ = ["cache_salts"]
