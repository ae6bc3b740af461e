"""A message of known words as an engine will feed it, before any engine does: its ids, and which of them are what.

Does not know: contexts, engines.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcho.calls.call import Encoded, FramingPort
from agentcho.calls.values import text as plain


def framed(
    framing: FramingPort, role: str, name: str | None, text: str, tokens: Sequence[int] | None = None
) -> Encoded:
    """See `FramePort.frame`."""
    said, content = plain(text, "the text"), framing.content
    own = tuple(content.encode(said)) if tokens is None else tuple(tokens)
    said = said if tokens is None else content.decode(own)
    opening = framing.opening(role, name)
    span = (len(opening), len(opening) + len(own))
    canonical = tokens is None or content.spells(own, said)
    return Encoded(role, name, "", said, (*opening, *own, *framing.closing(role)), span, None, None, canonical)
