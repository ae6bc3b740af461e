"""What waits: calls for a forward, in whose line they stand and how many of their tokens go into the next one; and
shadows until somebody reads them.

Calls go by priority; then what was begun; then those of the workflow that was served least while anybody waited; then
by arrival. Of equal prefills one is encoded for all, and has the highest of their priorities.

Shadows whose leaders ended before they fed anything are encoded when they are first read, in that forward: nobody may
ever read what was said in few words, such as a vote, so nothing is fed for it until somebody does. Does not know: how
calls are checked, how a forward computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from agentcho.calls.call import EncodingId, Turn
from agentcho.engine.cache import Encoding, KVEntry, Tiers
from agentcho.engine.layout import Piece, Recipe
from agentcho.engine.sequence import Sequence, Status
from agentcho.errors import CallbackFailed, LeakageError, RequestError


class Waiting(NamedTuple):
    """A call in line: whose turn it waits for, and its number among all that ever came. `spare`: it was begun ahead of
    its time, and others wait now; it goes on only where these find no room, which it then gives back."""

    call: Sequence
    turn: Turn
    number: int
    spare: bool = False


class Queue:
    """Waiting calls, `waiting` in no order. Calls of one workflow and priority keep theirs: those that others build on
    come first."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self._served: Counter[str] = Counter()
        self._arrived = 0

    def __iter__(self) -> Iterator[Sequence]:
        return (each.call for each in self.waiting)

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, calls: Iterable[Sequence], turn: Turn) -> None:
        """To the end. A workflow that was not waiting begins level with the least served that is, with no credit for
        the time it was away."""
        waits = any(each.turn.workflow == turn.workflow and not each.turn.ahead for each in self.waiting)
        if not turn.ahead and not waits:
            here = self._here
            level = min((self._served[workflow] for workflow in here), default=0)
            self._served[turn.workflow] = max(self._served[turn.workflow], level) if here else 0
        for call in calls:
            self.waiting.append(Waiting(call, turn, self._arrived))
            self._arrived += 1

    def line(self) -> list[Waiting]:
        """All, the next one first. What is made ahead comes in when nobody waits for anything, or for the very same; if
        it was begun, last."""
        wanted = [each for each in self.waiting if not each.turn.ahead]
        ahead = [each for each in self.waiting if each.turn.ahead]
        if not ahead or not any(each.call.entry is not None or each.call.due for each in wanted):
            return self._sorted(self.waiting)
        asked = {entry for each in wanted for entry in each.call.holds}
        twins = [each for each in ahead if each.call.own in asked]
        spare = [each._replace(spare=True) for each in ahead if each not in twins and each.call.started]
        return [*self._sorted([*wanted, *twins]), *spare]

    def _sorted(self, line: Iterable[Waiting]) -> list[Waiting]:
        highest: dict[KVEntry, int] = {}
        for call, turn, *_ in line:
            if call.entry is not None:
                highest[call.entry] = max(turn.priority, highest.get(call.entry, turn.priority))

        def place(waiting: Waiting) -> tuple[int, bool, int, int]:
            call, turn, number, _ = waiting
            priority = turn.priority if call.entry is None else highest[call.entry]
            return -priority, not call.started, self._served[turn.workflow], number

        return sorted(line, key=place)

    @property
    def _here(self) -> set[str]:
        """Workflows that somebody waits in."""
        return {each.turn.workflow for each in self.waiting if not each.turn.ahead}

    def serve(self, waiting: Waiting, tokens: int) -> None:
        """So many tokens were encoded for it, which count where somebody waits for them."""
        self._served[waiting.turn.workflow] += 0 if waiting.turn.ahead else tokens

    def put_back(self, waiting: Waiting) -> None:
        """Where it was in line before it began."""
        self.waiting.append(waiting)

    def keep(self, wanted: Callable[[Sequence], bool]) -> None:
        """Leave out all other calls."""
        self.waiting = [each for each in self.waiting if wanted(each.call)]
        self._served = Counter({workflow: self._served[workflow] for workflow in self._here})


DEPTH = 1024
"""A token that attends to so many others costs about twice one that attends to none, as measured on a CPU."""


class Budget(NamedTuple):
    """Tokens of one forward: at most `packed` in all, and while anybody is to be spared so much of prefills as `beside`
    tokens cost that attend to nothing, so that a long one does not hold up the next tokens of all others."""

    packed: int
    beside: int

    def room(self, fed: int, speaking: bool) -> Room:
        """What is left of a forward that feeds `fed` tokens already."""
        return Room(self.packed - fed, self.beside if speaking else None, empty=fed == 0)


class Rush:
    """Whether most of those concerned wait for their first tokens: at least two calls, and as many as speak, such as
    all that came together. It lasts until nobody waits, or the last of them would go by the small parts that spare a
    speaker. Total work is the same; what a speaker loses at once it would lose bit by bit, while others wait longer."""

    def __init__(self) -> None:
        self.on = False

    def see(self, waiting: int, speaking: int) -> None:
        """So many wait now, and so many speak."""
        self.on = waiting > 0 and (self.on or waiting >= max(2, speaking))


class Room:
    """What is left of one forward: tokens in all, and the work of prefills (None: there is no other bound)."""

    def __init__(self, total: int, work: float | None, empty: bool) -> None:
        self._total, self._work, self._empty, self._begun = total, work, empty, False

    def take(self, tokens: int, divisible: bool, depth: int = 0) -> int | None:
        """How many of a call's tokens go now, that attend to `depth` others; None: it waits. Where nothing else goes,
        an indivisible call goes whatever its size; one that waits is not overtaken."""
        if not tokens:
            return 0
        if divisible:
            return self._part(tokens, depth)
        if tokens > self._total and not self._empty:
            self._total = 0
            return None
        self._total, self._empty = self._total - tokens, False
        return tokens

    def _part(self, tokens: int, depth: int) -> int | None:
        price = 1 + depth / DEPTH
        most = min(tokens, self._total)
        if self._work is not None:
            most = min(most, max(int(self._work / price), 0 if self._begun else 1))
        if most < 1:
            return None
        self._total, self._empty, self._begun = self._total - most, False, True
        self._work = None if self._work is None else self._work - most * price
        return most


class Deferred:
    """Sequences whose ids are finished and whose entries were not made, in the order they came: each after those it
    reads. They hold what they read, and are given up with the last who may ask for them. Each is handed to `finished`
    as it comes. `sequences` has them by their entries, `refused` the errors of those that a guard refused."""

    def __init__(self, tiers: Tiers, finished: Callable[[Encoding], None]) -> None:
        self._tiers, self._finished = tiers, finished
        self.sequences: dict[KVEntry, Sequence] = {}
        self.refused: dict[KVEntry, Exception] = {}

    def __iter__(self) -> Iterator[Sequence]:
        return iter(list(self.sequences.values()))

    def __contains__(self, entry: object) -> bool:
        return entry in self.sequences

    def takes(self, call: Sequence) -> bool:
        """Whether a call is the shadow of a leader that has ended, has fed nothing, and lacks nothing to be encoded."""
        return call.late and all(entry in self.sequences for entry in call.lacks)

    def add(self, call: Sequence) -> EncodingId:
        """Take such a shadow, with what it holds: its id is finished."""
        words = call.speech.words()
        entry = KVEntry.of(Recipe(words.tokens, call.context, call.call.salt, "stepwise"))
        self._tiers.hold([entry])
        call.entry, call.words, call.status = entry, words, Status.DEFERRED
        self.sequences[entry] = call
        self._finished(Encoding(call.id, entry, words, call.context.receipt))
        return call.id

    def before(self, line: Iterable[Waiting], gone: Container[EncodingId]) -> Iterator[Waiting]:
        """A line in which each of them that is not `gone` comes right before a call that reads it and lacks nothing
        else, in its turn."""
        for waiting in line:
            if self.sequences and waiting.call.due:
                lacked = waiting.call.lacks
                if all(entry in self.sequences for entry in lacked):
                    yield from (waiting._replace(call=call) for call in self.among(lacked) if call.id not in gone)
            yield waiting

    def among(self, entries: Iterable[KVEntry]) -> list[Sequence]:
        """Those of these that are yet to be made, and of what they read, each after what it reads."""
        found, left = set[Sequence](), list(entries)
        while left:
            entry = left.pop()
            call = self.sequences.get(entry)
            if call is not None and call not in found and not entry.attendable:
                found.add(call)
                left += (piece.entry for piece in call.context.pieces)
        return [call for call in self if call in found] if found else []

    def hasten(self, pieces: Iterable[Piece], make: Callable[[KVEntry], None]) -> None:
        """Have those of these made that are yet to be, and what they read. `LeakageError`: a guard refuses it, or has
        refused one before; `RequestError`: one is not finished; what `make` raises. What is not made then is still
        deferred."""
        asked = list(pieces)
        late = self.among(piece.entry for piece in asked)
        made = {call.entry for call in late}
        for piece in (*(piece for call in late for piece in call.context.pieces), *asked):
            if not piece.entry.ready and piece.entry not in made:
                raise self.refused.get(piece.entry) or RequestError.parents(f"encoding {piece.id} is not finished")
        for call in late:
            call.ask()
        for call in late:
            make(call.own)
            self.settle([call.own])

    def refuse(self, call: Sequence, error: Exception) -> None:
        """Count it no more among them, where it is one: who reads it fails with the same error. It still holds what it
        reads."""
        if call.status is Status.DEFERRED:
            self.refused[call.own] = error
            del self.sequences[call.own]

    def keeps(self, call: Sequence, error: Exception) -> bool:
        """Whether a call that failed stays deferred: nobody refused it, so that it can be made when it is read
        again."""
        return call.status is Status.DEFERRED and not isinstance(error, LeakageError | CallbackFailed)

    def unmade(self, failed: Mapping[Sequence, Exception]) -> dict[KVEntry, Exception]:
        """The entries of those that failed and stay deferred, and of what is made from them, with their errors."""
        unmade = dict[KVEntry, Exception]()
        for call in self if failed else ():
            errors = (unmade.get(piece.entry) for piece in call.context.pieces)
            if error := failed.get(call) or next(filter(None, errors), None):
                unmade[call.own] = error
        return unmade

    def why(self, call: Sequence) -> Exception:
        """Why a call will never have all that it reads."""
        errors = (self.refused.get(piece.entry) for piece in call.reads)
        cancelled = RequestError.parents("a parent was cancelled before it was encoded")
        return next((error for error in errors if error is not None), cancelled)

    def put_back(self) -> None:
        """After a forward that failed: what was begun in it has to be begun anew."""
        for call in self:
            self._tiers.unpin(call)
            call.started = False
            if not call.own.ready:
                self._tiers.discard(call.own)
        self.settle(list(self.sequences))

    def release(self, entries: Iterable[KVEntry]) -> None:
        """Count one holder less of each, see `Tiers.release`; nothing is made for what has none."""
        given = list(entries)
        self._tiers.release(given)
        self.settle(given)

    def settle(self, entries: Iterable[KVEntry]) -> None:
        """Let go of those of these that were made, or that nobody may ask for any more, and then of what they held."""
        left = list(entries) if self.sequences or self.refused else []
        while left:
            entry = left.pop()
            if entry.ready or not entry.holders:
                self.refused.pop(entry, None)
                if (call := self.sequences.pop(entry, None)) is not None:
                    self._tiers.unpin(call)
                    held = call.holds
                    call.status = Status.FINISHED
                    self._tiers.release(held)
                    left += held
