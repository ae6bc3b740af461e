"""Queues of the scheduler: calls that wait for a forward, with the token budget of a forward, and deferred shadows.

The order of calls: by priority; then those that have begun; then those of the group that was served the fewest tokens
while any call waited, and in it of the workflow that was; then by arrival. Of equal prefills one is encoded for all,
with the highest of their priorities.

A shadow whose leader ended before the shadow fed anything is encoded when a call first reads it, in the same forward.
A short message, such as a vote, may never be read, so nothing is fed for its shadow before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from collections.abc import Sequence as Listed
from typing import NamedTuple

from agentcho.engine.cache import Encoding, TieredCache
from agentcho.engine.call_layout import ContextPiece, EncodingRecipe, KVEntry
from agentcho.engine.sequence import SHORT, STRIDE, Sequence, Status
from agentcho.errors import CallbackFailed, LeakageError, RequestError
from agentcho.protocol.call import EncodingId, SchedulingPriority

Share = tuple[str, ...]
"""A group, or a group and a workflow in it, to which tokens are served."""


class QueuedCall(NamedTuple):
    """A call in the queue, its turn (workflow and priority), and its number in the order of arrival. `spare`: the call
    was made and begun ahead of time, and other calls wait now; it goes on only if these find no room in the store, so
    that it finishes and gives its own room back."""

    call: Sequence
    turn: SchedulingPriority
    number: int
    spare: bool = False


class CallQueue:
    """The waiting calls, unordered. `line` orders them; calls of one workflow and priority keep their order of arrival,
    so that parents come before the calls that read them."""

    def __init__(self) -> None:
        self.waiting: list[QueuedCall] = []
        self._served: Counter[Share] = Counter()
        self._arrived = 0

    def __iter__(self) -> Iterator[Sequence]:
        return (each.call for each in self.waiting)

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, calls: Iterable[Sequence], turn: SchedulingPriority) -> None:
        """Add calls at the end of the queue. A group that had no waiting call starts level with the least served one
        that has, and gets no credit for the time when it did not wait. So does a workflow among those of its group."""
        here = set[Share]() if turn.ahead else self._here
        for share in [each for each in _shares(turn) if not turn.ahead and each not in here]:
            levels = [self._served[other] for other in here if other[:-1] == share[:-1]]
            self._served[share] = max(self._served[share], min(levels)) if levels else 0
        for call in calls:
            self.waiting.append(QueuedCall(call, turn, self._arrived))
            self._arrived += 1

    def line(self) -> list[QueuedCall]:
        """All waiting calls, the next one first. While other calls wait for a forward, calls that were made ahead of
        time are included only if another call needs the same entry, or, at the end, if they have begun."""
        wanted = [each for each in self.waiting if not each.turn.ahead]
        ahead = [each for each in self.waiting if each.turn.ahead]
        if not ahead or not any(each.call.entry is not None or each.call.due for each in wanted):
            return self._sorted(self.waiting)
        asked = {entry for each in wanted for entry in each.call.holds}
        twins = [each for each in ahead if each.call.own in asked]
        spare = [each._replace(spare=True) for each in ahead if each not in twins and each.call.started]
        return [*self._sorted([*wanted, *twins]), *spare]

    def _sorted(self, line: Iterable[QueuedCall]) -> list[QueuedCall]:
        highest: dict[KVEntry, int] = {}
        for call, turn, *_ in line:
            if call.entry is not None:
                highest[call.entry] = max(turn.priority, highest.get(call.entry, turn.priority))

        def place(waiting: QueuedCall) -> tuple[int, bool, int, int, int]:
            call, turn, number, _ = waiting
            priority = turn.priority if call.entry is None else highest[call.entry]
            group, workflow = _shares(turn)
            return -priority, not call.started, self._served[group], self._served[workflow], number

        return sorted(line, key=place)

    @property
    def _here(self) -> set[Share]:
        """The groups and workflows that have a call waiting."""
        turns = {each.turn for each in self.waiting}
        return {share for turn in turns if not turn.ahead for share in _shares(turn)}

    def serve(self, waiting: QueuedCall, tokens: int) -> None:
        """Count `tokens` tokens as served to the group and the workflow of a call, unless the call was made ahead of
        time."""
        for share in _shares(waiting.turn):
            self._served[share] += 0 if waiting.turn.ahead else tokens

    def put_back(self, waiting: QueuedCall) -> None:
        """Put a call back to its place in the queue from before it began."""
        self.waiting.append(waiting)

    def keep(self, wanted: Callable[[Sequence], bool]) -> None:
        """Keep only the calls that are `wanted`."""
        self.waiting = [each for each in self.waiting if wanted(each.call)]
        self._served = Counter({share: self._served[share] for share in self._here})


def _shares(turn: SchedulingPriority) -> tuple[Share, Share]:
    return (turn.group,), (turn.group, turn.workflow)


DEPTH = 1024
"""A token that attends to this many others costs about twice as much as one that attends to none, as measured on a
CPU."""


class TokenBudget(NamedTuple):
    """The number of tokens of one forward: at most `packed` in all. While decodes run, prefills get at most the work of
    `beside` tokens that attend to nothing, so that a long prefill does not delay the next tokens of all decodes.
    `strict`: that holds in a burst too."""

    packed: int
    beside: int
    strict: bool = False

    def room(self, fed: int, speaking: bool) -> ForwardRoom:
        """The room left in a forward that already feeds `fed` tokens. `speaking`: decodes run that must not be
        delayed."""
        return ForwardRoom(self.packed - fed, self.beside if speaking else None, empty=fed == 0)


class BurstDetector:
    """Detects bursts: at least two calls wait for their first token, and at least as many as decodes run. Prefills then
    get the whole forward, until no call waits. Otherwise the last ones would go on in the small parts that spare
    running decodes.

    The total work is the same. A running decode loses at once the time that it would lose bit by bit, and the waiting
    calls get their first tokens earlier.
    """

    def __init__(self) -> None:
        self.on = False

    def see(self, waiting: int, speaking: int) -> None:
        """Note the number of calls that wait for their first token, and the number of running decodes."""
        self.on = waiting > 0 and (self.on or waiting >= max(2, speaking))


class ForwardRoom:
    """The room left in one forward: `total` tokens, and the `work` of prefills, counted in tokens that attend to
    nothing (None: no bound)."""

    def __init__(self, total: int, work: float | None, empty: bool) -> None:
        self._total = total
        self._work = work
        self._empty = empty
        self._begun = False

    def take(self, tokens: int, divisible: bool, depth: int = 0) -> int | None:
        """The number of tokens of a call that go into this forward. The first of them attends to `depth` others. None
        if the call has to wait. An indivisible call goes at any size if the forward is empty; once one has to wait, no
        other call overtakes it."""
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
        self._total = self._total - most
        self._empty = False
        self._begun = True
        self._work = None if self._work is None else self._work - most * price
        return most


def take_turns(rows: Listed[Sequence], exact: bool) -> None:
    """Decide how many tokens each shadow among these decodes and shadows feeds in the next forward (`portion`).

    - All shadows together feed at most `STRIDE` tokens, or as many as their leaders feed in this forward if that is
      more, so that they keep up with their leaders and delay no decode. The shadow that is furthest behind goes first.
    - None feeds in the forward of its leader's first token, which must not be delayed, or before the message is longer
      than `SHORT`. Each feeds all that is left when its leader has ended, unless it is late.
    - `exact`: what a shadow feeds depends on its leader alone, and late shadows are fed like all others.
    """
    shadows = [row for row in rows if row.leader is not None]
    room = max(STRIDE, sum(len(leader.feed) for shadow in shadows if (leader := shadow.leader) and leader.fed))
    for shadow in sorted(shadows, key=lambda each: (-each.lacking, each.id)):
        shadow.portion, most, leader = 0, STRIDE if exact else room, shadow.leader
        if shadow.speech.stopped is not None:
            shadow.portion = shadow.lacking if exact or not shadow.late else 0
        elif leader and leader.fed and min(most, shadow.lacking) >= STRIDE and (shadow.fed or shadow.lacking > SHORT):
            shadow.portion = min(most, shadow.lacking)
            room -= shadow.portion


class DeferredShadows:
    """Shadows whose ids are finished and whose entries are not made, in order of arrival, so that each comes after
    those that it reads. They hold what they read, and are given up when nothing can reach them any more. Each is passed
    to `finished` when it is added.

    `sequences`: the shadows by their entries. `refused`: the errors of those that a guard refused.
    """

    def __init__(self, tiers: TieredCache, finished: Callable[[Encoding], None]) -> None:
        self._tiers, self._finished = tiers, finished
        self.sequences: dict[KVEntry, Sequence] = {}
        self.refused: dict[KVEntry, Exception] = {}

    def __iter__(self) -> Iterator[Sequence]:
        return iter(list(self.sequences.values()))

    def __contains__(self, entry: object) -> bool:
        return entry in self.sequences

    def takes(self, call: Sequence) -> bool:
        """Whether a call is a late shadow that lacks nothing except other deferred shadows."""
        return call.late and all(entry in self.sequences for entry in call.lacks)

    def add(self, call: Sequence) -> EncodingId:
        """Defer a late shadow: its id is finished, and it keeps holding what it reads. Returns its id."""
        words = call.speech.words()
        entry = KVEntry.of(EncodingRecipe(words.tokens, call.context, call.call.salt, "stepwise"))
        self._tiers.hold([entry])
        call.entry = entry
        call.words = words
        call.status = Status.DEFERRED
        call.leader = call.generation = None  # frees their memory
        self.sequences[entry] = call
        self._finished(Encoding(call.id, entry, words, call.context.receipt))
        return call.id

    def before(self, line: Iterable[QueuedCall], gone: Container[EncodingId]) -> Iterator[QueuedCall]:
        """The line, with each deferred shadow (unless it is `gone`) right before the first call that reads it and lacks
        nothing except deferred shadows."""
        for waiting in line:
            if self.sequences and waiting.call.due:
                lacked = waiting.call.lacks
                if all(entry in self.sequences for entry in lacked):
                    yield from (waiting._replace(call=call) for call in self.among(lacked) if call.id not in gone)
            yield waiting

    def among(self, entries: Iterable[KVEntry]) -> list[Sequence]:
        """The deferred shadows among these entries and all that they read, each after those that it reads."""
        found, left = set[Sequence](), list(entries)
        while left:
            entry = left.pop()
            call = self.sequences.get(entry)
            if call is not None and call not in found and not entry.attendable:
                found.add(call)
                left += (piece.entry for piece in call.context.pieces)
        return [call for call in self if call in found] if found else []

    def hasten(self, pieces: Iterable[ContextPiece], make: Callable[[KVEntry], None]) -> None:
        """Make all deferred shadows among these pieces now, and those that they read.

        Raises `LeakageError` if a guard refuses one of them or did before, `RequestError` if one of the pieces is not
        finished, and what `make` raises. Those that are not made then stay deferred.
        """
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
        """Remove a shadow that a guard refused from the deferred ones: calls that read it fail with the same error. It
        keeps holding what it reads. Does nothing for any other call."""
        if call.status is Status.DEFERRED:
            self.refused[call.own] = error
            del self.sequences[call.own]

    def keeps(self, call: Sequence, error: Exception) -> bool:
        """Whether a failed shadow stays deferred, to be made when it is read again. It does unless a guard refused
        it."""
        return call.status is Status.DEFERRED and not isinstance(error, LeakageError | CallbackFailed)

    def unmade(self, failed: Mapping[Sequence, Exception]) -> dict[KVEntry, Exception]:
        """The entries that could not be made because of these failures, each with its error: those of the failed
        shadows, and of the shadows that read them."""
        unmade = dict[KVEntry, Exception]()
        for call in self if failed else ():
            errors = (unmade.get(piece.entry) for piece in call.context.pieces)
            if error := failed.get(call) or next(filter(None, errors), None):
                unmade[call.own] = error
        return unmade

    def why(self, call: Sequence) -> Exception:
        """The error of a call that can never get all that it reads."""
        errors = (self.refused.get(piece.entry) for piece in call.reads)
        cancelled = RequestError.parents("a parent was cancelled before it was encoded")
        return next((error for error in errors if error is not None), cancelled)

    def put_back(self) -> None:
        """Reset the deferred shadows that a failed forward began."""
        for call in self:
            self._tiers.unpin(call)
            call.started = False
            if not call.own.ready:
                self._tiers.discard(call.own)
        self.settle(list(self.sequences))

    def release(self, entries: Iterable[KVEntry]) -> None:
        """Count one holder less of each entry (see `TieredCache.release`), and give up the deferred shadows without
        holders."""
        given = list(entries)
        self._tiers.release(given)
        self.settle(given)

    def settle(self, entries: Iterable[KVEntry]) -> None:
        """Let go of those deferred shadows that were made or have no holders left, and then of those that only they
        held."""
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
