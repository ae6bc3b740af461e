"""Information flow: which agents may read which messages, through which encodings. No torch, no event loop.

A single place decides every read, so that enforcement and audits cannot disagree.
"""

from agentcho.provenance.prefix_cache_salts import cache_salts

__all__ = ["cache_salts"]
