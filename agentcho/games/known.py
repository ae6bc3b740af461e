"""Messages of a trace as a game keeps them: what they read, and the ids of their words.

Does not know: when they are played, what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentcho.calls.call import Encoded, EnginePort
from agentcho.config import Way
from agentcho.engine.layout import frame
from agentcho.errors import TRACE, LeakageError, RecordBroken
from agentcho.flow.denial import Denial
from agentcho.flow.placing import places_of
from agentcho.flow.resolver import Utterance
from agentcho.flow.views import Act, Read, ReadSet
from agentcho.message import Metadata
from agentcho.records.trace import TraceMessage


class Words:
    """Turns messages of one workflow into utterances and ids for one engine."""

    def __init__(self, messages: Mapping[str, TraceMessage], engine: EnginePort, way: Way) -> None:
        self._messages, self._engine, self._way = messages, engine, way

    def utterances(self) -> dict[str, Utterance]:
        """All messages as a game keeps them. `LeakageError` where an author may not read a parent as the way has it."""
        said: dict[str, Utterance] = {}
        denial = Denial(self._way, said)
        for message in self._messages.values():
            utterance = said[message.id] = self._utterance(message)
            if path := denial.carried(utterance.reads):
                raise LeakageError(message.author or "", path)
        return said

    def _utterance(self, message: TraceMessage) -> Utterance:
        offsets = message.offsets or (None,) * len(message.parents)
        reads = tuple(Read(id, at) for id, at in zip(message.parents, offsets, strict=True))
        readers = {id: self._messages[id].readers for id in message.parents}
        direct = tuple(id for id in message.parents if message.author and not readers[id].includes(message.author))
        metadata = Metadata(message.id, message.kind, message.role, message.author, message.readers, message.parents)
        words = message.text if message.kind == "prefill" else message.header or ""
        read_set = ReadSet(message.author, reads, message.new_offset, direct)
        asked = places_of(read_set)
        act = Act(places=asked if any(place is not None for place in asked) else ())
        return Utterance(metadata, words, message.name, read_set, act=act)

    def framed(self, message: TraceMessage) -> Encoded:
        """The words of a message of known text, by the ids that the trace has for this engine's tokenizer, or by its
        text."""
        return self._engine.frame(message.role, message.name, message.text, self._content(message))

    def _content(self, message: TraceMessage) -> tuple[int, ...] | None:
        """The ids between framing, where the trace has them for this engine's tokenizer."""
        if message.tokens is None or message.tokenizer != self._engine.fingerprint.get("tokenizer"):
            return None
        framed = frame(self._engine.framing, message.role, message.name)
        content = framed.inside(message.tokens, closed=message.ended is None)
        if content is None:
            raise RecordBroken(f"message {message.id}", "its tokens do not stand in this engine's framing", TRACE)
        return content

    def forced(self, decode: TraceMessage) -> tuple[int, ...]:
        """The ids to force: the text's, after the header's."""
        encode = self._engine.framing.content.encode
        content = self._content(decode)
        if content is None:
            return tuple(encode(decode.text))
        header = tuple(encode(decode.header or ""))
        if content[: len(header)] != header:
            raise RecordBroken(f"message {decode.id}", "its tokens do not begin with its header's", TRACE)
        return content[len(header) :]
