"""Checks a call against what is there and makes it ready to run: ids, positions, room. All or nothing.

Does not know: whether its values are of the right kind (`checks`), how and when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple
from weakref import WeakValueDictionary

from agentcho.calls.call import Call, Decode, Encoded, EncodingId, First, Most, Prefill, Repair, Sampling, Shadow
from agentcho.engine.assembly import Assembly
from agentcho.engine.constraint import Choices, Constraint, Grammars
from agentcho.engine.encoding import Context, Piece, Recipe, Storage, check_fits, place
from agentcho.engine.follower import Follower
from agentcho.engine.framing import Framing
from agentcho.engine.pending import Pending, PendingDecode, PendingPrefill, PendingRepair, held, longest, needed
from agentcho.engine.row import Row
from agentcho.engine.tiers import Tiers
from agentcho.errors import BadParent, RequestError


class Local(NamedTuple):
    """A call of the same list as a parent: its id, storage and words; of a repair, its base too."""

    id: EncodingId
    storage: Storage
    words: Encoded
    base: Piece | None


class Placed(NamedTuple):
    """A call's own ids as far as they are known, and its context."""

    opening: tuple[int, ...]
    content: tuple[int, ...]
    closing: tuple[int, ...]
    context: Context


class Admission:
    """Turns calls into pending ones. `parent(id)` gives the storage of a finished or waiting encoding, or raises;
    `words(id)` the words of a finished one. `origin` names what computes: it is part of every key."""

    def __init__(
        self, framing: Framing, grammars: Grammars, tiers: Tiers, assembly: Assembly, limit: int, bos: Piece | None,
        parent: Callable[[EncodingId], Storage], words: Callable[[EncodingId], Encoded], origin: str,
    ) -> None:  # fmt: skip
        self._origin, self._framing, self._grammars = origin, framing, grammars
        self._tiers, self._assembly = tiers, assembly
        self._limit, self._bos, self._parent, self._words = limit, bos, parent, words
        self._shared: WeakValueDictionary[bytes, Storage] = WeakValueDictionary()

    def admit(self, calls: Sequence[Call], new_id: Callable[[], EncodingId]) -> list[Pending]:
        """Admit a whole list, or raise with nothing held."""
        admitted: list[Pending] = []
        local: dict[int, Local] = {}
        rows: dict[int, PendingDecode] = {}
        try:
            for call in calls:
                pending = self._admit(call, local, rows, new_id)
                admitted.append(pending)
                if isinstance(pending, PendingPrefill):
                    base = pending.base if isinstance(pending, PendingRepair) else None
                    local[id(call)] = Local(pending.id, pending.storage, pending.words, base)
                else:
                    rows[id(call)] = pending
        except BaseException:
            for pending in admitted:
                self.withdraw(pending)
            raise
        return admitted

    def withdraw(self, pending: Pending) -> None:
        """Give back what an admitted call that never ran holds."""
        self._tiers.release(held(pending))

    def place(self, call: Prefill | Decode, local: Mapping[int, Local] | None = None) -> Placed:
        """Frame and tokenise a call and resolve its context, holding nothing."""
        role = call.role if isinstance(call, Prefill) else "assistant"
        opening, closing = self._framing.opening(role, call.name), self._framing.closing(role)
        return Placed(opening, self._content(call), closing, self._context(call, local or {}))

    def _context(self, call: Call, local: Mapping[int, Local]) -> Context:
        parents = [self._resolve(parent, local) for parent in call.parents]
        return place(self._bos, parents, call.offsets, call.new_offset)._replace(origin=self._origin)

    def _admit(
        self, call: Call, local: Mapping[int, Local], rows: Mapping[int, PendingDecode],
        new_id: Callable[[], EncodingId],
    ) -> Pending:  # fmt: skip
        match call:
            case Prefill():
                pending: Pending = self._prefill(call, self.place(call, local), new_id)
            case Decode():
                pending = self._decode(call, self.place(call, local), new_id)
            case Shadow():
                pending = self._shadow(call, self._context(call, local), rows.get(id(call.of)), new_id)
            case Repair():
                pending = self._repair(call, local, new_id)
        own = longest(pending)
        self._assembly.check(needed(pending), own, pending.context.length + own)
        self._tiers.hold(held(pending))
        return pending

    def _shadow(
        self, call: Shadow, context: Context, leader: PendingDecode | None, new_id: Callable[[], EncodingId]
    ) -> PendingDecode:
        if leader is None or not isinstance(leader.row, Row):
            raise BadParent("a Shadow follows a Decode that does not stand earlier in the same list")
        check_fits(context, leader.row.longest, self._limit)
        return PendingDecode(Follower(new_id(), call, context, leader.row), leader.row.longest)

    def _prefill(self, call: Prefill, placed: Placed, new_id: Callable[[], EncodingId]) -> PendingPrefill:
        tokens = placed.opening + placed.content + placed.closing
        check_fits(placed.context, len(tokens), self._limit)
        begin = len(placed.opening)
        words = Encoded(
            call.role, call.name, "", self._said(call), tokens, (begin, begin + len(placed.content)), None, None,
            call.tokens is None or self._framing.content.spells(call.tokens, self._said(call)),
        )  # fmt: skip
        storage = self._storage(Recipe(tokens, placed.context, call.salt))
        return PendingPrefill(new_id(), placed.context, storage, words, call.guard)

    def _repair(self, call: Repair, local: Mapping[int, Local], new_id: Callable[[], EncodingId]) -> PendingRepair:
        base, context = self._resolve(call.of, local), self._context(call, local)
        words = self._words(call.of) if isinstance(call.of, int) else local[id(call.of)].words
        check_fits(context, len(words.tokens), self._limit)
        count = self._count(call.choose, len(words.tokens))
        first = isinstance(call.choose, First)
        judged = None if first else self._judged(call, context, local)
        piece, places = Piece(base[0], base[1], context.start), tuple(range(count)) if first else ()
        recipe = Recipe(
            words.tokens, context, call.salt, base=piece, choose=call.choose, places=places,
            judged=judged.key((), "", "whole") if judged else b"",
        )  # fmt: skip
        words = words._replace(sampled=None, stopped=None)
        return PendingRepair(
            new_id(), context, self._storage(recipe), words, call.guard, piece, count, judged, places,
        )  # fmt: skip

    @staticmethod
    def _count(choose: First | Most, length: int) -> int:
        """How many tokens are encoded anew."""
        return min(length, choose.tokens if isinstance(choose, First) else ceil(choose.share * length))

    def _judged(self, call: Repair, context: Context, local: Mapping[int, Local]) -> Context:
        """The same places, each held by what is reused there: of a repaired parent its base, which is stored."""
        bos = len(context.pieces) - len(call.parents)
        bases = [local[id(p)].base if isinstance(p, Repair) else None for p in call.parents]
        pieces = [
            piece if base is None else Piece(base.id, base.storage, piece.offset)
            for piece, base in zip(context.pieces[bos:], bases, strict=True)
        ]
        return Context((*context.pieces[:bos], *pieces), context.start)

    def _said(self, call: Prefill) -> str:
        return call.text if call.tokens is None else self._framing.content.decode(call.tokens)

    def _storage(self, recipe: Recipe) -> Storage:
        """That of an equal call, in whichever tier it is, or a new one, to be made in the forward of the call. One that
        nobody holds any more would be made again before that, in a forward of its own."""
        storage = recipe.storage()
        known = self._shared.get(storage.key)
        if known is not None and known.holders:
            return known
        self._shared[storage.key] = storage
        return storage

    def _decode(self, call: Decode, placed: Placed, new_id: Callable[[], EncodingId]) -> PendingDecode:
        most = call.sampling.max_tokens if call.forced is None else len(call.forced)
        own = len(placed.opening) + len(placed.content) + most + len(placed.closing)
        check_fits(placed.context, own, self._limit)
        constraint = self._constraint(call.sampling, placed.closing[0]) if call.forced is None else None
        row = Row(
            new_id(), call, placed.context, placed.opening, placed.content, placed.closing,
            self._framing.stops, self._framing.content, constraint, own,
        )  # fmt: skip
        return PendingDecode(row, own)

    def _constraint(self, sampling: Sampling, stop: int) -> Constraint | None:
        if sampling.choices is not None:
            return Choices([self._framing.content.encode(c) for c in sampling.choices], stop, sampling.max_tokens)
        if sampling.json_schema is not None:
            return self._grammars.json(sampling.json_schema, sampling.max_tokens)
        return None

    def _content(self, call: Prefill | Decode) -> tuple[int, ...]:
        """A prefill's text, or a decode's header, as ids that hold no special token."""
        if isinstance(call, Decode):
            self.refuse_special(call.forced or ())
            return tuple(self._framing.content.encode(call.header))
        if call.tokens is None:
            return tuple(self._framing.content.encode(call.text))
        self.refuse_special(call.tokens)
        return tuple(call.tokens)

    def refuse_special(self, tokens: Sequence[int]) -> None:
        """`RequestError`: one of these is no content's."""
        forged = self._framing.content.forbidden.intersection(tokens)
        if forged:
            raise RequestError(f"token ids {sorted(forged)} are special and cannot be content; leave framing out")

    def _resolve(self, parent: EncodingId | Prefill | Repair, local: Mapping[int, Local]) -> tuple[EncodingId, Storage]:
        if isinstance(parent, Prefill | Repair):
            if id(parent) not in local:
                raise BadParent(f"a {type(parent).__name__} is named as parent and does not stand earlier in the list")
            return local[id(parent)][:2]
        return parent, self._parent(parent)
