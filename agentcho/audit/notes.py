"""What an audit lists beside leaks: blockages, releases, and incomplete messages that were streamed in part."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from agentcho.audit.report import Blockage, Place, Release, Said, Unfinished
from agentcho.audit.verdict import GameVerdict
from agentcho.message import SCENARIO, Message
from agentcho.provenance.labels import Cone, EncodingRecord, MessageIndex


class Seal(NamedTuple):
    """How a report shows the words of messages: as keyed digests, and with `reveal` also as text."""

    key: bytes
    reveal: bool = False

    def data(self, data: bytes) -> str:
        """The first 16 hex digits of the HMAC-SHA256 of bytes. Guesses cannot be checked against it without the key."""
        return hmac.new(self.key, data, hashlib.sha256).hexdigest()[:16]

    def tokens(self, tokens: Sequence[int]) -> str:
        """The digest of token ids."""
        return self.data(f"{len(tokens)}:{','.join(map(str, tokens))}".encode())

    def message(self, message: Message) -> str:
        """The digest of the token ids of a message, or of its words if it has no ids."""
        words = f"text:{message.header}{message.text}".encode("utf-8", "surrogatepass")
        return self.tokens(message.tokens) if message.tokens else self.data(words)

    def words(self, message: Message) -> str | None:
        """Header and text if texts are revealed, else None."""
        return message.header + message.text if self.reveal else None


def said(message: Message, seal: Seal, place: Place | None = None) -> Said:
    """A message as it appears in a report. `place` is the line of code that requested it."""
    about = message.metadata._asdict() | {"audience": message.audience.to_json()}
    tokens = len(message.tokens)
    digest = seal.message(message)
    return Said(**about, tokens=tokens, digest=digest, text=seal.words(message), place=place)


def unfinished(verdict: GameVerdict, seal: Seal) -> Iterator[Unfinished]:
    """Messages that were streamed in part and never ended."""
    for entry in verdict.cones.entries.values():
        message = entry.message
        start, stop = message.sampled or (0, 0)
        if entry.ended is not None:
            yield Unfinished(
                game=verdict.game,
                message=message.id,
                author=message.author or SCENARIO,
                audience=message.audience.to_json(),
                ended=entry.ended,
                tokens=stop - start or len(message.text.encode("utf-8", "replace")),
                digest=seal.message(message),
                text=seal.words(message),
            )


def blockages(verdict: GameVerdict) -> Iterator[Blockage]:
    """Messages in an agent's prompt that the encoding of a later message in it did not attend to. Baseline mode has
    none, because each message attends to all messages before it."""
    records, sets = verdict.cones.records, _AttendedSets(verdict.cones.records)
    for call in records.values():
        reader = verdict.reader(call)
        if reader is None or call.recipe == "baseline":
            continue
        before, listed = 0, list[str]()
        for piece in call.receipt.context:
            read = records.get(piece.id)
            if read is None:
                continue
            own = sets.of_message(read.message)
            if lacking := before & ~sets.attended(read.id) & ~own:
                missing = tuple(m for m in listed if lacking & sets.of_message(m))
                one, other = call.message, read.message
                yield Blockage(game=verdict.game, reader=reader, call=one, message=other, missing=missing)
            before |= own
            listed.append(read.message)


class _AttendedSets:
    """Sets of messages as bit masks, computed once per encoding."""

    def __init__(self, records: Mapping[int, EncodingRecord]) -> None:
        self._records = records
        self._bits, self._attended = dict[str, int](), dict[int, int]()

    def of_message(self, message: str) -> int:
        """The set of one message."""
        return self._bits.setdefault(message, 1 << len(self._bits))

    def attended(self, id: int) -> int:
        """The messages whose encodings an encoding attended to."""
        if id not in self._attended:
            found = 0
            for piece in self._records[id].receipt.context:
                if piece.id in self._records:
                    found |= self.of_message(self._records[piece.id].message)
            self._attended[id] = found
        return self._attended[id]


def releases(verdict: GameVerdict, seal: Seal) -> Iterator[Release]:
    """Messages of agents to an audience that may not read everything their author had read."""
    attended, behind = _attended(verdict), _behind_own(verdict)
    entries = verdict.cones.entries
    messages = verdict.cones.messages
    for message in messages.values():
        if message.author is None:
            continue
        entry = entries[message.id]
        act = entry.act
        before = (*message.parents, *act.shown, *(each for each in (act.thought, act.released) if each is not None))
        read = attended.get(message.id, set()) | {id for id in before if id in messages}
        said_in = verdict.cones.said_in(entry) if message.kind == "decode" else None
        if said_in is not None and said_in.id in behind:
            read |= behind[said_in.id] & messages.keys()
        sources = [id for id in read if not messages[id].audience.covers(message.audience)]
        if sources:
            yield Release(
                game=verdict.game,
                message=message.id,
                author=message.author,
                audience=message.audience.to_json(),
                sources=tuple(sorted(sources, key=verdict.cones.order.__getitem__)),
                digest=seal.message(message),
                canonical=message.canonical,
            )


def released_by_rules(verdict: GameVerdict, seal: Seal) -> Iterator[Release]:
    """Messages that the playing code declared as told by the rules of the game, after it had looked at messages that
    their readers may not read."""
    for entry in verdict.cones.entries.values():
        message = entry.message
        if entry.act.by_rules and entry.act.tainted_by:
            yield Release(
                game=verdict.game,
                message=message.id,
                author=message.author or SCENARIO,
                audience=message.audience.to_json(),
                sources=entry.act.tainted_by,
                digest=seal.message(message),
                canonical=message.canonical,
                by="rules",
            )


def _attended(verdict: GameVerdict) -> dict[str, set[str]]:
    """By message: the messages that its author's own encodings of it attended to."""
    records = verdict.cones.records
    messages = verdict.cones.messages
    found: dict[str, set[str]] = {}
    for record in records.values():
        if _author(verdict, record) is not None:
            read = (records[piece.id].messages for piece in record.receipt.context if piece.id in records)
            over = {message for messages in read for message in messages}
            found.setdefault(record.message, set()).update(over & messages.keys())
    return found


def _behind_own(verdict: GameVerdict) -> dict[int, Cone]:
    """By encoding that a message's own author reads: the message, those that the encoding attended to, and those behind
    encodings among them that are the author's own too. What is behind encodings of others is a leak, not a release."""
    records = verdict.cones.records
    index = MessageIndex()
    found: dict[int, Cone] = {}
    for id in verdict.cones.cones:  # each after those that it attended to
        record = records[id]
        author = _author(verdict, record)
        if author is not None:
            read = [records[piece.id] for piece in record.receipt.context if piece.id in records]
            own = (found[each.id] for each in read if each.id in found and _author(verdict, each) == author)
            found[id] = index.cone(record.message, own, (message for each in read for message in each.messages))
    return found


def _author(verdict: GameVerdict, record: EncodingRecord) -> str | None:
    """The author of an encoded message, if the author itself reads the encoding. None for other encodings."""
    message = verdict.cones.messages.get(record.message)
    author = None if message is None else message.author
    return author if author is not None and verdict.reader(record) == author else None
