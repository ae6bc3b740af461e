"""A play without an event loop: the real resolver and journal on an engine of sets, for comparison with reachability
after each message. Agents are names with scripted words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentcho.choreography.requests import FinishedCall, RequestResult
from agentcho.config import Limits, ReusePolicy
from agentcho.errors import LeakageError
from agentcho.events import Encoded, Ended, Event
from agentcho.games.play.journal import EncodingsToMake, Journal
from agentcho.games.play.limits import Meter
from agentcho.message import Audience, Metadata
from agentcho.protocol.call import Call, EncodingId
from agentcho.provenance.call_plans import DecodePlan
from agentcho.provenance.drafts import Draft
from agentcho.provenance.labels import EncodingRecord, LeakPaths
from agentcho.provenance.views import Act, Place, Read, ReadSet
from agentcho.records.transcript import TranscriptEntry

from .reach import Said, World
from .sets import Sets


class Plan(NamedTuple):
    """A planned message, of known text (a prefill) or generated; `reads` are ids and positions, `at` is its own
    position. Those in `public` are read as others than their author do. `judges`: its view asks for `reuse="judge"`."""

    author: str | None
    audience: frozenset[str] | None
    text: str
    reads: tuple[tuple[str, Place], ...] = ()
    at: Place = None
    generated: bool = False
    public: frozenset[str] = frozenset()
    judges: bool = False

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the messages that it reads."""
        return tuple(id for id, _ in self.reads)


@dataclass
class Speech:
    """A decode that is about to be submitted."""

    draft: Draft
    speaking: DecodePlan
    ids: tuple[EncodingId, ...] = ()


class Talk:
    """One play. `world` is what was said, `entries` the transcript, `records` all encodings in it."""

    def __init__(self, engine: Sets, reuse: ReusePolicy, game: int = 0) -> None:
        self.engine, self.reuse, self.game, self.world = engine, reuse, game, World()
        self.entries: list[TranscriptEntry] = []
        self.records: dict[EncodingId, EncodingRecord] = {}
        self.made: dict[EncodingId, str] = {}
        self._journal = Journal(game, reuse, Meter(Limits()), self._hear, bos=engine.bos)
        self.resolver = self._journal.resolver
        self._leaks = LeakPaths(reuse, self.resolver.drafts)
        self.out: list[str] = []
        self.plans: dict[str, Plan] = {}

    def _hear(self, event: Event) -> None:
        assert isinstance(event, Ended | Encoded)
        if isinstance(event, Ended):
            self.entries.append(event.entry)
        made = event.entry.made if isinstance(event, Ended) else event.encodings.made
        self.records.update((record.id, record) for record in made)

    # -- acts --------------------------------------------------------------------------------------------

    def put(self, plan: Plan) -> str:
        """A message of known text, encoded when first read. `LeakageError`: its author may not read its context."""
        reads = self._reads(plan)
        draft = self._draft(plan, reads, "prefill")
        self._journal.enter_known(draft, self.engine.frame(draft.metadata.role, draft.name, plan.text))
        self.out.append(draft.metadata.id)
        return draft.metadata.id

    def speak(self, *plans: Plan) -> list[str]:
        """Messages generated in one round, none of which can read another. `LeakageError`: nothing is said at all."""
        reads = [self._reads(plan) for plan in plans]
        said = [self._draft(plan, each, "decode") for plan, each in zip(plans, reads, strict=True)]
        speeches = [self._submit(plan, draft) for plan, draft in zip(plans, said, strict=True)]
        self._run()
        for speech in speeches:
            making = EncodingsToMake.of(speech.speaking, speech.draft.metadata.author, self._journal.resolver)
            self._enter(making, speech.draft, speech.ids)
            self.out.append(speech.draft.metadata.id)
        return [draft.metadata.id for draft in said]

    def evict(self, id: str) -> int:
        """Release a message's encodings; readers make them again. Returns the number of those that are not twins."""
        twins = set(self._journal._twins)
        made = {held for held in self._journal.held if self.made[held] == id}
        gone = self._journal.forget((id,))
        assert set(gone) == made
        assert not made.intersection(self._journal.held)
        self.engine.release(gone)
        return len(made - twins)

    def again(self, game: int) -> Talk:
        """A second play on the same engine, in which the same was said."""
        other = Talk(self.engine, self.reuse, game)
        for plan in self.plans.values():
            other.speak(plan) if plan.generated else other.put(plan)
        return other

    def end(self) -> None:
        """Encode what nobody read, and release everything."""
        encoded = {record.message for record in self.records.values()}
        self._encode(id for id in self.resolver.drafts if id not in encoded)
        self._journal.close()
        self.engine.release(self._journal.held)
        self._journal.held.clear()

    # -- one message -------------------------------------------------------------------------------------

    def _reads(self, plan: Plan) -> ReadSet:
        direct = tuple(id for id in plan.ids if plan.author and self.world.direct(plan.author, (id,)))
        read = tuple(Read(id, at, id in plan.public) for id, at in plan.reads)
        reads = ReadSet(plan.author, read, plan.at, direct, "judge" if plan.judges else None)
        if path := self._leaks.leak_path(reads):
            raise LeakageError(plan.author or "", path)
        return reads

    def _draft(self, plan: Plan, reads: ReadSet, kind: str) -> Draft:
        id = f"{plan.author or 'scenario'}.{len(self.world.said)}"
        self.world.said[id] = Said(id, plan.author, plan.audience, plan.ids, plan.public)
        self.plans[id] = plan._replace(generated=kind == "decode")
        role = "assistant" if plan.author else "user"
        data = Metadata(id, kind, role, plan.author, Audience(plan.audience), plan.ids)  # type: ignore[arg-type]
        text = plan.text if kind == "prefill" else ""
        self.resolver.drafts[id] = Draft(data, text, plan.author, reads, act=Act(reuse=reads.reuse))
        return self.resolver.drafts[id]

    def _submit(self, plan: Plan, draft: Draft) -> Speech:
        words = tuple(self.engine.framing.content.encode(plan.text))
        speaking = self.resolver.decode_plan(draft, forced=words)
        speech = Speech(draft, speaking)
        speech.ids = self._take(speaking.calls, [*(m.message for m in speaking.missing), draft.metadata.id])
        return speech

    def _take(self, calls: Sequence[Call], messages: list[str]) -> tuple[EncodingId, ...]:
        ids = self.engine.submit(calls)
        self.made.update(zip(ids, [*messages, messages[-1]], strict=False))
        return ids

    def _encode(self, ids: Iterable[str]) -> None:
        for id in ids:
            draft = self.resolver.drafts[id]
            reads = draft.reads._replace(reads=(*draft.reads.reads, Read(id)))
            if missing := self.resolver.resolve(reads).missing:
                made = self._take([m.call for m in missing], [m.message for m in missing])
                self._run()
                self._enter(EncodingsToMake(missing, None, self._journal.resolver), None, made)

    def _run(self) -> None:
        for failure in self.engine.step(self.reuse.deterministic).failed:
            raise AssertionError(f"refused: {failure.error}")

    def _enter(self, making: EncodingsToMake, draft: Draft | None, ids: Sequence[EncodingId]) -> None:
        made = tuple(FinishedCall(id, self.engine.message(id), self.engine.receipt(id)) for id in ids)
        self._journal.enter(making, draft, RequestResult(made, 0.0, 0.0))

    # -- results -----------------------------------------------------------------------------------------

    def tokens(self, ids: Iterable[str]) -> frozenset[tuple[int, ...]]:
        """The tokens of these messages, framing included."""
        said = (self.resolver.drafts[id].message for id in ids)
        return frozenset(message.tokens for message in said if message is not None)

    def storages(self) -> dict[str, set[object]]:
        """The storages now held for each message, equal ones once; without callers' own repairs."""
        kept: dict[str, set[object]] = {}
        for held in (held for held in self._journal.held if self._journal._ledger[held].recipe != "repaired"):
            kept.setdefault(self.made[held], set()).add(self.engine.storage(held))
        return kept

    def readings(self, since: int = 0) -> Iterator[tuple[str, EncodingRecord, bool]]:
        """Every (reader, record of an encoding that it attends to, whether it was read as others do) of messages that
        agents generated from entry `since` on."""
        for entry in self.entries[since:]:
            author = entry.message.author
            if entry.message.kind == "decode" and author is not None:
                assert entry.own is not None
                for read in entry.own.receipt.context:
                    record = self.records[read.id]
                    yield author, record, record.message in self.plans[entry.message.id].public

    def loaded(self) -> list[TranscriptEntry]:
        """The transcript, written and read back."""
        return [TranscriptEntry.from_json(json.loads(json.dumps(entry.to_json()))) for entry in self.entries]
