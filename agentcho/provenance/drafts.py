"""The messages of a game as it stores them, and how each model of a run tokenises them. Independent of policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from agentcho.message import Audience, Message, Metadata
from agentcho.protocol.call import ChatMessage, EncodingId, FramePort
from agentcho.provenance.views import Act, ReadSet


class ModelTokenization(NamedTuple):
    """How one of several models of a run tokenises messages. `name`: the model's, None for the run's own model.
    `tokenizer`: the digest of its tokenizer, None if it is that of the run's own model. With several adapters on one
    engine, `adapter` is the digest of this one, and `home` names the engine's first model, which stands for encodings
    without an adapter in records."""

    name: str | None
    tokenizer: str | None
    frames: FramePort
    home: str | None = None
    adapter: str | None = None


class PartialEncoding(NamedTuple):
    """The part of a message that was encoded before it was complete: the encoding `id` of its last state, the tokens of
    that state, and the number of tokens fed for all states."""

    id: EncodingId
    tokens: tuple[int, ...]
    fed: int


@dataclass(eq=False)
class Draft:
    """A message as the game stores it. `message` is set from the beginning if its words are known, else once they are
    generated; the `text` of a message to be generated is its header. `engine` is the model that generates it, and
    `tokenizer` that of its ids: see `ModelTokenization`. `human`: a person writes it; `typed`: its words, if the person
    was asked for them now. `begun` is set until it is encoded. `said`: the form that a chat template gets, if that is
    not its role and text: functions, a call of one, a result."""

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
        """The audience of only its author."""
        return Audience(frozenset({self.metadata.author} if self.metadata.author else ()))

    @property
    def content(self) -> tuple[int, ...] | None:
        """The ids of header and text, once they are known."""
        said = self.message
        return None if said is None else said.words.tokens[slice(*said.words.content)]

    @property
    def framed(self) -> tuple[int, ...] | None:
        """All ids of a thought and the answer after it, which no framing reproduces. None if it is not a thought."""
        said = self.message
        return said.tokens or None if said is not None and said.words.thought is not None else None

    @property
    def opening(self) -> tuple[int, ...] | None:
        """The ids before the content, if they may differ from those of the role: for a generated answer, and for a
        system message. None if they are those of the role."""
        if self.message is None or (self.metadata.kind != "decode" and self.metadata.role != "system"):
            return None
        words = self.message.words
        return words.tokens[: words.content[0]] or None

    @property
    def whole(self) -> str:
        """Its header and text, as far as known."""
        return self.text if self.message is None else self.message.header + self.message.text
