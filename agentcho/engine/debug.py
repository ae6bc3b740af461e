"""A view of an engine's unfinished calls, for tests and debugging. Read it between steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentcho.engine.cache import Encoding
from agentcho.engine.call_layout import KVEntry
from agentcho.engine.sequence import Sequence
from agentcho.protocol.call import EncodingId


class Debug(NamedTuple):
    """`rows`: the running decodes and shadows. `deferred`: the shadows that are encoded only when a call first reads
    them. `calls`: all unfinished calls. `slots`: where the running calls keep their contexts. `encodings`: the finished
    encodings by id."""

    rows: tuple[Sequence, ...]
    deferred: tuple[Sequence, ...]
    calls: tuple[Sequence, ...]
    slots: Any
    encodings: Mapping[EncodingId, Encoding]

    @property
    def shared(self) -> tuple[Any, ...]:
        """The runs of pieces that several running decodes read in one place."""
        return tuple(self.slots.shared)

    def entry(self, id: EncodingId) -> KVEntry:
        """The stored keys and values of a finished id. Raises `KeyError` if there are none."""
        return self.encodings[id].entry
