"""Shadows whose leaders ended before they fed anything: they are encoded when they are first read, in that forward.

Nobody may ever read what was said in few words, such as a vote, so nothing is fed for it until somebody does. Does not
know: how calls are checked, how a forward computes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from agentcho.calls.call import EncodingId
from agentcho.engine.encoding import Encoding, Piece, Recipe, Storage
from agentcho.engine.pending import Pending, PendingDecode, PendingShadow, ask, due, gathered, held
from agentcho.engine.queue import Waiting
from agentcho.engine.tiers import Tiers
from agentcho.errors import BadParent


class Postponed:
    """Encodings that ids name and that were not made, in the order they came: each after those it reads. They hold what
    they read, and are given up with the last who may ask for them. Each is handed to `finished` as it comes."""

    def __init__(self, tiers: Tiers, finished: Callable[[Encoding], None]) -> None:
        self._tiers, self._finished = tiers, finished
        self._calls: dict[Storage, PendingShadow] = {}
        self._refused: dict[Storage, Exception] = {}

    def __iter__(self) -> Iterator[PendingShadow]:
        return iter(list(self._calls.values()))

    def __contains__(self, storage: object) -> bool:
        return storage in self._calls

    def takes(self, call: Pending) -> bool:
        """Whether a call is the shadow of a leader that has ended, has fed nothing, and lacks nothing to be encoded."""
        if not isinstance(call, PendingDecode) or not call.row.late:
            return False
        return all(piece.storage.attendable or piece.storage in self._calls for piece in gathered(call))

    def add(self, call: PendingDecode) -> EncodingId:
        """Take such a shadow, with what it holds: its id is finished."""
        row = call.row
        storage = Recipe(row.tokens(), row.context, row.call.salt, "stepwise").storage()
        self._tiers.hold([storage])
        self._calls[storage] = PendingShadow(row.id, row.context, storage, row.words(), call.guard)
        self._finished(Encoding(row.id, storage, row.words(), row.context.receipt))
        return row.id

    def before(self, line: Iterable[Waiting], gone: Container[EncodingId]) -> Iterator[Waiting]:
        """A line in which each of them that is not `gone` comes right before a call that reads it and lacks nothing
        else, in its turn."""
        for waiting in line:
            if due(waiting.call):
                lacked = [piece.storage for piece in gathered(waiting.call) if not piece.storage.attendable]
                if all(storage in self._calls for storage in lacked):
                    yield from (waiting._replace(call=call) for call in self.among(lacked) if call.id not in gone)
            yield waiting

    def among(self, storages: Iterable[Storage]) -> list[PendingShadow]:
        """Those of these that are yet to be made, and of what they read, each after what it reads."""
        found, left = set[PendingShadow](), list(storages)
        while left:
            storage = left.pop()
            if storage in self._calls and self._calls[storage] not in found and not storage.attendable:
                found.add(self._calls[storage])
                left += (piece.storage for piece in self._calls[storage].context.pieces)
        return [call for call in self if call in found] if found else []

    def hasten(self, pieces: Sequence[Piece], make: Callable[[Storage], None]) -> None:
        """Have those of these made that are yet to be, and what they read. `LeakageError`: a guard refuses it, or has
        refused one before; `BadParent`: one is not finished; what `make` raises. What is not made then is still
        postponed."""
        late = self.among(piece.storage for piece in pieces)
        made = {call.storage for call in late}
        for piece in (*(piece for call in late for piece in call.context.pieces), *pieces):
            if not piece.storage.ready and piece.storage not in made:
                raise self._refused.get(piece.storage) or BadParent(f"encoding {piece.id} is not finished")
        for call in late:
            ask(call)
        for call in late:
            make(call.storage)
            self.settle([call.storage])

    def refuse(self, call: Pending, error: Exception) -> None:
        """Count it no more among them, where it is one: who reads it fails with the same error. It still holds what it
        reads."""
        if isinstance(call, PendingShadow):
            self._refused[call.storage] = error
            del self._calls[call.storage]

    def why(self, call: Pending) -> Exception:
        """Why a call will never have all that it reads."""
        errors = (self._refused.get(piece.storage) for piece in gathered(call))
        cancelled = BadParent("a parent was cancelled before it was encoded")
        return next((error for error in errors if error is not None), cancelled)

    def put_back(self) -> None:
        """After a forward that failed: what was begun in it has to be begun anew."""
        for call in self:
            self._tiers.unpin(call)
            call.started = False
            if not call.storage.ready:
                self._tiers.discard(call.storage)
        self.settle(list(self._calls))

    def release(self, storages: Sequence[Storage]) -> None:
        """Count one holder less of each, see `Tiers.release`; nothing is made for what has none."""
        self._tiers.release(storages)
        self.settle(storages)

    def settle(self, storages: Iterable[Storage]) -> None:
        """Let go of those of these that were made, or that nobody may ask for any more, and then of what they held."""
        left = list(storages)
        while left:
            storage = left.pop()
            if storage.ready or not storage.holders:
                self._refused.pop(storage, None)
                if (call := self._calls.pop(storage, None)) is not None:
                    self._tiers.unpin(call)
                    self._tiers.release(held(call))
                    left += held(call)
