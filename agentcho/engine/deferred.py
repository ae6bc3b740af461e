"""Shadows whose leaders ended before they fed anything: they are encoded when they are first read, in that forward.

Nobody may ever read what was said in few words, such as a vote, so nothing is fed for it until somebody does. Does not
know: how calls are checked, how a forward computes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from agentcho.calls.call import EncodingId
from agentcho.engine.encoding import Encoding, Piece, Recipe, Storage
from agentcho.engine.queue import Waiting
from agentcho.engine.sequence import Sequence, Status
from agentcho.engine.tiers import Tiers
from agentcho.errors import CallbackFailed, LeakageError, RequestError


class Deferred:
    """Sequences whose ids are finished and whose entries were not made, in the order they came: each after those it
    reads. They hold what they read, and are given up with the last who may ask for them. Each is handed to `finished`
    as it comes. `sequences` has them by their entries, `refused` the errors of those that a guard refused."""

    def __init__(self, tiers: Tiers, finished: Callable[[Encoding], None]) -> None:
        self._tiers, self._finished = tiers, finished
        self.sequences: dict[Storage, Sequence] = {}
        self.refused: dict[Storage, Exception] = {}

    def __iter__(self) -> Iterator[Sequence]:
        return iter(list(self.sequences.values()))

    def __contains__(self, storage: object) -> bool:
        return storage in self.sequences

    def takes(self, call: Sequence) -> bool:
        """Whether a call is the shadow of a leader that has ended, has fed nothing, and lacks nothing to be encoded."""
        return call.late and all(storage in self.sequences for storage in call.lacks)

    def add(self, call: Sequence) -> EncodingId:
        """Take such a shadow, with what it holds: its id is finished."""
        words = call.speech.words()
        entry = Recipe(words.tokens, call.context, call.call.salt, "stepwise").storage()
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
                if all(storage in self.sequences for storage in lacked):
                    yield from (waiting._replace(call=call) for call in self.among(lacked) if call.id not in gone)
            yield waiting

    def among(self, storages: Iterable[Storage]) -> list[Sequence]:
        """Those of these that are yet to be made, and of what they read, each after what it reads."""
        found, left = set[Sequence](), list(storages)
        while left:
            storage = left.pop()
            call = self.sequences.get(storage)
            if call is not None and call not in found and not storage.attendable:
                found.add(call)
                left += (piece.storage for piece in call.context.pieces)
        return [call for call in self if call in found] if found else []

    def hasten(self, pieces: Iterable[Piece], make: Callable[[Storage], None]) -> None:
        """Have those of these made that are yet to be, and what they read. `LeakageError`: a guard refuses it, or has
        refused one before; `RequestError`: one is not finished; what `make` raises. What is not made then is still
        deferred."""
        asked = list(pieces)
        late = self.among(piece.storage for piece in asked)
        made = {call.entry for call in late}
        for piece in (*(piece for call in late for piece in call.context.pieces), *asked):
            if not piece.storage.ready and piece.storage not in made:
                raise self.refused.get(piece.storage) or RequestError.parents(f"encoding {piece.id} is not finished")
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

    def unmade(self, failed: Mapping[Sequence, Exception]) -> dict[Storage, Exception]:
        """The entries of those that failed and stay deferred, and of what is made from them, with their errors."""
        unmade = dict[Storage, Exception]()
        for call in self if failed else ():
            errors = (unmade.get(piece.storage) for piece in call.context.pieces)
            if error := failed.get(call) or next(filter(None, errors), None):
                unmade[call.own] = error
        return unmade

    def why(self, call: Sequence) -> Exception:
        """Why a call will never have all that it reads."""
        errors = (self.refused.get(piece.storage) for piece in call.reads)
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

    def release(self, storages: Iterable[Storage]) -> None:
        """Count one holder less of each, see `Tiers.release`; nothing is made for what has none."""
        given = list(storages)
        self._tiers.release(given)
        self.settle(given)

    def settle(self, storages: Iterable[Storage]) -> None:
        """Let go of those of these that were made, or that nobody may ask for any more, and then of what they held."""
        left = list(storages) if self.sequences or self.refused else []
        while left:
            storage = left.pop()
            if storage.ready or not storage.holders:
                self.refused.pop(storage, None)
                if (call := self.sequences.pop(storage, None)) is not None:
                    self._tiers.unpin(call)
                    held = call.holds
                    call.status = Status.FINISHED
                    self._tiers.release(held)
                    left += held
