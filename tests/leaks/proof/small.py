"""One play of a small workflow, message by message and back again: the real resolver, monitor and ledger on an engine
of sets. In a reader's own play, what it may not read has other and longer words, or is absent.

Independent of how workflows are enumerated and of what must hold for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from agentcho.config import ReusePolicy
from agentcho.errors import AgentchoError
from agentcho.message import Audience, Message, Metadata, Words
from agentcho.protocol.call import EncodingId
from agentcho.provenance.call_plans import Key
from agentcho.provenance.drafts import Draft
from agentcho.provenance.labels import EncodingRecord, Ledger, Recipe
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.views import Read, ReadSet

from ..sets import Sets
from .scope import Said

NAMES = ("ann", "bob", "cid", "dot")
MOST = 20_000
"""The number of calls after which a new engine is used."""
Secrets = Literal["as said", "others", "absent"]


class Made(NamedTuple):
    """One encoding made in a step: its key, its record, and the messages that went into it, as bits."""

    key: Key
    record: EncodingRecord
    reached: int


class Heard(NamedTuple):
    """The results of one message: the encodings made for it, of others and of its own; those that its own call attended
    to, each with what went into it; and the engine's own key of everything it was made of."""

    made: tuple[Made, ...]
    context: tuple[tuple[EncodingRecord, int], ...]
    key: str | None


class Play:
    """`reader` None: everything is said as it is. It moves from one workflow to another via their common beginning."""

    def __init__(
        self, way: ReusePolicy, guarded: bool, reader: int | None = None, secrets: Secrets = "as said"
    ) -> None:
        self._way, self._guarded, self._reader, self._secrets = way, guarded, reader, secrets
        self._begin()

    def _begin(self) -> None:
        self.engine, self.resolver, self.ledger = Sets(self._guarded), Resolver(self._way, True), Ledger()
        self._said, self._steps = list[Said](), list[tuple[Made, ...]]()
        self._number: dict[EncodingId, int] = {}

    def follow(self, said: Sequence[Said]) -> None:
        """Move to the state in which exactly this was said."""
        if len(self._number) > MOST:
            self._begin()
        common = 0
        while common < min(len(said), len(self._said)) and said[common] is self._said[common]:
            common += 1
        while len(self._said) > common:
            self.take_back()
        for one in said[common:]:
            self.say(one)

    def say(self, one: Said) -> Heard:
        """Say one more message. AssertionError: a guard or the engine refuses it."""
        number = len(self._said)
        self._said.append(one)
        if self._absent(one):
            self._steps.append(())
            return Heard((), (), None)
        draft = self._draft(number, one)
        self.resolver.drafts[draft.metadata.id] = draft
        heard = self._known(draft) if one.who.author is None else self._spoken(draft, number)
        self._steps.append(heard.made)
        return heard

    def take_back(self) -> None:
        """Undo the last message, and everything made for it."""
        number, gone = len(self._said) - 1, self._steps.pop()
        for made in reversed(gone):
            assert self.resolver._there(made.key).pop(made.key) == made.record.id
            self.resolver._keys[made.record.message].remove(made.key)
        self.engine.release(made.record.id for made in gone)
        self.ledger.forget(made.record.id for made in gone)
        self.resolver._single.discard(NUMBERS[number])
        self.resolver.drafts.pop(NUMBERS[number], None)
        self._said.pop()

    def _absent(self, one: Said) -> bool:
        return self._secrets == "absent" and self._hidden(one)

    def _hidden(self, one: Said) -> bool:
        return self._reader is not None and not one.who.includes(self._reader)

    def _text(self, number: int, one: Said) -> str:
        secret = self._secrets == "others" and self._hidden(one)
        return f"and no {number}" if secret else f"{number}"

    def _draft(self, number: int, one: Said) -> Draft:
        who = one.who
        author = None if who.author is None else NAMES[who.author]
        audience = AUDIENCES[None if who.everyone else who.readers]
        reads = tuple(Read(NUMBERS[read]) for read in one.reads if not self._absent(self._said[read]))
        ids = tuple(read.id for read in reads)
        kind: Literal["prefill", "decode"] = "decode" if author else "prefill"
        data = Metadata(NUMBERS[number], kind, "assistant" if author else "user", author, audience, ids)
        return Draft(data, "" if author else self._text(number, one), author, ReadSet(author, reads, None, ()))

    def _known(self, draft: Draft) -> Heard:
        """A message of the scenario is encoded when it is read."""
        self._enter(draft, self.engine.frame("user", None, draft.text))
        return Heard((), (), None)

    def _spoken(self, draft: Draft, number: int) -> Heard:
        words = tuple(self.engine.framing.content.encode(self._text(number, self._said[number])))
        plan = self.resolver.decode_plan(draft, forced=words)
        own: tuple[Recipe, ...] = (plan.recipe, "audience")
        recipes: list[tuple[str, Recipe, tuple[str, ...]]] = [(m.message, m.recipe, m.path) for m in plan.missing]
        recipes += [(draft.metadata.id, recipe, ()) for recipe in own[: len(plan.calls) - len(plan.missing)]]
        ids = self._run(plan.calls)
        made = tuple(self._made(*recipe, id) for recipe, id in zip(recipes, ids, strict=True))
        said = made[len(plan.missing)].record
        self._enter(draft, self.engine.message(said.id))
        context = tuple((self.ledger[e.id], self._reached(e.id)) for e in said.receipt.context)
        return Heard(made, context, self.engine.storage(said.id).key)

    def _run(self, calls: Sequence[Any]) -> tuple[EncodingId, ...]:
        ids = self.engine.submit(calls)
        failed: list[AgentchoError] = [each.error for each in self.engine.step(self._way.deterministic).failed]  # type: ignore[misc]
        assert not failed, f"refused: {failed[0]}"
        return ids

    def _made(self, message: str, recipe: Recipe, path: tuple[str, ...], id: EncodingId) -> Made:
        self._number[id] = int(message)
        author = self.resolver.drafts[message].metadata.author
        caller = path[0] if path else author if recipe == "author" else None
        receipt = self.engine.receipt(id)
        record = self.ledger.record(id, message, caller, recipe, receipt)
        assert self.resolver.enter(message, recipe, path, id, receipt)
        key: Key = (recipe, path or (message,))
        return Made(key, record, self._reached(id))

    def _reached(self, id: EncodingId) -> int:
        reached = 0
        for maker in self.engine.value(id):
            reached |= 1 << self._number[maker]
        return reached

    def _enter(self, draft: Draft, words: Words) -> None:
        data = draft.metadata
        draft.message = Message(
            id=data.id,
            game=0,
            kind=data.kind,
            role=data.role,
            author=data.author,
            audience=data.audience,
            parents=data.parents,
            words=words,
            name=draft.name,
            offsets=None,
            new_offset=None,
        )


AUDIENCES: Mapping[int | None, Audience] = {
    None: Audience(None),
    **{bits: Audience(frozenset(name for agent, name in enumerate(NAMES) if bits >> agent & 1)) for bits in range(16)},
}
"""By the bits of their agents; None: everyone."""
NUMBERS: Mapping[int, str] = {number: str(number) for number in range(16)}
"""The ids of messages."""
