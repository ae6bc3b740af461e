"""Recomputes the cones of one game from its receipts and finds contradictions in its transcript.

Stored cones are not trusted: they are compared with the computed ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from agentcho.message import Message
from agentcho.provenance.labels import Cone, EncodingRecord, MessageIndex, attended_encodings
from agentcho.records.models import LOCAL, RecordedModels
from agentcho.records.transcript import TranscriptEntry


class Walk(NamedTuple):
    """An encoding and all encodings that it attended to, directly or transitively, nearest first. `before` maps each
    encoding to its predecessor on the way from the first."""

    order: tuple[int, ...]
    before: dict[int, int]

    def trail(self, end: int) -> tuple[int, ...]:
        """A shortest path of encodings from the first to `end`, both included."""
        path = [end]
        while path[-1] in self.before:
            path.append(self.before[path[-1]])
        return tuple(reversed(path))


class Cones:
    """The encodings of one game.

    `messages` and `entries` are by message id, `records` by encoding id; `order` is each message's index. `faults`
    says by encoding id why its cone is unknown. `roots` has those whose fault is their own, not inherited from an
    encoding that they attended to; its negative keys are lines that should name an encoding and do not.
    """

    def __init__(self, entries: Sequence[TranscriptEntry], models: RecordedModels = LOCAL) -> None:
        self.lines = Counter(entry.message.id for entry in entries)
        self._models = models
        self.entries = {entry.message.id: entry for entry in entries}
        self.messages: dict[str, Message] = {id: entry.message for id, entry in self.entries.items()}
        self.order = {id: place for place, id in enumerate(self.messages)}
        made = [record for entry in entries for record in entry.made]
        self.records: dict[int, EncodingRecord] = {record.id: record for record in made}
        self._over = _over(self.records)
        self._several = len({record.engine for record in made}) > 1
        self._sorted = _in_order(self._over)
        self._roll = MessageIndex()
        self.cones = self._cones()
        self.faults: dict[int, str] = {}
        self.roots: dict[int, str] = {}
        self._judge(entries, made)
        self._walks: dict[int, Walk] = {}
        self._hidden: dict[str, Set[str]] = {}

    def fault(self, id: int) -> str | None:
        """Why the cone of an encoding is unknown, or None if it is known."""
        return self.faults.get(id) if id in self.records else "there is no record of it"

    def hidden(self, reader: str) -> Set[str]:
        """The messages that an agent may not read, as a set that is cheap to intersect with cones."""
        if reader not in self._hidden:
            self._hidden[reader] = self._roll.of({id for id, each in self.messages.items() if hidden(each, reader)})
        return self._hidden[reader]

    def walk(self, start: int) -> Walk:
        """Breadth-first search from an encoding through the encodings attended to, in the order of the prompts."""
        if start not in self._walks:
            before = dict[int, int]()
            order = [start]
            queue = deque([start])
            while queue:
                here = queue.popleft()
                for id in self._over[here]:
                    if id != start and id not in before:
                        before[id] = here
                        order.append(id)
                        queue.append(id)
            self._walks[start] = Walk(tuple(order), before)
        return self._walks[start]

    def path(self, start: int, end: int) -> tuple[str, ...]:
        """The messages on a shortest walk from one encoding to another, both included."""
        return tuple(self.records[id].message for id in self.walk(start).trail(end))

    def paths(self, start: int, wanted: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """A shortest path to each of these messages that is in the cone, nearest first."""
        left = set(wanted)
        found = dict[str, tuple[str, ...]]()
        for id in self.walk(start).order:
            for message in self.records[id].messages:
                if message in left:
                    left.remove(message)
                    found[message] = (*self.path(start, id)[:-1], message)
        return found

    def _cones(self) -> dict[int, Cone]:
        cones = dict[int, Cone]()
        for id in self._sorted:
            record = self.records[id]
            cones[id] = self._roll.cone(record.message, (cones[over] for over in self._over[id]), record.also)
        return cones

    def _judge(self, entries: Sequence[TranscriptEntry], made: Sequence[EncodingRecord]) -> None:
        """Fill `faults` and `roots`. An encoding that attended to one with an unknown cone has an unknown cone too."""
        ids = Counter(record.id for record in made)
        for entry in entries:
            own = entry.encoding, entry.message.id
            if entry.encoding is not None and own not in {(record.id, record.message) for record in entry.made}:
                self.roots[entry.encoding] = f"message {entry.message.id} has no record of its own encoding"
        silent = ((-place, self._silent(entry)) for place, entry in enumerate(entries, start=1))
        self.roots |= {place: fault for place, fault in silent if fault is not None}
        self.faults = dict(self.roots)
        for id in dict.fromkeys([*self._sorted, *self.records]):
            record = self.records[id]
            fault = self._misfit(record, ids[id])
            bad = next((over for over in self._over[id] if over in self.faults), None) if self.faults else None
            if fault is None and bad is not None:
                self.faults.setdefault(id, f"it attends to encoding {bad}: {self.faults[bad]}")
            elif fault is None and record.cone != self.cones[id]:
                fault = "its stored cone is not the one that the receipts give"
            if fault is not None:
                self.roots[id] = self.faults[id] = fault

    def _silent(self, entry: TranscriptEntry) -> str | None:
        """Why the context of a message is unknown; None: it is known, or there is none. A prefill may have no encoding,
        and a message from another source (a person, a tool, a model behind an API) has none."""
        if entry.engine not in self._models.names:
            return f"message {entry.message.id} is of the model {entry.engine!r}, which the record does not list"
        if self._models.texts(entry):
            return _text_fault(entry, self.lines[entry.message.id])
        if entry.message.kind == "prefill" or entry.encoding is not None or entry.own is not None:
            return None
        if self.said_in(entry) is not None:
            return None
        return f"message {entry.message.id} has no record of what it was said over"

    def said_in(self, entry: TranscriptEntry) -> EncodingRecord | None:
        """The encoding in which a message was generated: its own, or that of its author's thought before it. None if
        there is no such record."""
        thought = self.entries.get(entry.act.thought or "")
        if entry.own is not None or thought is None:
            return entry.own
        fits = thought.message.author == entry.message.author and self.lines[thought.message.id] == 1
        return thought.own if fits and thought.message.words.thought is not None else None

    def _misfit(self, record: EncodingRecord, records: int) -> str | None:
        """The fault of a record itself, apart from its stored cone."""
        known = self._over[record.id]
        over = attended_encodings(record.receipt)
        lost = [] if len(known) == len(over) else [each for each in over if each not in self.records]
        strange = known if self._several else ()
        elsewhere = [each for each in strange if not self._models.may_read(record, self.records[each])]
        for message in record.messages:
            if (lines := self.lines[message]) != 1:
                return f"message {message} has {lines or 'no'} lines"
        if record.also and record.recipe != "baseline":
            return "it is of several messages, and stands in no prompt of a reader's own"
        if records > 1:
            return "it is recorded more than once"
        if lost:
            return f"it attends to encoding {lost[0]}, of which there is no record"
        if elsewhere:
            return f"it attends to encoding {elsewhere[0]}, which is another engine's"
        if record.engine not in self._models.names - self._models.endpoints:
            return f"it is of the model {record.engine!r}, on which the record has no encodings"
        own = self.entries[record.message]
        if own.encoding == record.id and own.engine != record.engine:
            return f"it is of the model {record.engine!r}, and its message was said on {own.engine!r}"
        return None if record.id in self.cones else "it attends to itself, or to what does"


def hidden(message: Message, reader: str) -> bool:
    """Whether a message's audience leaves an agent out."""
    return not message.audience.includes(reader)


def _text_fault(entry: TranscriptEntry, lines: int) -> str | None:
    """Why a line contradicts a message generated outside an engine, which has one line, no token ids and no
    encoding."""
    id = entry.message.id
    if lines != 1:
        return f"message {id} has {lines} lines"
    if entry.message.tokens or entry.encoding is not None or any(record.message == id for record in entry.made):
        return f"message {id} was said by no engine that encodes, and has token ids or an encoding, as none such can"
    return None


def _over(records: dict[int, EncodingRecord]) -> dict[int, tuple[int, ...]]:
    """The encodings with a record that each encoding attended to, in prompt order."""
    found = {id: attended_encodings(record.receipt) for id, record in records.items()}
    lost = set[int]().union(*found.values()) - records.keys()
    return {id: tuple(each for each in over if each not in lost) for id, over in found.items()} if lost else found


def _in_order(over: dict[int, tuple[int, ...]]) -> list[int]:
    """Ids in topological order, without encodings on a cycle and all that attended to them."""
    users: dict[int, list[int]] = {}
    left: dict[int, int] = {}
    for id, each in over.items():
        once = set(each)
        left[id] = len(once)
        for one in once:
            users.setdefault(one, []).append(id)
    order = [id for id in over if not left[id]]
    for id in order:
        for user in users.get(id, ()):
            left[user] -= 1
            if not left[user]:
                order.append(user)
    return order
