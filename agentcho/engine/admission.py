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
from agentcho.engine.encoding import Context, Piece, Recipe, Storage
from agentcho.engine.follower import Follower
from agentcho.engine.layout import Layout, Rules, layout
from agentcho.engine.pending import Pending, PendingDecode, PendingPrefill, PendingRepair, held, longest, needed
from agentcho.engine.row import Row
from agentcho.engine.template import Framing
from agentcho.errors import BadParent


class Local(NamedTuple):
    """A call of the same list as a parent: its id, storage and words; of a repair, its base too."""

    id: EncodingId
    storage: Storage
    words: Encoded
    base: Piece | None


class Admission:
    """Turns calls into pending ones. `parent(id)` gives the storage of a finished or waiting encoding, or raises;
    `words(id)` the words of a finished one."""

    def __init__(
        self,
        rules: Rules,
        framing: Framing,
        grammars: Grammars,
        assembly: Assembly,
        parent: Callable[[EncodingId], Storage],
        words: Callable[[EncodingId], Encoded],
    ) -> None:
        self._rules, self._framing, self._grammars = rules, framing, grammars
        self._assembly, self._parent, self._words = assembly, parent, words
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
        self._assembly.tiers.release(held(pending))

    def layout(self, call: Call, local: Mapping[int, Local] | None = None, own: int = 0) -> Layout:
        """See `layout`, over parents that are stored or in the same list."""
        return layout(self._rules, call, [self._resolve(parent, local or {}) for parent in call.parents], own)

    def _admit(
        self,
        call: Call,
        local: Mapping[int, Local],
        rows: Mapping[int, PendingDecode],
        new_id: Callable[[], EncodingId],
    ) -> Pending:
        match call:
            case Prefill():
                pending: Pending = self._prefill(call, self.layout(call, local), new_id)
            case Decode():
                pending = self._decode(call, self.layout(call, local), new_id)
            case Shadow():
                pending = self._shadow(call, local, rows.get(id(call.of)), new_id)
            case Repair():
                pending = self._repair(call, local, new_id)
        own = longest(pending)
        self._assembly.check(needed(pending), own, pending.context.length + own)
        self._assembly.tiers.hold(held(pending))
        return pending

    def _shadow(
        self,
        call: Shadow,
        local: Mapping[int, Local],
        leader: PendingDecode | None,
        new_id: Callable[[], EncodingId],
    ) -> PendingDecode:
        if leader is None or not isinstance(leader.row, Row):
            raise BadParent("a Shadow follows a Decode that does not stand earlier in the same list")
        placed = self.layout(call, local, leader.longest)
        return PendingDecode(Follower(new_id(), call, placed.context, leader.row), placed.longest)

    def _prefill(self, call: Prefill, placed: Layout, new_id: Callable[[], EncodingId]) -> PendingPrefill:
        assert placed.words is not None
        storage = self._storage(Recipe(placed.words.tokens, placed.context, call.salt))
        return PendingPrefill(new_id(), placed.context, storage, placed.words, call.guard)

    def _repair(self, call: Repair, local: Mapping[int, Local], new_id: Callable[[], EncodingId]) -> PendingRepair:
        base = self._resolve(call.of, local)
        words = self._words(call.of) if isinstance(call.of, int) else local[id(call.of)].words
        context = self.layout(call, local, len(words.tokens)).context
        count = self._count(call.choose, len(words.tokens))
        first = isinstance(call.choose, First)
        judged = None if first else self._judged(call, context, local)
        piece, places = Piece(base[0], base[1], context.start), tuple(range(count)) if first else ()
        recipe = Recipe(
            words.tokens,
            context,
            call.salt,
            base=piece,
            choose=call.choose,
            places=places,
            judged=judged.key((), "", "whole") if judged else b"",
        )
        words = words._replace(sampled=None, stopped=None)
        return PendingRepair(new_id(), context, self._storage(recipe), words, call.guard, piece, count, judged, places)

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

    def _storage(self, recipe: Recipe) -> Storage:
        """That of an equal call, in whichever tier it is, or a new one, to be made in the forward of the call. One that
        nobody holds any more would be made again before that, in a forward of its own."""
        storage = recipe.storage()
        known = self._shared.get(storage.key)
        if known is not None and known.holders:
            return known
        self._shared[storage.key] = storage
        return storage

    def _decode(self, call: Decode, placed: Layout, new_id: Callable[[], EncodingId]) -> PendingDecode:
        constraint = self._constraint(call.sampling, placed.framed.closing[0]) if call.forced is None else None
        return PendingDecode(Row(new_id(), call, placed, self._framing, constraint), placed.longest)

    def _constraint(self, sampling: Sampling, stop: int) -> Constraint | None:
        if sampling.choices is not None:
            return Choices([self._framing.content.encode(c) for c in sampling.choices], stop, sampling.max_tokens)
        if sampling.json_schema is not None:
            return self._grammars.json(sampling.json_schema, sampling.max_tokens)
        return None

    def _resolve(self, parent: EncodingId | Prefill | Repair, local: Mapping[int, Local]) -> tuple[EncodingId, Storage]:
        if isinstance(parent, Prefill | Repair):
            if id(parent) not in local:
                raise BadParent(f"a {type(parent).__name__} is named as parent and does not stand earlier in the list")
            return local[id(parent)][:2]
        return parent, self._parent(parent)
