"""Computes what reached each agent of one game: the messages it attended to, and those it may not read that came along.

The same facts as the verdict's readings, but per message instead of per reading, and cheap to compute for a long game
with millions of readings. Independent of texts and of how the result is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import NamedTuple

from agentcho.audit.cones import hidden
from agentcho.audit.report import Verdict
from agentcho.audit.verdict import WORST, GameVerdict
from agentcho.message import SCENARIO
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.transcript import TranscriptEntry


class Brought(NamedTuple):
    """What one encoding brings to an agent that attends to it: the verdict, and the messages that reach the agent
    although it may not read them. `encoding` 0: there is none, because a model behind an API read the text of
    `message`. `also`: other messages that the encoding covers."""

    encoding: int
    message: str
    verdict: Verdict
    secrets: Set[str]
    also: tuple[str, ...] = ()


class Reached(NamedTuple):
    """How a message that an agent may not read reached it: the worst verdict, and the agent's first message (`call`)
    and the encoded message (`through`) by which it did so."""

    verdict: Verdict
    call: str
    through: str


class Reach:
    """What reached one agent. `read` are the messages that it attended to, `reached` those that it may not read,
    `brought` what each encoding that was not clean brought, `felt` the calls in whose prompt a position revealed
    something. `readings` counts all readings, `unclean` those that were not clean; `worst` is the worst verdict."""

    def __init__(self) -> None:
        self.read = set[str]()
        self.reached = dict[str, Reached]()
        self.brought = dict[int, Brought]()
        self.felt = set[str]()
        self._last: Set[str] = frozenset()
        self.readings = self.unclean = 0
        self.worst: Verdict = "clean"

    def take(self, call: str, brought: Brought, placed: Brought, first: bool) -> None:
        """Count one reading: `brought` is what its encoding brings at any position, `placed` what it brings at its
        actual position; `first`: the agent has not attended to it before."""
        self.readings += 1
        if placed.verdict != "clean":
            self.unclean += 1
            self.worst = min(self.worst, placed.verdict, key=WORST.index)
        if first:
            self.read.update((brought.message, *brought.also))
            if brought.verdict != "clean" and brought.encoding:
                self.brought[brought.encoding] = brought
        if placed is not brought:
            self.felt.add(call)
        if first or placed is not brought:
            self._enter(call, placed)

    def _enter(self, call: str, brought: Brought) -> None:
        fresh = brought.secrets
        if brought.verdict == "transitive":  # usually those of the reading before and a few more
            fresh = brought.secrets - self._last
            self._last = brought.secrets
        for secret in fresh:
            own = secret == brought.message or secret in brought.also
            how: Verdict = "direct" if own else _behind(brought.verdict)
            known = self.reached.get(secret)
            if known is None or WORST.index(how) < WORST.index(known.verdict):
                self.reached[secret] = Reached(how, call, brought.message)


def _behind(verdict: Verdict) -> Verdict:
    """The verdict on the other messages that an encoding brings: those in the cone of a direct leak are transitive."""
    return "transitive" if verdict == "direct" else verdict


def reach(verdict: GameVerdict) -> dict[str, Reach]:
    """What reached each agent that read something, by name."""
    found: dict[str, Reach] = {}
    for entry in verdict.texts:
        own = found.setdefault(entry.message.author or SCENARIO, Reach())
        for brought in _prompted(verdict, entry):
            own.take(entry.message.id, brought, brought, True)
    known: dict[str, dict[int, Brought]] = {}
    for record in verdict.cones.records.values():
        reader = verdict.reader(record)
        if reader is not None:
            own = found.setdefault(reader, Reach())
            for piece, brought, first in _attended(verdict, reader, record, known.setdefault(reader, {})):
                own.take(record.message, brought, _placed(verdict, reader, record, piece=piece, brought=brought), first)
    return {name: own for name, own in found.items() if own.readings}


def _attended(
    verdict: GameVerdict, reader: str, record: EncodingRecord, known: dict[int, Brought]
) -> Iterator[tuple[int, Brought, bool]]:
    """Each piece of a context with what it brings, and whether the agent attends to it for the first time. `known` has
    what the agent attended to before, and is updated."""
    for piece, (id, _, _) in enumerate(record.receipt.context):
        brought = known.get(id)
        if brought is None:
            brought = known[id] = _brings(verdict, reader, id)
            yield piece, brought, True
        else:
            yield piece, brought, False


def _brings(verdict: GameVerdict, reader: str, id: int) -> Brought:
    """What an encoding brings to an agent that attends to it, at any position in the prompt."""
    cones = verdict.cones
    record = cones.records.get(id)
    if cones.fault(id) is not None or record is None:
        return Brought(id, f"#{id}" if record is None else record.message, "unlabelled", frozenset())
    secrets = cones.cones[id] & cones.hidden(reader)
    if secrets.isdisjoint(record.messages):
        how: Verdict = "transitive" if secrets else "clean"
    else:
        how = "direct"
    if secrets:
        return Brought(id, record.message, how, secrets=secrets, also=record.also)
    felt = verdict.positions.within(id, reader)
    if felt is not None:
        return Brought(id, record.message, "positional", _after(verdict, felt[1].after))
    return Brought(id, record.message, "clean", secrets=secrets, also=record.also)


def _placed(verdict: GameVerdict, reader: str, record: EncodingRecord, *, piece: int, brought: Brought) -> Brought:
    """The same at its position in the prompt of one call, which may reveal something too."""
    if brought.verdict != "clean" or (odd := verdict.positions.at(record.id, reader, piece)) is None:
        return brought
    return brought._replace(verdict="positional", secrets=_after(verdict, odd.after))


def _after(verdict: GameVerdict, message: str | None) -> frozenset[str]:
    """The message that a position counts from, if it is known."""
    return frozenset() if message is None or message not in verdict.cones.messages else frozenset({message})


def _prompted(verdict: GameVerdict, entry: TranscriptEntry) -> Iterator[Brought]:
    """What each message in the prompt of a model behind an API brings."""
    for parent in entry.message.parents:
        read = verdict.cones.messages.get(parent)
        lines = verdict.cones.lines[parent]
        if read is not None and hidden(read, entry.message.author or SCENARIO):
            yield Brought(0, parent, "direct", frozenset({parent}))
        else:
            yield Brought(0, parent, "clean" if lines == 1 else "unlabelled", frozenset())
