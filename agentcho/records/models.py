"""The models of a run, as its record lists them: which of them are behind APIs, where nothing is encoded.

Does not know: how a record is written, engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agentcho.calls.texts import ENDPOINT
from agentcho.records.transcript import Entry


class Models(NamedTuple):
    """The models of a record by their names in it, None for the run's own, and those of them that are behind APIs."""

    names: frozenset[str | None] = frozenset({None})
    endpoints: frozenset[str | None] = frozenset()

    def texts(self, entry: Entry) -> bool:
        """Whether a message was said by a model behind an API, a person or a tool: who spoke it read texts, and no
        encodings. What a person said through a model that is loaded was encoded as anybody's words are."""
        typed = entry.origin == "human" and not entry.message.tokens and entry.encoding is None
        elsewhere = entry.engine in self.endpoints or entry.origin == "tool" or typed
        return entry.message.kind == "decode" and elsewhere


LOCAL = Models()
"""One model, loaded where it was played."""


def is_endpoint(fingerprint: Mapping[str, str]) -> bool:
    """Whether this is of a model behind an API: it says so, and has nothing that only a model has that is loaded."""
    return fingerprint.items() >= ENDPOINT.items() and fingerprint.keys().isdisjoint(("weights", "tokenizer"))
