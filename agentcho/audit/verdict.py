"""The verdict on every reading of one game: an agent, speaking, attended to an encoding.

It follows from receipts, audiences and positions alone. Does not know: engines, texts, what a leak does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentcho.audit.cones import Cones, hidden
from agentcho.audit.positions import Positions, RevealingPosition
from agentcho.audit.report import Edge, Place, Verdict
from agentcho.message import SCENARIO
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.models import LOCAL, RecordedModels
from agentcho.records.transcript import TranscriptEntry

WORST: tuple[Verdict, ...] = ("direct", "transitive", "positional", "unlabelled", "clean")
"""Verdicts, the worst first; proven leaks stand before unknown readings."""
DIGITS = 10
"""No number of a line has so many."""


class RevealedSecrets(NamedTuple):
    """What a reading reveals of one agent: its `secrets`, and the `path` to the nearest of them.

    `owner` None: it is unknown whose secret a position depends on.
    """

    owner: str | None
    secrets: tuple[str, ...]
    path: tuple[str, ...]


class Reading(NamedTuple):
    """One edge with what findings need. `author` wrote the message read, `cached` is who else had encoded it in a
    prompt of its own, `fault` says why it is unlabelled, `refused` that it was not allowed to happen. `attempt` is that
    of its game."""

    edge: Edge
    author: str
    shares: tuple[RevealedSecrets, ...] = ()
    place: Place | None = None
    cached: str | None = None
    fault: str | None = None
    refused: bool = False
    attempt: int = 1


class GameVerdict:
    """The readings of one attempt at a game. `place` stands in for calls that do not know their line, `models` are the
    run's. `texts`: the messages that were said by models behind APIs."""

    def __init__(
        self, game: int, entries: Sequence[TranscriptEntry], place: Place | None = None, models: RecordedModels = LOCAL
    ) -> None:
        self.game = game
        self._default = place
        self.attempt = entries[0].attempt if entries else 1
        self.cones = Cones(entries, models)
        self.texts = [entry for entry in entries if models.texts(entry)]
        self.positions = Positions(self.cones)
        own = (entry.own for entry in entries if entry.message.kind == "decode")
        self._spoken = {record.id for record in own if record is not None}
        self._where = {record.id: entry.act.where for entry in entries for record in entry.made}

    def readings(self) -> Iterator[Reading]:
        """Every reading: for each encoding that an agent made, each piece of its context; for each message that a model
        behind an API said, each message of its prompt."""
        for entry in self.texts:
            for parent in entry.message.parents:
                yield self._prompted(entry, parent)
        for record in self.cones.records.values():
            reader = self.reader(record)
            if reader is None:
                continue
            place = self.place(record.id)
            for piece in range(len(record.receipt.context)):
                yield self._judge(reader, record, piece)._replace(place=place, attempt=self.attempt)

    def _prompted(self, entry: TranscriptEntry, parent: str) -> Reading:
        """What was read as text."""
        said = entry.message
        reader = entry.message.author or SCENARIO
        read = self.cones.messages.get(parent)
        lines = self.cones.lines[parent]
        fault = None if lines == 1 else f"message {parent} has {lines or 'no'} lines"
        secret = read is not None and hidden(read, reader)
        verdict: Verdict = "direct" if secret else "unlabelled" if fault else "clean"
        edge = Edge(
            game=self.game,
            reader=reader,
            call=said.id,
            encoding=0,
            message=parent,
            recipe="prompt",
            verdict=verdict,
            secrets=(parent,) if secret else (),
            path=(parent,) if secret else (),
        )
        author = SCENARIO if read is None else read.author or SCENARIO
        shares = (RevealedSecrets(author, (parent,), (parent,)),) if secret else ()
        return Reading(edge, author, shares, self.asked(entry), fault=fault, attempt=self.attempt)

    def place(self, id: int) -> Place | None:
        """The line of code from which an encoding came to be made."""
        return line_of(self._where.get(id)) or self._default

    def asked(self, entry: TranscriptEntry) -> Place | None:
        """The line of code that asked for a message."""
        return line_of(entry.act.where) or self._default

    def reader(self, record: EncodingRecord) -> str | None:
        """The agent that reads what an encoding was made over: its author, or in whose prompt it stands. What was
        spoken was spoken over its context, whatever its label says."""
        message = self.cones.messages.get(record.message)
        if record.recipe == "author" or record.id in self._spoken:
            return record.caller if message is None else message.author
        return record.caller if record.recipe in ("baseline", "repaired") else None

    def _judge(self, reader: str, call: EncodingRecord, piece: int) -> Reading:
        id = call.receipt.context[piece].id
        fault = self.cones.fault(id)
        if fault is not None:
            return self._unlabelled(reader, call, id, fault)
        read = self.cones.records[id]
        verdict, shares = self._verdict(reader, call, piece, id)
        path = min((share.path for share in shares), key=len, default=())
        secrets = tuple(sorted({s for share in shares for s in share.secrets}, key=self._place_of))
        edge = self._edge(reader, call, id, verdict)
        edge = edge.model_copy(update={"path": path, "hops": max(len(path) - 1, 0), "secrets": secrets})
        return Reading(edge, self._author(read.message), shares, cached=self._cached(reader, read))

    def _edge(self, reader: str, call: EncodingRecord, id: int, verdict: Verdict) -> Edge:
        read = self.cones.records.get(id)
        return Edge(
            game=self.game,
            reader=reader,
            call=call.message,
            encoding=id,
            message=read.message if read else f"#{id}",
            recipe=(read or call).recipe,
            verdict=verdict,
            anchors=self._anchors(read),
        )

    def _anchors(self, read: EncodingRecord | None) -> tuple[str, ...]:
        """The messages by whose encodings one was corrected, each once; those of no record are in its fault."""
        ids = () if read is None else read.receipt.anchors
        records = self.cones.records
        return tuple(dict.fromkeys(records[id].message for id in ids if id in records))

    def _verdict(
        self, reader: str, call: EncodingRecord, piece: int, id: int
    ) -> tuple[Verdict, tuple[RevealedSecrets, ...]]:
        """The first that applies of an encoding whose cone is known."""
        message = self.cones.records[id].message
        for named in self.cones.records[id].messages:
            if hidden(self.cones.messages[named], reader):
                return "direct", (RevealedSecrets(self._author(named), (named,), (named,)),)
        if secrets := self.cones.cones[id] & self.cones.hidden(reader):
            return "transitive", self._shares(self.cones.paths(id, secrets))
        odd = self.positions.at(call.id, reader, piece)
        if odd is not None:
            return "positional", (self._felt((message,), odd),)
        within = self.positions.within(id, reader)
        if within is not None:
            return "positional", (self._felt(self.cones.path(id, within[0]), within[1]),)
        return "clean", ()

    def _shares(self, paths: dict[str, tuple[str, ...]]) -> tuple[RevealedSecrets, ...]:
        owners: dict[str, list[str]] = {}
        for secret in paths:
            owners.setdefault(self._author(secret), []).append(secret)
        return tuple(
            RevealedSecrets(owner, tuple(sorted(secrets, key=self._place_of)), paths[secrets[0]])
            for owner, secrets in owners.items()
        )

    def _felt(self, path: tuple[str, ...], odd: RevealingPosition) -> RevealedSecrets:
        if odd.after is None:
            return RevealedSecrets(None, (), path)
        owner = self._author(odd.after) if odd.after in self.cones.messages else None
        return RevealedSecrets(owner, (odd.after,), (*path, odd.after))

    def _unlabelled(self, reader: str, call: EncodingRecord, id: int, fault: str) -> Reading:
        read = self.cones.records.get(id)
        edge = self._edge(reader, call, id, "unlabelled")
        author = self._author(read.message) if read and read.message in self.cones.messages else ""
        return Reading(edge, author or SCENARIO, fault=f"encoding {id}: {fault}")

    def _cached(self, reader: str, read: EncodingRecord) -> str | None:
        caller = read.caller if read.recipe in ("baseline", "repaired") else None
        return None if caller in (None, reader) else caller

    def _place_of(self, message: str) -> int:
        """Where a message stands in the transcript; what has no line stands last."""
        return self.cones.order.get(message, len(self.cones.order))

    def _author(self, message: str) -> str:
        return self.cones.messages[message].author or SCENARIO


def line_of(where: str | None) -> Place | None:
    """ "file:number" as a place; None where it is none."""
    file, _, number = (where or "").rpartition(":")
    return Place(file=file, line=int(number)) if file and number.isdecimal() and len(number) < DIGITS else None


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst of them; clean where there is none."""
    return min(verdicts, key=WORST.index, default="clean")
