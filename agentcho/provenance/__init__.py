"""Information flow: who may read what, through which encodings. No torch, no event loop.

One place decides every read, so that enforcing and auditing cannot disagree.
"""

from agentcho.provenance.prefix_cache_salts import cache_salts

__all__ = ["cache_salts"]
