"""Recomputes the word ledger of a run: how much the words of agents can reveal, about whose secrets, and to whom.

Uses the transcript alone: receipts give the sources of each message, audiences the readers of these, and its line the
number of its possible values. The recorded charge and the text are checked against this: a line that does not account
for its words is a fault, never 0 bits. Independent of how a game refuses a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log2
from typing import NamedTuple

from agentcho.audit.report import Place, Subject, Told, WordsLedger
from agentcho.audit.verdict import GameVerdict
from agentcho.message import EVERYBODY
from agentcho.protocol.regex_cardinality import Uncountable
from agentcho.provenance.declassification import (
    LEAST,
    Owed,
    SecretReach,
    canonical_json,
    owner_of,
    readers_of,
    schema_bits,
)
from agentcho.provenance.views import Charge
from agentcho.records.transcript import TranscriptEntry

OwnerAndReader = tuple[str, str]
"""An owner of secrets and a reader."""


class Doubt(NamedTuple):
    """A message that does not account for its words, and why."""

    game: int
    message: str
    author: str
    why: str
    place: Place | None = None


class Unaccounted(Exception):
    """It is unknown how much a message can reveal; the text says why."""


class WordTotals(NamedTuple):
    """What one reader was told about one owner's secrets in one game: `bits` by `typed` releases; in addition the
    numbers of messages of `free` words, of messages `passed` by the code, and of `acts` of the code itself after it had
    looked at secrets."""

    bits: float = 0.0
    typed: int = 0
    free: int = 0
    passed: int = 0
    acts: int = 0

    def plus(self, other: WordTotals) -> WordTotals:
        """The sum of both."""
        counts = self.typed + other.typed, self.free + other.free, self.passed + other.passed, self.acts + other.acts
        return WordTotals(self.bits + other.bits, *counts)

    def most(self, other: WordTotals) -> WordTotals:
        """The maximum of each field, for two attempts at one game, which say the same things again."""
        pairs = (self.typed, other.typed), (self.free, other.free), (self.passed, other.passed), (self.acts, other.acts)
        return WordTotals(max(self.bits, other.bits), *map(max, pairs))


class GameWords:
    """The word totals of one attempt at a game, and the messages that do not account for their words."""

    def __init__(self, verdict: GameVerdict, subject: Subject) -> None:
        self._verdict = verdict
        self._entries = verdict.cones.entries
        self._order = verdict.cones.order
        self.number = verdict.game
        self.attempt = verdict.attempt
        self._refusing = subject.words == "refuse"
        self._agents = subject.agents
        self._texts = {entry.message.id: entry for entry in verdict.texts}
        self._secrets = SecretReach(lambda id: self._entries[id].message.audience, self._known_sources)
        self.doubts: list[Doubt] = []
        self.sums: dict[OwnerAndReader, WordTotals] = {}
        for entry in self._entries.values():
            self._enter(entry)

    def _enter(self, entry: TranscriptEntry) -> None:
        message = entry.message
        author = self._sayer(entry)
        self._add(self._acted_on(entry), WordTotals(acts=1))
        own_words = message.kind == "decode" or entry.act.released is not None or entry.act.call is not None
        if author is None or not own_words:
            return
        try:
            owed = self._owed(entry)
            if owed:
                self._add(owed, self._sum(entry, owed))
        except Unaccounted as why:
            self.doubts.append(
                Doubt(
                    game=self._verdict.game,
                    message=message.id,
                    author=author,
                    why=str(why),
                    place=self._verdict.asked(entry),
                )
            )

    def _sayer(self, entry: TranscriptEntry) -> str | None:
        """The agent responsible for a message: its author or, for the result of a tool, the caller."""
        call = self._entries.get(entry.act.call or "")
        return entry.message.author if call is None else call.message.author

    def _add(self, owed: Owed, sum: WordTotals) -> None:
        for owner, readers in owed:
            for reader in readers:
                self.sums[owner, reader] = self.sums.get((owner, reader), WordTotals()).plus(sum)

    # -- owners and readers ------------------------------------------------------------------------------

    def _owed(self, entry: TranscriptEntry) -> Owed:
        """By owner of secrets, the readers to whom the words of a message may reveal them."""
        released = entry.act.released
        charge = entry.act.charge
        first = entry
        if entry.act.call is not None:
            over = self._sources(self._known(entry.act.call, entry))
        elif released is None:
            over = self._sources(entry)
        else:
            first = self._known(released, entry)
            over = self._sources(first)
            over = over if charge is not None and charge.by == "schema" else [released, *over]
        found = self._pairs(over, entry)
        if first.origin == "human" and charge is not None:  # what a person had been shown is in no receipt
            for owner, readers in charge.owed:
                found.setdefault(owner, set()).update(readers)
        return tuple((owner, tuple(sorted(found[owner]))) for owner in sorted(found))

    def _pairs(self, over: Iterable[str], entry: TranscriptEntry) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for reader in readers_of(entry.message.audience, self._sayer(entry), self._agents):
            for id in self._secrets.told(over, reader):
                found.setdefault(owner_of(self._entries[id].message.metadata), set()).add(reader)
        return found

    def _known_sources(self, id: str) -> list[str]:
        return self._sources(self._entries[id])

    def _sources(self, entry: TranscriptEntry) -> list[str]:
        """The messages that the words of a message may repeat. Raises `Unaccounted` if the transcript does not say."""
        more = [each for each in (entry.act.released, entry.act.call) if each is not None]
        found = [*(self._cone(entry) if entry.message.kind == "decode" else ()), *more]
        for id in found:
            self._known(id, entry)
        return found

    def _cone(self, entry: TranscriptEntry) -> list[str]:
        cones = self._verdict.cones
        id = entry.message.id
        if self._texts.get(id) is entry:
            return list(entry.message.parents)
        own = cones.said_in(entry)  # a thought depends only on what its author had read
        if own is None:
            raise Unaccounted(f"message {id} has no record of what it was said over")
        if (fault := cones.fault(own.id)) is not None:
            raise Unaccounted(f"encoding {own.id}: {fault}")
        return [each for each in cones.cones[own.id] if each not in (id, entry.act.thought)]

    def _known(self, id: str, by: TranscriptEntry) -> TranscriptEntry:
        """A source of a message, which must stand before it. Raises `Unaccounted` otherwise."""
        here = self._order.get(id)
        if here is None or here >= self._order[by.message.id] or self._verdict.cones.lines[id] != 1:
            raise Unaccounted(f"message {by.message.id} was said over {id}, which does not come before it")
        return self._entries[id]

    def _acted_on(self, entry: TranscriptEntry) -> Owed:
        """By owner, the readers of this message who may not read words that the code had looked at before it."""
        found: dict[str, set[str]] = {}
        for id in entry.act.tainted_by:
            if (looked := self._entries.get(id)) is None:
                continue
            for reader in readers_of(entry.message.audience, entry.message.author, self._agents):
                if not looked.message.audience.includes(reader):
                    found.setdefault(owner_of(looked.message.metadata), set()).add(reader)
        return tuple((owner, tuple(sorted(readers))) for owner, readers in found.items())

    # -- amounts -----------------------------------------------------------------------------------------

    def _sum(self, entry: TranscriptEntry, owed: Owed) -> WordTotals:
        """How much a message reveals. Raises `Unaccounted` if its line does not say so, or says it wrongly."""
        charge = entry.act.charge
        id = entry.message.id
        if charge is None:
            raise Unaccounted(f"message {id} does not say how much it can tell")
        self._covered(entry, charge, owed)
        if charge.by == "release":
            return WordTotals(passed=1)
        if charge.by == "words":
            if self._refusing:
                raise Unaccounted(f"message {id} is not restricted, although the run refuses such messages")
            return WordTotals(free=1)
        bits = self._bits(entry, charge)
        if charge.bits is None or abs(bits - charge.bits) > LEAST:
            raise Unaccounted(f"message {id} was charged {charge.bits} bits, but can tell {bits:.6g}")
        if not entry.message.canonical:
            raise Unaccounted(
                f"the token ids of message {id} differ from those of its text, so they can tell more than the text"
            )
        return WordTotals(bits=bits, typed=1)

    def _covered(self, entry: TranscriptEntry, charge: Charge, owed: Owed) -> None:
        """Raise `Unaccounted` unless every reader to whom it reveals a secret was charged for. A charge for everybody
        covers agents that join later."""
        charged = {owner: set(readers) for owner, readers in charge.owed}
        for owner, readers in owed:
            for reader in readers:
                if not {reader, EVERYBODY} & charged.get(owner, set()):
                    raise Unaccounted(f"message {entry.message.id} was not charged for what it tells {reader}")

    def _bits(self, entry: TranscriptEntry, charge: Charge) -> float:
        """Recompute log2 of the number of its possible values. Raises `Unaccounted` if its text is none of them."""
        message = entry.message
        choices = set(entry.act.choices)
        if charge.by == "choices":
            said = message.text
            if not any(each == said or (entry.ended and each.startswith(said)) for each in choices):
                raise Unaccounted(f"message {message.id} is not one of its choices")
            return log2(len(choices))
        first = self._entries.get(entry.act.released or "")
        header = "" if first is None else first.message.header
        if charge.schema is None or first is None or not message.text.startswith(header):
            raise Unaccounted(f"message {message.id} does not say which values it could take")
        said = message.text.removeprefix(header)
        try:
            if canonical_json(said, charge.schema) != said:
                raise Unaccounted(f"message {message.id} is not JSON that its schema admits, in canonical spelling")
            return schema_bits(charge.schema)
        except Uncountable as error:
            raise Unaccounted(f"the schema of message {message.id} cannot be counted: {error}") from None


def ledger(subject: Subject, games: Iterable[GameWords]) -> WordsLedger | None:
    """The ledger of a run; None if it had no rule for words. Attempts at one game count once, by their maxima."""
    if subject.words is None:
        return None
    games = tuple(games)
    sums, doubts = _by_game(games), sum(len(game.doubts) for game in games)
    rows = sorted((_told(pair, of, subject.leak_budget) for pair, of in sums.items()), key=_first)
    return WordsLedger(rule=subject.words, budget=subject.leak_budget, rows=tuple(rows), unaccounted=doubts)


def above_budget(games: Iterable[GameWords], budget: float | None) -> Iterator[tuple[OwnerAndReader, int, float]]:
    """The owner and the reader, the game, and the bits, wherever a game has more than the budget."""
    for pair, of in _by_game(games).items():
        yield from ((pair, number, told.bits) for number, told in of.items() if _over(told.bits, budget))


def _by_game(games: Iterable[GameWords]) -> dict[OwnerAndReader, dict[int, WordTotals]]:
    sums: dict[OwnerAndReader, dict[int, WordTotals]] = {}
    for game in games:
        for pair, told in game.sums.items():
            of = sums.setdefault(pair, {})
            of[game.number] = told.most(of.get(game.number, WordTotals()))
    return sums


def _over(bits: float, budget: float | None) -> bool:
    return budget is not None and bits > budget + LEAST


def _told(pair: OwnerAndReader, games: Mapping[int, WordTotals], budget: float | None) -> Told:
    most = max(games, key=lambda number: (games[number].bits, -number))
    whole = WordTotals()
    for each in games.values():
        whole = whole.plus(each)
    bits = games[most].bits
    over = _over(bits, budget)
    counts = {"typed": whole.typed, "free": whole.free, "passed": whole.passed, "acts": whole.acts}
    return Told(owner=pair[0], reader=pair[1], bits=bits, game=most, games=len(games), over=over, **counts)


def _first(row: Told) -> tuple[bool, bool, float, str, str]:
    """Sort key: rows over the budget first, then unbounded ones, then by bits."""
    return (not row.over, row.bounded, -row.bits, row.owner, row.reader)


def attempts(verdicts: Sequence[GameVerdict], subject: Subject) -> tuple[GameWords, ...]:
    """The words of each attempt at each game; empty if the run had no rule for words."""
    return () if subject.words is None else tuple(GameWords(verdict, subject) for verdict in verdicts)
