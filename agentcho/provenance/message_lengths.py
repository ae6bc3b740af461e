"""The lengths of a game's messages in tokens of one of its engines. Independent of encodings and positions."""

from __future__ import annotations

from collections.abc import Mapping

from agentcho.provenance.drafts import Draft, ModelTokenization
from agentcho.provenance.views import ReadSet


class MessageLengths:
    """The lengths of the game's messages, `drafts`, which grow. `spelling`: that of the engine, if the game has
    several."""

    def __init__(self, drafts: Mapping[str, Draft], spelling: ModelTokenization | None) -> None:
        self._drafts, self._spelling = drafts, spelling
        self._here: dict[str, int] = {}

    def spells(self, draft: Draft) -> bool:
        """Whether the ids of a message are of this engine's tokenizer."""
        return self._spelling is None or draft.tokenizer == self._spelling.tokenizer

    def read(self, reads: ReadSet) -> list[int]:
        """The number of tokens of each message that is read."""
        return [self[read.id] for read in reads.reads]

    def __getitem__(self, id: str) -> int:
        """The number of tokens of a message that is out, known or generated."""
        draft = self._drafts[id]
        assert draft.message is not None
        if self._spelling is None or self.spells(draft):
            return len(draft.message.words.tokens)
        if id not in self._here:
            words = self._spelling.frames.frame(draft.metadata.role, draft.name, draft.whole)
            self._here[id] = len(words.tokens)
        return self._here[id]
