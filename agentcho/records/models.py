"""The models of a run, as its record lists them, and which of them are behind APIs, where nothing is encoded.

Independent of how a record is written, and of engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from agentcho.config import DEFAULT_MODEL
from agentcho.protocol.text_calls import ENDPOINT
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.transcript import TranscriptEntry


class RecordedModels(NamedTuple):
    """The models of a record by name, None for the run's own, and those of them that are behind APIs. `homes`: for
    adapters on the engine of another model, the name of that model."""

    names: frozenset[str | None] = frozenset({None})
    endpoints: frozenset[str | None] = frozenset()
    homes: Mapping[str | None, str | None] = MappingProxyType({})

    @classmethod
    def of(cls, found: Mapping[str | None, Mapping[str, str]]) -> RecordedModels:
        """The models of a record, from their fingerprints."""
        remote = frozenset(name for name, each in found.items() if is_endpoint(each))
        return cls(frozenset(found), remote, homes(found))

    def texts(self, entry: TranscriptEntry) -> bool:
        """Whether a message was said by a model behind an API, a person or a tool, so that its speaker read texts and
        no encodings. What a person said through a loaded model was encoded like any other message."""
        typed = entry.origin == "human" and not entry.message.tokens and entry.encoding is None
        elsewhere = entry.engine in self.endpoints or entry.origin == "tool" or typed
        return entry.message.kind == "decode" and elsewhere

    def may_read(self, reader: EncodingRecord, read: EncodingRecord) -> bool:
        """Whether an encoding can have attended to another: both must be on the same engine with the same adapter, or
        the other has no adapter, as encodings for audiences do if there are several adapters."""
        if reader.engine == read.engine:
            return True
        return read.recipe == "audience" and reader.engine in self.homes and self.homes[reader.engine] == read.engine


LOCAL = RecordedModels()
"""One model, loaded locally."""


def is_endpoint(fingerprint: Mapping[str, str]) -> bool:
    """Whether this is the fingerprint of a model behind an API: it says so, and has no field that only a loaded model
    has."""
    return fingerprint.items() >= ENDPOINT.items() and fingerprint.keys().isdisjoint(("weights", "tokenizer"))


ON = "on"
"""The field of a fingerprint that names the model whose engine an adapter is on."""


def homes(fingerprints: Mapping[str | None, Mapping[str, str]]) -> dict[str | None, str | None]:
    """The homes according to these fingerprints: see `RecordedModels`."""
    named = {name: each[ON] for name, each in fingerprints.items() if ON in each}
    return {name: None if home == DEFAULT_MODEL else home for name, home in named.items()}
