"""What a call must not read: found from the graph of messages and their audiences alone, before anything is computed.

Of each message it is worked out once who may read all that is behind it; only what is refused is walked. Does not know:
encodings that exist, texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from agentcho.config import Way
from agentcho.flow.views import ReadSet
from agentcho.message import Audience, Metadata


class Known(Protocol):
    """A message with what its author read."""

    @property
    def metadata(self) -> Metadata: ...


class Denial:
    """What calls of one game must not read. `said` are its messages by id, none before its parents; it grows."""

    def __init__(self, way: Way, said: Mapping[str, Known]) -> None:
        self._way, self._said = way, said
        self._readers: dict[str, Audience] = {}

    def carried(self, reads: ReadSet) -> tuple[str, ...]:
        """The way from a message of `reads` to one that the caller may not read; empty: the call is free to go.

        audit records and never refuses. A direct leak is refused in every other case. deny refuses also what the
        author of a message had read, and the authors of that, on and on: what its encoding carries.
        """
        if self._way.leakage == "audit" or reads.caller is None:
            return ()
        if reads.direct:
            return (reads.direct[0],)
        if self._way.mode == "baseline" or self._way.leakage != "deny":
            return ()
        if all(self._readers_of(read.id).includes(reads.caller) for read in reads.reads):
            return ()
        return self._path(reads, reads.caller)

    def _readers_of(self, id: str) -> Audience:
        """Who may read a message and all that is behind it. What lacks its parents' stands on a stack of our own, for a
        chain of messages may be as long as a game."""
        waiting = [id]
        while waiting:
            here = waiting[-1]
            if here in self._readers:
                waiting.pop()
                continue
            message = self._said[here].metadata
            if lacking := [parent for parent in message.parents if parent not in self._readers]:
                waiting += lacking
            else:
                self._readers[here] = message.audience.both(*(self._readers[parent] for parent in message.parents))
        return self._readers[id]

    def _path(self, reads: ReadSet, caller: str) -> tuple[str, ...]:
        """Breadth first, so that the shortest is told."""
        before: dict[str, str | None] = {read.id: None for read in reads.reads}
        left = deque(before)
        while left:
            message = self._said[id := left.popleft()].metadata
            if not message.audience.includes(caller):
                return _trail(id, before)
            fresh = dict.fromkeys(parent for parent in message.parents if parent not in before)
            before |= dict.fromkeys(fresh, id)
            left += fresh
        return ()


def _trail(id: str, before: Mapping[str, str | None]) -> tuple[str, ...]:
    """The way to a message, from where it began."""
    path, here = [id], before[id]
    while here is not None:
        path.append(here)
        here = before[here]
    return tuple(reversed(path))
