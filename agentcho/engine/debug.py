"""What an engine is in the midst of, for tests and for whoever doubts it, to be read between steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentcho.calls.call import EncodingId
from agentcho.engine.cache import Encoding, KVEntry
from agentcho.engine.sequence import Sequence


class Debug(NamedTuple):
    """Decodes and shadows that run (`rows`), shadows that are made when they are read (`deferred`), all calls not
    finished, the `slots` of those that run, and what ids name."""

    rows: tuple[Sequence, ...]
    deferred: tuple[Sequence, ...]
    calls: tuple[Sequence, ...]
    slots: Any
    encodings: Mapping[EncodingId, Encoding]

    @property
    def shared(self) -> tuple[Any, ...]:
        """Contexts that several rows have in common."""
        return tuple(self.slots.shared.values())

    def entry(self, id: EncodingId) -> KVEntry:
        """The keys and values that a finished id names. KeyError: it names none."""
        return self.encodings[id].entry
