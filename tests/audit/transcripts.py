"""Transcripts written by hand, including ones that no engine would write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentcho.audit.audit import BegunLines, audit_entries
from agentcho.audit.notes import Seal
from agentcho.audit.report import AuditReport, Edge, Subject
from agentcho.audit.verdict import GameVerdict, Reading
from agentcho.message import Audience, audience
from agentcho.protocol.call import ContextEntry, Receipt
from agentcho.provenance.labels import EncodingRecord, Ledger, Recipe
from agentcho.provenance.views import Act
from agentcho.records.transcript import MessageUsage, TranscriptEntry
from tests.said import message as said

LENGTH = 3
NONE_BEGUN: BegunLines = {}
KEY = b"k" * 32
Over = Iterable[int | tuple[int, int]]


class Talk:
    """A game as a transcript. Every message has three tokens; positions are the defaults unless given."""

    def __init__(self, game: int = 0, bos: bool = True) -> None:
        self.game, self.bos = game, bos
        self.entries: list[TranscriptEntry] = []
        self._ledger = Ledger()
        self._last = 0

    def say(
        self, id: str, to: str | list[str], over: Over = (), recipe: Recipe = "author", caller: str | None = None,
        start: int | None = None, act: Act | None = None, **changes: Any,
    ) -> int:  # fmt: skip
        """Adds a message of the agent named in its id, and its own encoding; returns the id of that encoding."""
        author = changes.pop("author", id.split(".")[0])
        made = self._made(id, over, recipe, author if recipe == "author" else caller, start)
        attended = tuple(self._ledger[piece.id].message for piece in made.receipt.context)
        kind = changes.pop("kind", "decode")
        tokens = tuple(100 * self.game + 10 * len(self.entries) + n for n in range(LENGTH))
        fields = {"parents": attended, "header": "", "text": f"the words of {id}", "tokens": tokens, "content": (1, 2)}
        message = said(
            id=id,
            game=self.game,
            kind=kind,
            author=author,
            audience=_audience(to, author),
            **({"role": "assistant" if kind == "decode" else "user"} | fields | changes),
        )
        self.entries.append(
            TranscriptEntry(
                message, made.id, (made,), (), MessageUsage(LENGTH, 0, 0, 0), act or Act(f"play.py:{made.id}")
            )
        )
        return made.id

    def also(
        self, id: str, over: Over = (), recipe: Recipe = "audience", caller: str | None = None, start: int | None = None
    ) -> int:
        """Adds another encoding of a message to the last line."""
        made = self._made(id, over, recipe, caller, start)
        self.change(self.entries[-1].message.id, made=(*self.entries[-1].made, made))
        return made.id

    def change(self, id: str, **changes: Any) -> None:
        """Replaces fields of a line of the transcript."""
        at = next(n for n, entry in enumerate(self.entries) if entry.message.id == id)
        self.entries[at] = self.entries[at]._replace(**changes)

    def forge(self, id: str, **changes: Any) -> None:
        """Replaces fields of the first record of a line."""
        entry = next(entry for entry in self.entries if entry.message.id == id)
        self.change(id, made=(entry.made[0]._replace(**changes), *entry.made[1:]))

    def drop(self, id: str) -> None:
        """Removes a line."""
        self.entries = [entry for entry in self.entries if entry.message.id != id]

    def readings(self) -> list[Reading]:
        """The readings of the verdict."""
        return list(GameVerdict(self.game, self.entries).readings())

    def edges(self, reader: str) -> list[Edge]:
        """The edges of one agent, in order."""
        return [reading.edge for reading in self.readings() if reading.edge.reader == reader]

    def corrected(self, id: str, caller: str, base: int, *anchors: int) -> int:
        """Adds a repaired encoding of the last line's message in a caller's prompt: its `base`, corrected by the
        offsets of anchors, each in that prompt and as it was reused."""
        made = self._made(id, (), "repaired", caller, None, base, anchors)
        self.change(id, made=(*self.entries[-1].made, made))
        return made.id

    def _made(
        self,
        id: str,
        over: Over,
        recipe: Recipe,
        caller: str | None,
        start: int | None,
        base: int | None = None,
        anchors: tuple[int, ...] = (),
    ) -> EncodingRecord:
        context, end = list[ContextEntry](), int(self.bos)
        for each in over:
            piece, offset = each if isinstance(each, tuple) else (each, end)
            context.append(ContextEntry(piece, offset, LENGTH))
            end = offset + LENGTH
        self._last += 1
        receipt = Receipt(tuple(context), end if start is None else start, self.bos, base, anchors)
        return self._ledger.record(self._last, id, caller, recipe, receipt)


def _audience(to: str | list[str], author: str | None) -> Audience:
    given = audience(to)
    return given if given.members is None or author is None else Audience(given.members | {author})


def subject(**changes: Any) -> Subject:
    """The subject of an audit, with defaults."""
    fields: dict[str, Any] = {
        "scenario": "talk", "source": "runs/1", "mode": "choreographed", "leakage": "audit", "deterministic": False,
        "planned": False, "games": 1, "agents": ("alice", "bob"), "environment": {}, "reproduce": "agentcho audit 1",
    }  # fmt: skip
    return Subject(**(fields | changes))


def audited(
    *talks: Talk, reveal: bool = False, key: bytes = KEY, begun: BegunLines = NONE_BEGUN, **changes: Any
) -> AuditReport:
    """The report on these games."""
    games: Mapping[int, Sequence[TranscriptEntry]] = {talk.game: talk.entries for talk in talks}
    return audit_entries(subject(**({"games": len(talks)} | changes)), games, Seal(key, reveal), begun=begun)


def anchored() -> Talk:
    """Bob reads Alice's message corrected by Carol's, which was encoded over her secret; it reaches him in no other
    way."""
    talk = Talk()
    secret = talk.say("carol.0", ["carol"])
    reused = talk.say("carol.1", "everyone", [secret])
    near = talk.also("carol.1", [], "repaired", "bob")
    base = talk.say("alice.0", "everyone")
    corrected = talk.corrected("alice.0", "bob", base, near, reused)
    talk.say("bob.0", "everyone", [corrected])
    return talk


def chain(game: int = 0) -> Talk:
    """Alice's secret, her message over it, Bob's over that, Carol's over that."""
    talk = Talk(game)
    secret = talk.say("alice.0", ["alice"])
    first = talk.say("alice.1", "everyone", [secret])
    second = talk.say("bob.0", "everyone", [first])
    talk.say("carol.0", "everyone", [second])
    return talk
