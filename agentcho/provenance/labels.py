"""Cones and labels: which messages could have influenced an encoding, and whether a call may attend to it.

The ledger computes cones from receipts alone: from what was *actually attended*, never from what was asked for. A cone
is exact for provenance and over-approximates information. The monitor keeps the label of every encoding of a game and
checks it right before any key is gathered. `LeakPaths` finds what a call must not read in the graph of messages, before
anything is computed. Does not know: tensors, texts, policies.
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
    """Message ids, kept as bits of one number, for the cones of a long game have nearly all of it each."""

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
    """The messages that cones of one game are told of, each with a place of its own."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def cone(self, message: str, over: Iterable[Cone], also: Iterable[str] = ()) -> Cone:
        """A message, all that is in the cones of what it was encoded over, and the messages of which its encoding is
        `also`."""
        bits = 1 << self.places.setdefault(message, len(self.places))
        for other in also:
            bits |= 1 << self.places.setdefault(other, len(self.places))
        for cone in over:
            bits |= cone.bits
        return Cone(self, bits)

    def of(self, ids: Set[str]) -> Cone:
        """A cone of this roll with these messages."""
        if isinstance(ids, Cone) and ids.roll is self:
            return ids
        return Cone(self, sum(1 << self.places.setdefault(id, len(self.places)) for id in ids))


def adds_up(cone: Set[str], message: str, over: Iterable[Set[str]], also: Iterable[str] = ()) -> bool:
    """Whether a cone is that of `MessageIndex.cone`."""
    parts = list(over)
    if isinstance(cone, Cone) and all(isinstance(part, Cone) and part.roll is cone.roll for part in parts):
        return cone.bits == cone.roll.cone(message, (part for part in parts if isinstance(part, Cone)), also).bits
    return cone == {message}.union(also, *parts)


class EncodingRecord(NamedTuple):
    """One encoding of one message. `cone` holds message ids, its own included.

    `recipe` "author": in the context its author spoke in, E(m); "audience": over those of its parents that all its
    readers may read, X(m), of no caller, or of the author where E(m) is the same; "baseline": in `caller`'s own prompt;
    "repaired": in `caller`'s own prompt too, but for the tokens that its base keeps (`receipt.base`), or as its base is
    with the offsets that `receipt.anchors` give: the cones of all these are in its own. `engine` names the model on
    whose engine it is (None: the run's own). `respelled`: the message was said under another tokenizer, and its text
    was encoded anew under this one.

    A baseline encoding may be of several messages, the others in `also`: what the template writes of them cannot be cut
    at their borders. `tokens` are its ids where they are not those that the one message has in its own frame. Of what
    an agent said: `apart`, the template could not write its prompt as a whole, so each message there has its frame;
    `opened`, it begins with other ids than those of its frame, as the template opens an answer to that prompt.
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
        """All messages that it is of."""
        return (self.message, *self.also)


ID = itemgetter(0)
"""The encoding of a piece of a context."""


def attended_encodings(receipt: Receipt) -> tuple[EncodingId, ...]:
    """The encodings whose keys and values went into one: all that it attends to, its base, and its anchors."""
    over = tuple(map(ID, receipt.context))
    return over if receipt.base is None else (*over, receipt.base, *receipt.anchors)


class Ledger:
    """The encodings of one game and their cones."""

    def __init__(self) -> None:
        self._records: dict[EncodingId, EncodingRecord] = {}
        self._cones: dict[EncodingId, Cone] = {}
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
    ) -> EncodingRecord:
        """Enter an encoding whose context is already entered; returns the record with its cone.

        KeyError: the receipt names an encoding that the ledger has not seen (our own invariant).
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
        return entered

    def cone(self, message: str, author: str) -> Set[str] | None:
        """All that could have influenced what an agent has just said; None: it was said in no encoding here. Those that
        were made last are looked at first."""
        for record in reversed(self._records.values()):
            if record.message == message and record.caller == author and record.tokens is None:
                return record.cone
        return None

    def forget(self, ids: Iterable[EncodingId]) -> None:
        """Drop what is known of encodings that no later receipt names; ids that are not there too. Cones that they are
        in stay whole."""
        for id in ids:
            self._records.pop(id, None)
            self._cones.pop(id, None)

    def __getitem__(self, id: EncodingId) -> EncodingRecord:
        return self._records[id]

    def __iter__(self) -> Iterator[EncodingRecord]:
        return iter(self._records.values())


def readers(cone: Iterable[str], audiences: dict[str, Audience], roster: Iterable[str]) -> frozenset[str]:
    """The agents of `roster` that are in the audience of every message of `cone`."""
    members = [audiences[message] for message in cone]
    return frozenset(agent for agent in roster if all(a.includes(agent) for a in members))


class Label(NamedTuple):
    """One message that could have influenced an encoding, the first by its id of all those of its audience."""

    message: str
    audience: Audience


class Monitor:
    """The labels of one game. Written and read where the engine steps; forgotten wherever the game is."""

    def __init__(self) -> None:
        self._labels: dict[EncodingId, frozenset[Label]] = {}
        self._guards = WeakValueDictionary[EncodingId, ReadGuard]()

    def guard(self, message: str, audience: Audience, clearance: Audience, also: Iterable[Metadata] = ()) -> ReadGuard:
        """The guard of a call that encodes `message`, and others `also`, for `clearance`, all of whom it must be fit
        for."""
        own = (Label(message, audience), *(Label(other.id, other.audience) for other in also))
        return ReadGuard(self._labels, self._guards, own, clearance)

    def add(self, id: EncodingId, label: Label) -> None:
        """Something else is in an encoding that nobody has read yet: a thought, which came before what is said in
        it."""
        if id in self._labels:
            self._labels[id] |= {label}

    def forget(self, held: Container[EncodingId]) -> None:
        """Drop the labels that nothing is checked by any more: of encodings that are not `held`, and whose calls are
        over, in whatever way. A call that is not over, or not yet delivered, still has its guard."""
        for id in [id for id in tuple(self._labels) if id not in held and id not in self._guards]:
            del self._labels[id]


class ReadGuard:
    """Refuses a context unless everyone in `clearance` may read all that is in its cone. See `request.Guard`."""

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
        """Check and label. Returns whether it is for everyone, as is then all that could have influenced it.
        `LeakageError`: something of the context has no label here; unknown is not clean. A call that was put off is
        checked again when it begins: what it was admitted over then may have been forgotten by everybody else in
        between."""
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
        return self._clearance == EVERYONE  # and so is all that was just looked at


class AuthoredMessage(Protocol):
    """A message with what its author read."""

    @property
    def metadata(self) -> Metadata: ...


class LeakPaths:
    """What calls of one game must not read. `said` are its messages by id, none before its parents; it grows."""

    def __init__(self, reuse: ReusePolicy, said: Mapping[str, AuthoredMessage]) -> None:
        self._reuse, self._said = reuse, said
        self._readers: dict[str, Audience] = {}

    def leak_path(self, reads: ReadSet) -> tuple[str, ...]:
        """The path from a message of `reads` to one that the caller may not read; empty: nothing is refused.

        audit records and never refuses. A direct leak is refused in every other case. deny refuses also what the
        author of a message had read, and the authors of that, on and on: what its encoding carries.
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
        """Who may read a message and all that is behind it. What lacks its parents' stands on a stack of our own, for a
        chain of messages may be as long as a game."""
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
        """Breadth first, so that the shortest is told."""
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
    """The path to a message, from where it began."""
    path, here = [id], before[id]
    while here is not None:
        path.append(here)
        here = before[here]
    return tuple(reversed(path))
