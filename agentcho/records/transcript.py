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
from typing import Any, Literal, NamedTuple, get_args

from agentcho.calls.call import ContextEntry, Receipt
from agentcho.errors import RecordBroken
from agentcho.flow.labels import EncodingRecord
from agentcho.flow.views import Act, After
from agentcho.message import Audience, Message, Words, agent_name, audience
from agentcho.records.files import read_lines
from agentcho.records.lines import EncodingsLine, MessageLine, check
from agentcho.records.sealed import Seals

Ending = Literal["cancelled", "failed", "died"]
"""How a message that is not whole came to its end: its call was cancelled, or failed, or the process was killed."""
Origin = Literal["sampled", "forced", "human", "tool"]
"""Where the words of a message that was not known beforehand come from."""


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
        more = {
            "ended": self.ended,
            "attempt": self.attempt if self.attempt > 1 else None,
            "engine": self.engine,
            "origin": self.origin,
        }
        return self._line(seals) | {name: value for name, value in more.items() if value is not None}

    def _line(self, seals: Seals | None) -> dict[str, Any]:
        m = self.message
        return {
            "game": m.game,
            "id": m.id,
            "kind": m.kind,
            "role": m.role,
            "author": m.author,
            "audience": m.audience.to_json(),
            "parents": list(m.parents),
            "header": m.words.header,
            "text": m.words.text,
            "tokens": list(m.words.tokens) or None,
            "content": list(m.words.content),
            "sampled": m.words.sampled and list(m.words.sampled),
            "name": m.name,
            "canonical": m.words.canonical,
            "offsets": m.offsets and list(m.offsets),
            "new_offset": m.new_offset,
            "stopped": m.words.stopped,
            "encoding": self.encoding,
            "encodings": _lines(self.made, seals),
            "direct": list(self.direct),
            "usage": self.usage._asdict(),
            "act": _act_json(self.act),
        }

    @classmethod
    def from_json(cls, line: dict[str, Any], seals: Seals | None = None) -> Entry:
        """Read one line; `seals` are those of all lines before it. KeyError, TypeError or ValueError where it is no
        message line."""
        check(MessageLine, line)
        message = Message(
            id=line["id"],
            game=line["game"],
            kind=line["kind"],
            role=line["role"],
            author=_who(line["author"]),
            audience=audience(line["audience"] if line["audience"] == "everyone" else list(line["audience"])),
            parents=tuple(line["parents"]),
            words=_words(line),
            name=_who(line["name"]),
            offsets=line["offsets"] and tuple(line["offsets"]),
            new_offset=line["new_offset"],
        )
        usage, act = Usage(**line["usage"]), _act(line["act"])
        return cls(
            message,
            line.get("encoding"),
            _records(line, seals),
            tuple(line["direct"]),
            usage,
            act,
            _one_of(Ending, line.get("ended")),
            line.get("attempt", 1),
            line.get("engine"),
            _one_of(Origin, line.get("origin")),
        )


def _words(line: dict[str, Any]) -> Words:
    start, stop = line["content"]
    sampled = line["sampled"] and tuple(line["sampled"])
    tokens = tuple(line.get("tokens") or ())
    return Words(line["header"], line["text"], tokens, (start, stop), sampled, line["stopped"], line["canonical"])


def _who(word: str | None) -> str | None:
    """An agent's name as a line has it; None: the scenario, or nobody."""
    return None if word is None else agent_name(word)


class Encodings(NamedTuple):
    """A line of encodings alone: those of a game that no message's line has carried by its end, and the tokens that
    were fed for them."""

    game: int
    made: tuple[EncodingRecord, ...]
    attempt: int = 1
    encoded: int = 0

    def to_json(self, seals: Seals | None = None) -> dict[str, Any]:
        """The line as a JSON object; `from_json` inverts it. `seals` as for a message's."""
        again = {"attempt": self.attempt} if self.attempt > 1 else {}
        return {"game": self.game, "encodings": _lines(self.made, seals), "encoded": self.encoded, **again}

    @classmethod
    def from_json(cls, line: dict[str, Any], seals: Seals | None = None) -> Encodings:
        """Read one line. KeyError, TypeError or ValueError where it is none."""
        check(EncodingsLine, line)
        return cls(line["game"], _records(line, seals), line.get("attempt", 1), line.get("encoded", 0))


def _one_of(names: Any, value: Any) -> Any:
    if value is not None and value not in get_args(names):
        raise ValueError(f"{value!r} is none of {', '.join(get_args(names))}")
    return value


def _records(line: dict[str, Any], seals: Seals | None) -> tuple[EncodingRecord, ...]:
    known = seals or Seals()
    return tuple(_opened(r, known) for r in line["encodings"])


def _opened(line: dict[str, Any], seals: Seals) -> EncodingRecord:
    """An encoding with its cone, listed or by its seal."""
    if "seal" in line:
        return seals.open(_record(line | {"cone": ()}), line["seal"])
    record = _record(line)
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
        "context": [list(entry) for entry in receipt.context],
        "start": receipt.start,
        "bos": receipt.bos,
        "base": receipt.base,
        **cone,
    }


def _record(line: dict[str, Any]) -> EncodingRecord:
    context = tuple(ContextEntry(*entry) for entry in line["context"])
    return EncodingRecord(
        line["id"],
        line["message"],
        _who(line["caller"]),
        line["recipe"],
        Receipt(context, line["start"], line["bos"], line.get("base")),
        frozenset(line["cone"]),
    )


def _act_json(act: Act) -> dict[str, Any]:
    places = [list(place) if isinstance(place, After) else place for place in act.places]
    tainted, choices = list(act.tainted_by), list(act.choices)
    return {"where": act.where, "places": places, "acted_on": tainted, "choices": choices}


def _act(line: dict[str, Any]) -> Act:
    places = tuple(After(*place) if isinstance(place, list) else place for place in line["places"])
    return Act(line["where"], places, tuple(line["acted_on"]), tuple(line["choices"]))


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
