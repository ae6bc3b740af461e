"""Drives a journal on the engine without a model, without an event loop: every message is said and entered at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentcho.choreography.requests import FinishedCall, RequestResult, UnfinishedDecode
from agentcho.config import Limits, ReusePolicy
from agentcho.engine.call_layout import KVEntry
from agentcho.games.play.journal import EncodingsToMake, Journal
from agentcho.games.play.limits import Meter
from agentcho.message import EVERYONE, Audience, Metadata
from agentcho.protocol.call import EncodingId, Sampling
from agentcho.provenance.call_plans import DecodePlan
from agentcho.provenance.drafts import Draft
from agentcho.provenance.views import Read, ReadSet
from agentcho.testing import FakeEngine


class Played:
    """One game."""

    def __init__(self, engine: FakeEngine, reuse: ReusePolicy, salt: str = "") -> None:
        self.engine = engine
        self.journal = Journal(0, reuse, Meter(Limits()), lambda event: None, bos=engine.bos, salt=salt)
        self.resolver = self.journal.resolver

    def put(
        self, id: str, audience: Audience = EVERYONE, author: str | None = None, *reads: str, text: str | None = None
    ) -> str:
        """Enter a message of known text, of the scenario or an author."""
        draft = self._draft(id, author, _reads(author, reads), audience, text or f"The words of {id}")
        words = self.engine.frame("user", None, draft.text)
        assert self.resolver.end_position(draft, len(words.tokens)) < self.engine.context
        self.journal.enter_known(draft, words)
        return id

    def say(self, id: str, author: str, *reads: str | Read) -> tuple[EncodingId, ...]:
        """A message that an author generates; returns the ids of the encodings that it attends to."""
        return self.say_at_once((id, author, *reads))[0]

    def say_at_once(self, *asked: tuple[Any, ...]) -> list[tuple[EncodingId, ...]]:
        """Messages that are all planned before any of them is generated."""
        plans = [self._plan(id, author, reads) for id, author, *reads in asked]
        submitted = [self.engine.submit(plan.calls) for _, plan in plans]
        while not self.engine.idle:
            assert not self.engine.step().failed
        return [self._enter(*plan, ids) for plan, ids in zip(plans, submitted, strict=True)]

    def _enter(self, draft: Draft, plan: DecodePlan, ids: Sequence[EncodingId]) -> tuple[EncodingId, ...]:
        made = tuple(map(self._made, ids))
        making = EncodingsToMake.of(plan, draft.metadata.author, self.journal.resolver)
        self.journal.enter(making, draft, RequestResult(made, 0.0, 0.0))
        return tuple(entry.id for entry in made[len(plan.missing)].receipt.context)

    def give_up(self, id: str, author: str, *reads: str | Read) -> None:
        """A message whose call is cancelled after its first tokens."""
        draft, plan = self._plan(id, author, reads)
        ids = self.engine.submit(plan.calls)
        steps = [self.engine.step() for _ in range(3)]
        finished = [done for step in steps for done in step.finished]
        [begun] = [begun for step in steps for begun in step.begun]
        made = tuple(self._made(id) if id in finished else None for id in ids)
        said = UnfinishedDecode(FinishedCall(*begun), made, "cancelled", 0.0, 0.0)
        making = EncodingsToMake.of(plan, author, self.journal.resolver)
        self.journal.first_token(making, draft, said)
        self.engine.cancel(ids)
        self.journal.enter_dropped(making, draft, said)
        self.engine.release(finished)
        del self.resolver.drafts[id]

    def forget(self, *messages: str) -> None:
        """Release all encodings of these messages."""
        self.engine.release(self.journal.forget(messages))

    def entries(self) -> set[KVEntry]:
        """The entries that the store holds for this game."""
        return {self.engine._encodings[id].entry for id in self.journal.held}

    def _made(self, id: EncodingId) -> FinishedCall:
        return FinishedCall(id, self.engine.message(id), self.engine.receipt(id))

    def _plan(self, id: str, author: str, reads: Iterable[str | Read]) -> tuple[Draft, DecodePlan]:
        draft = self._draft(id, author, _reads(author, reads), EVERYONE, "")
        return draft, self.resolver.decode_plan(draft, sampling=Sampling(max_tokens=4))

    def _draft(self, id: str, author: str | None, reads: ReadSet, audience: Audience, text: str) -> Draft:
        parents = tuple(read.id for read in reads.reads)
        data = Metadata(id, "prefill", "user", author, audience, parents)
        if not text:
            data = data._replace(kind="decode", role="assistant")
        draft = self.resolver.drafts[id] = Draft(data, text, None if text else author, reads)
        return draft


def _reads(author: str | None, reads: Iterable[str | Read]) -> ReadSet:
    """The read set of an author, in this order."""
    return ReadSet(author, tuple(each if isinstance(each, Read) else Read(each) for each in reads), None, ())
