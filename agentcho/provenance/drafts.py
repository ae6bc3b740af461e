"""Messages as a game keeps them, and how each model of a run writes them. Does not know: encodings, policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from agentcho.message import Audience, Message, Metadata
from agentcho.protocol.call import ChatMessage, EncodingId, FramePort
from agentcho.provenance.views import Act, ReadSet


class ModelTokenization(NamedTuple):
    """How one of several models of a run writes messages. `name`: the model's, None: the run's own. `tokenizer`: the
    digest of its tokenizer, None: the same as the run's own model's. Of several adapters on one engine each has the
    digest of its `adapter`; `home` names the first model that is there, as that of what goes through none of them."""

    name: str | None
    tokenizer: str | None
    frames: FramePort
    home: str | None = None
    adapter: str | None = None


class PartialEncoding(NamedTuple):
    """What was encoded of a message before it was whole: the encoding `id` of its last state, that one's tokens, and
    how many tokens were fed for all of its states."""

    id: EncodingId
    tokens: tuple[int, ...]
    fed: int


@dataclass(eq=False)
class Draft:
    """A message as the game keeps it. `message` is there from the beginning where its words are known, and once they
    are said where they are not; `text` of what is to be said is its header. `engine` is the model that says it, and
    `tokenizer` that of its ids: see `ModelTokenization`. `human`: a person says it; `typed`: its
    words, where the person was asked for them now. `begun` is there until it is encoded. `said`: what a chat template
    is given of it, where its text is not that: functions, a call of one, a result (None: its role and its text)."""

    metadata: Metadata
    text: str
    name: str | None
    reads: ReadSet
    message: Message | None = None
    act: Act = field(default_factory=Act)
    engine: str | None = None
    tokenizer: str | None = None
    human: bool = False
    typed: str | None = None
    begun: PartialEncoding | None = None
    said: ChatMessage | None = None

    @property
    def own(self) -> Audience:
        """Its author alone."""
        return Audience(frozenset({self.metadata.author} if self.metadata.author else ()))

    @property
    def content(self) -> tuple[int, ...] | None:
        """The ids of header and text, once they are known."""
        said = self.message
        return None if said is None else said.words.tokens[slice(*said.words.content)]

    @property
    def framed(self) -> tuple[int, ...] | None:
        """All ids of a thought and what was said after it, which no framing of a message gives; None: it is none."""
        said = self.message
        return said.tokens or None if said is not None and said.words.thought is not None else None

    @property
    def opening(self) -> tuple[int, ...] | None:
        """The ids before the content, where they may be others than the role's: of an answer, once it is said, and of a
        system message. None: they are the role's."""
        if self.message is None or (self.metadata.kind != "decode" and self.metadata.role != "system"):
            return None
        words = self.message.words
        return words.tokens[: words.content[0]] or None

    @property
    def whole(self) -> str:
        """Its header and text, as far as they are known."""
        return self.text if self.message is None else self.message.header + self.message.text
