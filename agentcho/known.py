"""Messages of a trace as a game keeps them: what they read, and the ids of their words.

Does not know: when they are played, what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agentcho.config import Leakage
from agentcho.errors import BadTrace, LeakageError
from agentcho.message import Metadata
from agentcho.request import EncodingId, EnginePort, Prefill
from agentcho.resolver import Utterance
from agentcho.trace import TraceMessage
from agentcho.visibility import Read, ReadSet


class ContentPort(Protocol):
    """Text to ids, as content."""

    def encode(self, text: str) -> list[int]: ...


class FramingPort(Protocol):
    """The fixed ids around a message's content."""

    @property
    def content(self) -> ContentPort: ...
    def opening(self, role: str, name: str | None) -> tuple[int, ...]: ...
    def closing(self, role: str) -> tuple[int, ...]: ...


class ReplayPort(EnginePort, Protocol):
    """What replay needs of an engine beyond a game's needs; for logits, those of `LogitsPort` too."""

    @property
    def framing(self) -> FramingPort: ...


@dataclass(eq=False)
class Known(Utterance):
    """A message of a trace; `ids` are its content's, where the trace has them."""

    ids: tuple[int, ...] | None = None

    def prefill(
        self, parents: Sequence[EncodingId | Prefill], offsets: Sequence[int | None] | None, new_offset: int | None
    ) -> Prefill:
        call = super().prefill(parents, offsets, new_offset)
        return call if call.tokens is not None else replace(call, tokens=self.ids)


class Words:
    """Turns messages of one workflow into utterances and ids for one engine."""

    def __init__(self, messages: Mapping[str, TraceMessage], engine: ReplayPort, leakage: Leakage) -> None:
        self._messages, self._engine, self._leakage = messages, engine, leakage

    def utterance(self, message: TraceMessage) -> Utterance:
        """The message as a game keeps it. `LeakageError` where its author may not read a parent."""
        offsets = message.offsets or (None,) * len(message.parents)
        reads = tuple(Read(id, at) for id, at in zip(message.parents, offsets, strict=True))
        readers = {id: self._messages[id].readers for id in message.parents}
        direct = tuple(id for id in message.parents if message.author and not readers[id].includes(message.author))
        if direct and self._leakage != "audit":
            raise LeakageError(message.author or "", direct[0])
        caller = message.author or ""
        metadata = Metadata(message.id, message.kind, message.role, message.author, message.readers, message.parents)
        words = message.text if message.kind == "prefill" else message.header or ""
        read_set = ReadSet(caller, reads, message.new_offset, direct)
        ids = self._content(message) if message.kind == "prefill" else None
        return Known(metadata, words, message.name, read_set, ids=ids)

    def _content(self, message: TraceMessage) -> tuple[int, ...] | None:
        """The ids between framing, where the trace has them for this engine's tokenizer."""
        if message.tokens is None or message.tokenizer != self._engine.fingerprint.get("tokenizer"):
            return None
        framing, tokens = self._engine.framing, message.tokens
        opening, closing = framing.opening(message.role, message.name), framing.closing(message.role)
        end = len(tokens) - len(closing)
        if tokens[: len(opening)] != opening or tokens[end:] != closing or end < len(opening):
            raise BadTrace(f"message {message.id}", "its tokens do not stand in this engine's framing")
        return tokens[len(opening) : end]

    def forced(self, decode: TraceMessage) -> tuple[int, ...]:
        """The ids to force: the text's, after the header's."""
        encode = self._engine.framing.content.encode
        content = self._content(decode)
        if content is None:
            return tuple(encode(decode.text))
        header = tuple(encode(decode.header or ""))
        if content[: len(header)] != header:
            raise BadTrace(f"message {decode.id}", "its tokens do not begin with its header's")
        return content[len(header) :]
