"""What reached each agent of one game: what it attended to, and what came with that although it is not for it.

The same facts as the verdict's readings, message by message instead of reading by reading, and found with little work
where a long game has millions of readings. Does not know: texts, engines, how it is shown.
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
    """What one encoding brings an agent that attends to it: the verdict on that, and the messages in it that are not
    for the agent. `encoding` 0: there is none, for a model behind an API read the text of `message`. `also`: other
    messages that the encoding is of."""

    encoding: int
    message: str
    verdict: Verdict
    secrets: Set[str]
    also: tuple[str, ...] = ()


class Reached(NamedTuple):
    """A message that is not for an agent and reached it: how, and for the first time by which message of its own
    (`call`), through the encoding of which message (`through`)."""

    verdict: Verdict
    call: str
    through: str


class Reach:
    """What reached one agent. `read` are the messages that it attended to, `reached` those that are not for it,
    `brought` what each encoding brought that was not clean, `felt` the calls in whose prompt a place told something.
    `readings` counts all readings, `unclean` those that were not clean, and `worst` is the worst verdict of all."""

    def __init__(self) -> None:
        self.read = set[str]()
        self.reached = dict[str, Reached]()
        self.brought = dict[int, Brought]()
        self.felt = set[str]()
        self._last: Set[str] = frozenset()
        self.readings = self.unclean = 0
        self.worst: Verdict = "clean"

    def take(self, call: str, brought: Brought, placed: Brought, first: bool) -> None:
        """Count one reading: what its encoding brings anywhere, and what in its place; `first`: the agent has not
        attended to it before."""
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
        if brought.verdict == "transitive":  # mostly a few more than the one before
            fresh = brought.secrets - self._last
            self._last = brought.secrets
        for secret in fresh:
            own = secret == brought.message or secret in brought.also
            how: Verdict = "direct" if own else _behind(brought.verdict)
            known = self.reached.get(secret)
            if known is None or WORST.index(how) < WORST.index(known.verdict):
                self.reached[secret] = Reached(how, call, brought.message)


def _behind(verdict: Verdict) -> Verdict:
    """How what is behind a message comes with it: what a secret was made over comes as every other cone does."""
    return "transitive" if verdict == "direct" else verdict


def reach(verdict: GameVerdict) -> dict[str, Reach]:
    """What reached each agent that read something, by its name."""
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
    """Each piece of a context with what it brings, and whether the agent attends to it for the first time; `known` is
    what it attended to before."""
    for piece, (id, _, _) in enumerate(record.receipt.context):
        brought = known.get(id)
        if brought is None:
            brought = known[id] = _brings(verdict, reader, id)
            yield piece, brought, True
        else:
            yield piece, brought, False


def _brings(verdict: GameVerdict, reader: str, id: int) -> Brought:
    """What an encoding brings whoever attends to it, wherever it stands in the prompt."""
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
    """The same in its place in the prompt of one call, which may tell something too."""
    if brought.verdict != "clean" or (odd := verdict.positions.at(record.id, reader, piece)) is None:
        return brought
    return brought._replace(verdict="positional", secrets=_after(verdict, odd.after))


def _after(verdict: GameVerdict, message: str | None) -> frozenset[str]:
    """The message that a position counts from, where that is known."""
    return frozenset() if message is None or message not in verdict.cones.messages else frozenset({message})


def _prompted(verdict: GameVerdict, entry: TranscriptEntry) -> Iterator[Brought]:
    """What the prompt of a model behind an API had in it."""
    for parent in entry.message.parents:
        read = verdict.cones.messages.get(parent)
        lines = verdict.cones.lines[parent]
        if read is not None and hidden(read, entry.message.author or SCENARIO):
            yield Brought(0, parent, "direct", frozenset({parent}))
        else:
            yield Brought(0, parent, "clean" if lines == 1 else "unlabelled", frozenset())
