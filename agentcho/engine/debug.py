"""A view of the calls that an engine has under way, for tests and for finding faults, to be read between steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentcho.engine.cache import Encoding
from agentcho.engine.call_layout import KVEntry
from agentcho.engine.sequence import Sequence
from agentcho.protocol.call import EncodingId


class Debug(NamedTuple):
    """`rows`: the decodes and shadows that run. `deferred`: the shadows that are encoded only when a call first reads
    them. `calls`: all calls that are not finished. `slots`: where the running ones keep their contexts. `encodings`:
    what the ids name."""

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
        """The stored keys and values that a finished id names. `KeyError`: it names none."""
        return self.encodings[id].entry
