"""The transcript: one JSON line a message, appended whole, readable after a kill at any byte.

A line holds the message, all encodings that were made since the line before, of whatever message, with their receipts
and cones (of long ones the seals, see `sealed`), and what it cost. A message of known text may have its line before
anybody encoded it: it has no encoding there, and a later line brings it. What no message carries stands on a line of
encodings alone, which is read as part of the message line before it. The last line of a file may be torn (a kill); it
is dropped on reading and cut before more is appended. Does not know: how a run is played, engines, the terminal.

That is format 2 (`agentcho-run/2`). Lines of format 1 are read for ever: there each has its encoding and its tokens,
each is whole, of the first attempt, and says nothing of its engine and origin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from agentcho.calls.call import ContextEntry, Receipt
from agentcho.errors import RecordBroken
from agentcho.flow.labels import EncodingRecord
from agentcho.flow.views import Act
from agentcho.message import Audience, Message, Words, audience
from agentcho.records.files import read_lines
from agentcho.records.lines import EncodingPart, EncodingsLine, Ending, MessageLine, Origin, read
from agentcho.records.sealed import Seals

MESSAGE, ENCODINGS = TypeAdapter(MessageLine), TypeAdapter(EncodingsLine)


class Usage(NamedTuple):
    """What one message cost.

    `encoded`: tokens of the encodings of its line; over all lines they sum to what was encoded, and to what would be if
    everybody read every short message. `reused`: tokens of context read from the store. `ttft`: seconds from submission
    to its first row, waiting included.
    `seconds`: from submission to its end.
    """

    encoded: int
    reused: int
    ttft: float
    seconds: float


class Entry(NamedTuple):
    """One message with its provenance.

    `made` are the records of the encodings that its line carries, of itself and of others. `encoding` is the id of its
    own among them; None: it has none. Either its words were known and nobody had read them when it was written (its
    encoding, once made, is in the `made` of a later entry), or it is not whole. `direct` are the messages it read
    outside its author's audience.

    `ended` None: the message is whole. Otherwise its tokens are those that had come until its call ended so, its last
    record in `made` is of what they were said over, and nobody reads it: that encoding was dropped. `attempt` counts
    the times that its game was begun; of several, the last is the game. `engine` is who said it, where that is not the
    run's own. `origin` None: its words were known. A message of an engine without token ids has no `tokens`.
    """

    message: Message
    encoding: int | None
    made: tuple[EncodingRecord, ...]
    direct: tuple[str, ...]
    usage: Usage
    act: Act = Act()
    ended: Ending | None = None
    attempt: int = 1
    engine: str | None = None
    origin: Origin | None = None

    @property
    def own(self) -> EncodingRecord | None:
        """The record of its own encoding, where this entry has it; of one that is not whole, what it was said over."""
        if self.ended is not None:
            return next((record for record in reversed(self.made) if record.message == self.message.id), None)
        return next((record for record in self.made if record.id == self.encoding), None)

    def to_json(self, seals: Seals | None = None) -> dict[str, Any]:
        """The line as a JSON object; `from_json` inverts it. What says nothing is left out. `seals` are those of all
        lines before it; without, each cone is written out."""
        message, words, act = self.message, self.message.words, self.act
        line = {
            "game": message.game,
            "id": message.id,
            "kind": message.kind,
            "role": message.role,
            "author": message.author,
            "audience": message.audience.to_json(),
            "parents": message.parents,
            "header": words.header,
            "text": words.text,
            "tokens": words.tokens or None,
            "content": words.content,
            "sampled": words.sampled,
            "name": message.name,
            "canonical": words.canonical,
            "offsets": message.offsets,
            "new_offset": message.new_offset,
            "stopped": words.stopped,
            "encoding": self.encoding,
            "encodings": _lines(self.made, seals),
            "direct": self.direct,
            "usage": self.usage._asdict(),
            "act": {"where": act.where, "places": act.places, "acted_on": act.tainted_by, "choices": act.choices},
        }
        more = {"ended": self.ended, "attempt": _later(self.attempt), "engine": self.engine, "origin": self.origin}
        return line | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_json(cls, line: dict[str, Any], seals: Seals | None = None) -> Entry:
        """Read one line; `seals` are those of all lines before it. ValueError where it is no message line."""
        said = read(MESSAGE, line)
        words = Words(
            said.header, said.text, said.tokens or (), said.content, said.sampled, said.stopped, said.canonical
        )
        message = Message(
            id=said.id,
            game=said.game,
            kind=said.kind,
            role=said.role,  # type: ignore[arg-type]
            author=said.author,
            audience=audience(said.audience),
            parents=said.parents,
            words=words,
            name=said.name,
            offsets=said.offsets,
            new_offset=said.new_offset,
        )
        return cls(
            message=message,
            encoding=said.encoding,
            made=_records(said, seals),
            direct=said.direct,
            usage=Usage(said.usage.encoded, said.usage.reused, said.usage.ttft, said.usage.seconds),
            act=Act(said.act.where, said.act.places, said.act.acted_on, said.act.choices),
            ended=said.ended,
            attempt=said.attempt,
            engine=said.engine,
            origin=said.origin,
        )


def _later(attempt: int) -> int | None:
    """The number of an attempt as a line has it; the first is left out."""
    return attempt if attempt > 1 else None


class Encodings(NamedTuple):
    """A line of encodings alone: those of a game that no message's line has carried by its end, and the tokens that
    were fed for them."""

    game: int
    made: tuple[EncodingRecord, ...]
    attempt: int = 1
    encoded: int = 0

    def to_json(self, seals: Seals | None = None) -> dict[str, Any]:
        """The line as a JSON object; `from_json` inverts it. `seals` as for a message's."""
        line = {"game": self.game, "encodings": _lines(self.made, seals), "encoded": self.encoded}
        return line if self.attempt == 1 else line | {"attempt": self.attempt}

    @classmethod
    def from_json(cls, line: dict[str, Any], seals: Seals | None = None) -> Encodings:
        """Read one line. ValueError where it is none."""
        alone = read(ENCODINGS, line)
        return cls(alone.game, _records(alone, seals), alone.attempt, alone.encoded)


def _records(line: EncodingsLine, seals: Seals | None) -> tuple[EncodingRecord, ...]:
    known = seals or Seals()
    return tuple(_opened(part, known) for part in line.encodings)


def _opened(part: EncodingPart, seals: Seals) -> EncodingRecord:
    """An encoding with its cone, listed or by its seal."""
    receipt = Receipt(tuple(map(ContextEntry._make, part.context)), part.start, part.bos, part.base)
    cone = frozenset[str]() if part.cone is None else part.cone
    record = EncodingRecord(part.id, part.message, part.caller, part.recipe, receipt, cone)
    if part.seal is not None:
        return seals.open(record, part.seal)
    seals.listed(record)
    return record


def _lines(made: Iterable[EncodingRecord], seals: Seals | None) -> list[dict[str, Any]]:
    return [encoding_line(record, None if seals is None else seals.close(record)) for record in made]


def encoding_line(record: EncodingRecord, seal: str | None = None) -> dict[str, Any]:
    """An encoding as a line has it: with its cone, or with what stands for that."""
    receipt = record.receipt
    cone = {"cone": sorted(record.cone)} if seal is None else {"seal": seal}
    return {
        "id": record.id,
        "message": record.message,
        "caller": record.caller,
        "recipe": record.recipe,
        "context": receipt.context,
        "start": receipt.start,
        "bos": receipt.bos,
        "base": receipt.base,
        **cone,
    }


def read_transcript(path: Path) -> list[Entry]:
    """The entries of a transcript in the order of their lines, with the encodings that stand alone (`carry`)."""
    entries: list[Entry] = []
    seals = AllSeals()
    for number, line in read_lines(path):
        try:
            known = seals[line["game"], line.get("attempt", 1)]
            if "id" in line:
                entries.append(Entry.from_json(line, known))
            else:
                carry(entries, Encodings.from_json(line, known))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"not a message line ({type(error).__name__}: {error})"
            raise RecordBroken(f"{path}:{number}", what) from None
    return entries


class AllSeals(defaultdict[tuple[int, int], Seals]):
    """Those of every game, by its number and its attempt."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        super().__init__(Seals)
        for entry in entries:
            for record in entry.made:
                self.of(entry).listed(record)

    def of(self, entry: Entry) -> Seals:
        """Those of its game."""
        return self[entry.message.game, entry.attempt]


def carry(entries: list[Entry], alone: Encodings) -> None:
    """Let the last entry of their game have encodings that no message's line carries. KeyError: there is none."""
    for place in reversed(range(len(entries))):
        entry = entries[place]
        if (entry.message.game, entry.attempt) == (alone.game, alone.attempt):
            usage = entry.usage._replace(encoded=entry.usage.encoded + alone.encoded)
            entries[place] = entry._replace(made=(*entry.made, *alone.made), usage=usage)
            return
    raise KeyError(alone.game)


def by_attempt(entries: Iterable[Entry]) -> list[list[Entry]]:
    """The entries of one game, attempt by attempt; a game without any has one without any."""
    found: dict[int, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.attempt, []).append(entry)
    return [found[attempt] for attempt in sorted(found)] or [[]]


def own_records(entries: Iterable[Entry]) -> dict[str, EncodingRecord]:
    """Of one game, by message: the record of its own encoding, or else of the first that was made of it, on whatever
    line. A message that nobody read has none."""
    found: dict[str, EncodingRecord] = {}
    for entry in entries:
        for record in entry.made:
            found.setdefault(record.message, record)
        if entry.own is not None:
            found[entry.message.id] = entry.own
    return found


def audiences(entries: list[Entry]) -> dict[str, Audience]:
    """Audience by message id, for `provenance.readers`."""
    return {entry.message.id: entry.message.audience for entry in entries}
