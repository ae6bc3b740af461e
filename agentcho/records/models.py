"""The models of a run, as its record lists them: which of them are behind APIs, where nothing is encoded.

Does not know: how a record is written, engines.
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
    """The models of a record by their names in it, None for the run's own, and those of them that are behind APIs.
    `homes`: of adapters that are on the engine of another model, which that is."""

    names: frozenset[str | None] = frozenset({None})
    endpoints: frozenset[str | None] = frozenset()
    homes: Mapping[str | None, str | None] = MappingProxyType({})

    @classmethod
    def of(cls, found: Mapping[str | None, Mapping[str, str]]) -> RecordedModels:
        """Those of a record, by what their fingerprints say."""
        remote = frozenset(name for name, each in found.items() if is_endpoint(each))
        return cls(frozenset(found), remote, homes(found))

    def texts(self, entry: TranscriptEntry) -> bool:
        """Whether a message was said by a model behind an API, a person or a tool: who spoke it read texts, and no
        encodings. What a person said through a model that is loaded was encoded as anybody's words are."""
        typed = entry.origin == "human" and not entry.message.tokens and entry.encoding is None
        elsewhere = entry.engine in self.endpoints or entry.origin == "tool" or typed
        return entry.message.kind == "decode" and elsewhere

    def may_read(self, reader: EncodingRecord, read: EncodingRecord) -> bool:
        """Whether an encoding can have attended to another: on the same engine, that is, and there through the same
        adapter, or the other goes through none, as what is made for audiences does where there are several."""
        if reader.engine == read.engine:
            return True
        return read.recipe == "audience" and reader.engine in self.homes and self.homes[reader.engine] == read.engine


LOCAL = RecordedModels()
"""One model, loaded where it was played."""


def is_endpoint(fingerprint: Mapping[str, str]) -> bool:
    """Whether this is of a model behind an API: it says so, and has nothing that only a model has that is loaded."""
    return fingerprint.items() >= ENDPOINT.items() and fingerprint.keys().isdisjoint(("weights", "tokenizer"))


ON = "on"
"""What a fingerprint calls the model whose engine an adapter is on."""


def homes(fingerprints: Mapping[str | None, Mapping[str, str]]) -> dict[str | None, str | None]:
    """The homes that these say: see `RecordedModels`."""
    named = {name: each[ON] for name, each in fingerprints.items() if ON in each}
    return {name: None if home == DEFAULT_MODEL else home for name, home in named.items()}
