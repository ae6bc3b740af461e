"""How many tokens the messages of a game have, as one of its engines spells them.

Does not know: encodings, positions.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentcho.provenance.drafts import Draft, ModelTokenization
from agentcho.provenance.views import ReadSet


class MessageLengths:
    """Those of `drafts`, the game's messages, which grow. `spelling`: of the engine, where the game has several."""

    def __init__(self, drafts: Mapping[str, Draft], spelling: ModelTokenization | None) -> None:
        self._drafts, self._spelling = drafts, spelling
        self._here: dict[str, int] = {}

    def spells(self, draft: Draft) -> bool:
        """Whether the ids of a message are of this engine's tokenizer."""
        return self._spelling is None or draft.tokenizer == self._spelling.tokenizer

    def read(self, reads: ReadSet) -> list[int]:
        """Tokens of each message that is read."""
        return [self[read.id] for read in reads.reads]

    def __getitem__(self, id: str) -> int:
        """Tokens of a message that is out, known or said."""
        draft = self._drafts[id]
        assert draft.message is not None
        if self._spelling is None or self.spells(draft):
            return len(draft.message.words.tokens)
        if id not in self._here:
            words = self._spelling.frames.frame(draft.metadata.role, draft.name, draft.whole)
            self._here[id] = len(words.tokens)
        return self._here[id]
