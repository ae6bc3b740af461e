"""Cones and labels: which messages could have influenced an encoding, and whether a call may attend to it.

The ledger computes cones from receipts alone: from what was *actually attended*, never from what was requested. A cone
is exact for provenance and over-approximates information. The monitor keeps the label of every encoding of a game and
checks it right before any key is gathered. `LeakPaths` finds forbidden reads in the graph of messages, before anything
is computed. Independent of tensors and texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Protocol
from weakref import WeakValueDictionary

from agentcho.config import ReusePolicy
from agentcho.errors import LeakageError
from agentcho.message import EVERYONE, Audience, Metadata
from agentcho.protocol.call import EncodingId, Receipt
from agentcho.provenance.views import ReadSet

Recipe = Literal["author", "audience", "baseline", "repaired"]


class Cone(Set[str]):
    """A set of message ids, stored as a bit mask, because each cone of a long game has most of its messages."""

    def __init__(self, roll: MessageIndex, bits: int) -> None:
        self.roll, self.bits = roll, bits

    def __contains__(self, id: object) -> bool:
        place = self.roll.places.get(id)  # type: ignore[call-overload]
        return place is not None and bool(self.bits >> place & 1)

    def __iter__(self) -> Iterator[str]:
        digits = bin(self.bits)[:1:-1]
        return (id for id, digit in zip(self.roll.places, digits, strict=False) if digit == "1")

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Cone):
            return self.bits == other.bits if other.roll is self.roll else frozenset(self) == frozenset(other)
        return super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash()

    def __repr__(self) -> str:
        return repr(set(self))

    def __and__(self, other: Set[Any]) -> Set[str]:
        if isinstance(other, Cone) and other.roll is self.roll:
            return Cone(self.roll, self.bits & other.bits)
        return super().__and__(other)

    def __sub__(self, other: Set[Any]) -> Set[str]:
        if isinstance(other, Cone) and other.roll is self.roll:
            return Cone(self.roll, self.bits & ~other.bits)
        return super().__sub__(other)

    @classmethod
    def _from_iterable(cls, ids: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(ids)


class MessageIndex:
    """Assigns a bit to each message in the cones of one game."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def cone(self, message: str, over: Iterable[Cone], also: Iterable[str] = ()) -> Cone:
        """The cone of an encoding: its message, the cones of all that it was encoded over, and further messages that it
        belongs to (`also`)."""
        bits = 1 << self.places.setdefault(message, len(self.places))
        for other in also:
            bits |= 1 << self.places.setdefault(other, len(self.places))
        for cone in over:
            bits |= cone.bits
        return Cone(self, bits)

    def of(self, ids: Set[str]) -> Cone:
        """A cone of this index with these messages."""
        if isinstance(ids, Cone) and ids.roll is self:
            return ids
        return Cone(self, sum(1 << self.places.setdefault(id, len(self.places)) for id in ids))


def adds_up(cone: Set[str], message: str, over: Iterable[Set[str]], also: Iterable[str] = ()) -> bool:
    """Whether a cone equals the result of `MessageIndex.cone`."""
    parts = list(over)
    if isinstance(cone, Cone) and all(isinstance(part, Cone) and part.roll is cone.roll for part in parts):
        return cone.bits == cone.roll.cone(message, (part for part in parts if isinstance(part, Cone)), also).bits
    return cone == {message}.union(also, *parts)


class EncodingRecord(NamedTuple):
    """One encoding of one message. `cone` holds message ids, its own included.

    `recipe` "author": in the context its author spoke in, E(m); "audience": over those of its parents that all its
    readers may read, X(m), without a caller, or with the author if E(m) is the same; "baseline": in `caller`'s own
    prompt; "repaired": in `caller`'s own prompt too, except for the tokens that its base keeps (`receipt.base`), or as
    its base with the offsets of `receipt.anchors`. Its cone includes the cones of all these. `engine` names the model
    whose engine has it (None: the run's own). `respelled`: the message was generated under another tokenizer, and its
    text was encoded anew under this one.

    A baseline encoding may belong to several messages, the others in `also`, if the template's text of them cannot be
    cut at their borders. `tokens` are its ids, if they are not those of the one message in its own frame. For generated
    messages: `apart` means that the template could not write the prompt as a whole, so each message in it is framed by
    itself; `opened` that it begins with other ids than its frame, because the template opens the answer in that way.
    """

    id: EncodingId
    message: str
    caller: str | None
    recipe: Recipe
    receipt: Receipt
    cone: Set[str]
    engine: str | None = None
    respelled: bool = False
    also: tuple[str, ...] = ()
    tokens: tuple[int, ...] | None = None
    apart: bool = False
    opened: bool = False

    @property
    def messages(self) -> tuple[str, ...]:
        """All messages that it belongs to."""
        return (self.message, *self.also)


ID = itemgetter(0)
"""Returns the encoding of a context entry."""


def attended_encodings(receipt: Receipt) -> tuple[EncodingId, ...]:
    """The encodings whose keys and values went into one: all that it attends to, its base, and its anchors."""
    over = tuple(map(ID, receipt.context))
    return over if receipt.base is None else (*over, receipt.base, *receipt.anchors)


class Ledger:
    """The encodings of one game and their cones."""

    def __init__(self) -> None:
        self._records: dict[EncodingId, EncodingRecord] = {}
        self._cones: dict[EncodingId, Cone] = {}
        self._said_in: dict[str, EncodingId] = {}
        self._roll = MessageIndex()

    def record(
        self,
        id: EncodingId,
        message: str,
        caller: str | None,
        recipe: Recipe,
        receipt: Receipt,
        engine: str | None = None,
        respelled: bool = False,
        *,
        also: tuple[str, ...] = (),
        tokens: tuple[int, ...] | None = None,
        apart: bool = False,
        opened: bool = False,
        said: bool = False,
    ) -> EncodingRecord:
        """Enter an encoding whose context is already entered. Returns the record with its cone. `said`: its message was
        generated in it, or it is made over the same.

        Raises KeyError if the receipt names an encoding that the ledger does not have, which is a bug.
        """
        cone = self._roll.cone(message, (self._cones[over] for over in attended_encodings(receipt)), also)
        entered = EncodingRecord(
            id=id,
            message=message,
            caller=caller,
            recipe=recipe,
            receipt=receipt,
            cone=cone,
            engine=engine,
            respelled=respelled,
            also=also,
            tokens=tokens,
            apart=apart,
            opened=opened,
        )
        self._records[id], self._cones[id] = entered, cone
        if said:
            self._said_in.setdefault(message, id)
        return entered

    def cone(self, message: str) -> Set[str] | None:
        """All messages that could have influenced a generated message: the cone of the encoding in which it was
        generated, whatever others were made of it later. None if that encoding is not here."""
        id = self._said_in.get(message)
        record = None if id is None else self._records.get(id)
        return None if record is None else record.cone

    def forget(self, ids: Iterable[EncodingId]) -> None:
        """Drop encodings that no later receipt will name. Unknown ids are ignored. Cones that include them stay
        complete."""
        for id in ids:
            record = self._records.pop(id, None)
            self._cones.pop(id, None)
            if record is not None and self._said_in.get(record.message) == id:
                del self._said_in[record.message]

    def __getitem__(self, id: EncodingId) -> EncodingRecord:
        return self._records[id]

    def __iter__(self) -> Iterator[EncodingRecord]:
        return iter(self._records.values())


def readers(cone: Iterable[str], audiences: dict[str, Audience], roster: Iterable[str]) -> frozenset[str]:
    """The agents of `roster` who are in the audience of every message of `cone`."""
    members = [audiences[message] for message in cone]
    return frozenset(agent for agent in roster if all(a.includes(agent) for a in members))


class Label(NamedTuple):
    """One message that could have influenced an encoding: of all such messages with its audience, the first by id."""

    message: str
    audience: Audience


class Monitor:
    """The labels of one game. Written and read in the thread that steps the engine, forgotten in that of the game."""

    def __init__(self) -> None:
        self._labels: dict[EncodingId, frozenset[Label]] = {}
        self._guards = WeakValueDictionary[EncodingId, ReadGuard]()

    def guard(self, message: str, audience: Audience, clearance: Audience, also: Iterable[Metadata] = ()) -> ReadGuard:
        """The guard of a call that encodes `message`, and the messages in `also`, for the readers in `clearance`."""
        own = (Label(message, audience), *(Label(other.id, other.audience) for other in also))
        return ReadGuard(self._labels, self._guards, own, clearance)

    def add(self, id: EncodingId, label: Label) -> None:
        """Add a label to an encoding that no call has read yet, for a thought that precedes the answer in it."""
        if id in self._labels:
            self._labels[id] |= {label}

    def forget(self, held: Container[EncodingId]) -> None:
        """Drop the labels that are no longer needed: of encodings that are not `held` and whose calls are over. A call
        that is running, or not yet delivered, still has its guard."""
        for id in [id for id in tuple(self._labels) if id not in held and id not in self._guards]:
            del self._labels[id]


class ReadGuard:
    """Refuses a context unless everyone in `clearance` may read all messages in its cone. See `call.Guard`."""

    def __init__(
        self,
        labels: dict[EncodingId, frozenset[Label]],
        guards: WeakValueDictionary[EncodingId, ReadGuard],
        own: tuple[Label, ...],
        clearance: Audience,
    ) -> None:
        self._labels = labels
        self._guards = guards
        self._own = own
        self._clearance = clearance
        self._admitted: dict[EncodingId, frozenset[Label]] = {}

    def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> bool:
        """Check an encoding, and label it. Returns whether it is public; all that could have influenced it is then
        public too. Raises `LeakageError` if a reader may not read something, or if a part of the context has no label,
        because unknown does not count as clean. A deferred call is checked again when it begins; for labels that were
        forgotten in the meantime, those of its first check are used."""
        first: dict[Audience, str] = {label.audience: label.message for label in reversed(self._own)}
        admitted = dict[EncodingId, frozenset[Label]]()
        for parent in context:
            labels = self._labels.get(parent, self._admitted.get(parent))
            if labels is None:
                raise LeakageError(str(self._clearance), (), parent)
            admitted[parent] = labels
            for label in labels:
                first[label.audience] = min(label.message, first.get(label.audience, label.message))
        for message, audience in sorted(((m, a) for a, m in first.items()), key=lambda pair: pair[0]):
            if not audience.covers(self._clearance):
                raise LeakageError(str(self._clearance), (self._own[0].message, message))
        self._guards[id] = self
        self._admitted = admitted
        self._labels[id] = frozenset(Label(message, audience) for audience, message in first.items())
        return self._clearance == EVERYONE  # then all messages checked above are public as well


class AuthoredMessage(Protocol):
    """A message with what its author read."""

    @property
    def metadata(self) -> Metadata: ...


class LeakPaths:
    """Forbidden reads of calls in one game. `said` are its messages by id, each after its parents; it grows."""

    def __init__(self, reuse: ReusePolicy, said: Mapping[str, AuthoredMessage]) -> None:
        self._reuse, self._said = reuse, said
        self._readers: dict[str, Audience] = {}

    def leak_path(self, reads: ReadSet) -> tuple[str, ...]:
        """The path from a message of `reads` to one that the caller may not read. Empty if nothing is refused.

        audit records and never refuses. All other modes refuse direct leaks. deny also refuses what the author of a
        message had read, transitively, because its encoding carries it.
        """
        if self._reuse.leakage == "audit" or reads.caller is None:
            return ()
        if reads.direct:
            return (reads.direct[0],)
        if self._reuse.mode == "baseline" or self._reuse.leakage != "deny":
            return ()
        if all(self._readers_of(read.id).includes(reads.caller) for read in reads.reads):
            return ()
        return self._path(reads, reads.caller)

    def _readers_of(self, id: str) -> Audience:
        """Who may read a message and all its ancestors. Uses an explicit stack, because a chain of messages may be as
        long as a game."""
        waiting = [id]
        while waiting:
            here = waiting[-1]
            if here in self._readers:
                waiting.pop()
                continue
            message = self._said[here].metadata
            if lacking := [parent for parent in message.parents if parent not in self._readers]:
                waiting += lacking
            else:
                self._readers[here] = message.audience.both(*(self._readers[parent] for parent in message.parents))
        return self._readers[id]

    def _path(self, reads: ReadSet, caller: str) -> tuple[str, ...]:
        """The shortest path to a message that the caller may not read, by breadth-first search."""
        before: dict[str, str | None] = {read.id: None for read in reads.reads}
        left = deque(before)
        while left:
            message = self._said[id := left.popleft()].metadata
            if not message.audience.includes(caller):
                return _trail(id, before)
            fresh = dict.fromkeys(parent for parent in message.parents if parent not in before)
            before |= dict.fromkeys(fresh, id)
            left += fresh
        return ()


def _trail(id: str, before: Mapping[str, str | None]) -> tuple[str, ...]:
    """The path to a message, from its first one."""
    path, here = [id], before[id]
    while here is not None:
        path.append(here)
        here = before[here]
    return tuple(reversed(path))
