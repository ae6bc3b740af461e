"""Checks a call against what is there and makes it ready to run: ids, positions, room. All or nothing.

Does not know: whether its values are of the right kind (`checks`), how and when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from weakref import WeakValueDictionary

from agentcho.calls.call import Call, Decode, EncodingId, First, Most, Prefill, Repair, Shadow
from agentcho.engine.assembly import Assembly
from agentcho.engine.base import Constraint, Template
from agentcho.engine.encoding import Context, Piece, Recipe, Storage
from agentcho.engine.layout import Layout, Rules, layout
from agentcho.engine.sequence import Generation, Reuse, Sequence
from agentcho.errors import RequestError
from agentcho.message import Words

Local = Mapping[int, Sequence]
"""The calls of the same list that were admitted already, each by the `id()` of the call."""


class Admission:
    """Turns calls into sequences. `parent(id)` gives the storage of a finished or waiting encoding, or raises;
    `words(id)` the words of a finished one."""

    def __init__(
        self,
        rules: Rules,
        template: Template,
        constrain: Callable[[Decode, Local], Constraint | None],
        assembly: Assembly,
        parent: Callable[[EncodingId], Storage],
        words: Callable[[EncodingId], Words],
    ) -> None:
        self._rules, self._template, self._constrain = rules, template, constrain
        self._assembly, self._parent, self._words = assembly, parent, words
        self._shared: WeakValueDictionary[bytes, Storage] = WeakValueDictionary()

    def admit(self, calls: Iterable[Call], new_id: Callable[[], EncodingId]) -> list[Sequence]:
        """Admit a whole list, or raise with nothing held."""
        admitted: dict[int, Sequence] = {}
        try:
            for call in calls:
                admitted[id(call)] = self._admit(call, admitted, new_id)
        except BaseException:
            for sequence in admitted.values():
                self._assembly.tiers.release(sequence.holds)
            raise
        return list(admitted.values())

    def layout(self, call: Call, local: Local | None = None, own: int = 0) -> Layout:
        """See `layout`, over parents that are stored or in the same list."""
        return layout(self._rules, call, [self._resolve(parent, local or {}) for parent in call.parents], own)

    def _admit(self, call: Call, local: Local, new_id: Callable[[], EncodingId]) -> Sequence:
        match call:
            case Prefill():
                sequence = self._prefill(call, self.layout(call, local), new_id)
            case Decode():
                sequence = self._decode(call, self.layout(call, local), local, new_id)
            case Shadow():
                sequence = self._shadow(call, local, new_id)
            case Repair():
                sequence = self._repair(call, local, new_id)
        self._assembly.check(sequence.needs, sequence.grows, sequence.context.length + sequence.grows)
        self._assembly.tiers.hold(sequence.holds)
        return sequence

    def _prefill(self, call: Prefill, placed: Layout, new_id: Callable[[], EncodingId]) -> Sequence:
        assert placed.words is not None
        entry = self._storage(Recipe(placed.words.tokens, placed.context, call.salt))
        return Sequence(new_id(), call, placed.context, placed.longest, placed.words, entry)

    def _decode(self, call: Decode, placed: Layout, local: Local, new_id: Callable[[], EncodingId]) -> Sequence:
        constraint = self._constrain(call, local) if call.forced is None else None
        id = new_id()
        generation = Generation(id, call, placed, self._template, constraint)
        return Sequence(id, call, placed.context, placed.longest, generation=generation)

    def _shadow(self, call: Shadow, local: Local, new_id: Callable[[], EncodingId]) -> Sequence:
        leader = local.get(id(call.of))
        if leader is None or leader.generation is None or leader.leader is not None:
            raise RequestError.parents("a Shadow follows a Decode that does not stand earlier in the same list")
        placed = self.layout(call, local, leader.longest)
        return Sequence(new_id(), call, placed.context, placed.longest, generation=leader.generation, leader=leader)

    def _repair(self, call: Repair, local: Local, new_id: Callable[[], EncodingId]) -> Sequence:
        base = self._resolve(call.of, local)
        words = self._words(call.of) if isinstance(call.of, int) else local[id(call.of)].words
        assert words is not None
        placed = self.layout(call, local, len(words.tokens))
        context, count = placed.context, self._count(call.choose, len(words.tokens))
        first = isinstance(call.choose, First)
        judged = None if first else self._judged(call, context, local)
        reuse = Reuse(Piece(base[0], base[1], context.start), count, judged, tuple(range(count)) if first else ())
        recipe = Recipe(
            words.tokens,
            context,
            call.salt,
            base=reuse.base,
            choose=call.choose,
            places=tuple(reuse.places),
            judged=judged.key((), "", "whole") if judged else b"",
        )
        words = words._replace(sampled=None, stopped=None)
        return Sequence(new_id(), call, context, placed.longest, words, self._storage(recipe), reuse)

    @staticmethod
    def _count(choose: First | Most, length: int) -> int:
        """How many tokens are encoded anew."""
        return min(length, choose.tokens if isinstance(choose, First) else ceil(choose.share * length))

    def _judged(self, call: Repair, context: Context, local: Local) -> Context:
        """The same places, each held by what is reused there: of a repaired parent its base, which is stored."""
        bos = len(context.pieces) - len(call.parents)
        repairs = [local[id(parent)].repair if isinstance(parent, Repair) else None for parent in call.parents]
        pieces = [
            piece if repair is None else Piece(repair.base.id, repair.base.storage, piece.offset)
            for piece, repair in zip(context.pieces[bos:], repairs, strict=True)
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

    def _resolve(self, parent: EncodingId | Prefill | Repair, local: Local) -> tuple[EncodingId, Storage]:
        if isinstance(parent, Prefill | Repair):
            if id(parent) not in local:
                raise RequestError.parents(
                    f"a {type(parent).__name__} is named as parent and does not stand earlier in the list"
                )
            return local[id(parent)].id, local[id(parent)].own
        return parent, self._parent(parent)
