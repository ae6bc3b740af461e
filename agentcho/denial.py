"""What a call must not read: found from the graph of messages and their audiences alone, before anything is computed.

Does not know: encodings that exist, texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from agentcho.config import Way
from agentcho.message import Metadata
from agentcho.visibility import ReadSet


class Known(Protocol):
    """A message with what its author read."""

    @property
    def metadata(self) -> Metadata: ...


def carried(reads: ReadSet, way: Way, said: Mapping[str, Known]) -> tuple[str, ...]:
    """The way from a message of `reads` to one that the caller may not read; empty: the call is free to go.

    audit records and never refuses. A direct leak is refused in every other case. deny refuses also what the
    author of a message had read, and the authors of that, on and on: what its encoding carries.
    """
    if way.leakage == "audit" or reads.caller is None:
        return ()
    if reads.direct:
        return (reads.direct[0],)
    if way.mode == "baseline" or way.leakage != "deny":
        return ()
    return _path(reads, said)


def _path(reads: ReadSet, said: Mapping[str, Known]) -> tuple[str, ...]:
    """Breadth first, so that the shortest is told."""
    assert reads.caller is not None
    paths = deque[tuple[str, ...]]((read.id,) for read in reads.reads)
    seen = {read.id for read in reads.reads}
    while paths:
        path = paths.popleft()
        message = said[path[-1]].metadata
        if not message.audience.includes(reads.caller):
            return path
        fresh = [parent for parent in message.parents if parent not in seen]
        seen.update(fresh)
        paths.extend((*path, parent) for parent in fresh)
    return ()
