"""Builds the report of an audit from transcripts, using receipts and audiences only, without an engine or a model.

Independent of how games are played, how leaks are measured and how a report is rendered.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from agentcho.audit import notes, tables
from agentcho.audit.calls import GameCalls
from agentcho.audit.facts import Facts
from agentcho.audit.finders import findings
from agentcho.audit.judgement import concluded
from agentcho.audit.notes import Seal
from agentcho.audit.positions import raw_offsets
from agentcho.audit.report import AuditReport, Place, Said, Subject
from agentcho.audit.subject import of_run
from agentcho.audit.verdict import GameVerdict, Reading, line_of
from agentcho.audit.words import attempts
from agentcho.records.calls import CallLine, begun_lines
from agentcho.records.models import LOCAL, RecordedModels
from agentcho.records.names import CALLS
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry, by_attempt

BegunLines = Mapping[tuple[int, int], Sequence[CallLine]]
"""The lines written before tool calls were made, by game and attempt."""


class RefusedGame(NamedTuple):
    """A game that ended because a reading was refused; `said` are its messages, for the drawing."""

    reading: Reading
    said: tuple[Said, ...]


class PlannedGames(NamedTuple):
    """Facts about games that were planned and not played: the line of each in its file, for messages without a place of
    their own, and the games that ended in a refusal."""

    places: Mapping[int, Place] = MappingProxyType({})
    refused: Mapping[int, RefusedGame] = MappingProxyType({})


PLAYED = PlannedGames()
"""The value for games that were played: no places, no refusals."""


def audit_run(run: SavedRun, reveal: bool = False, key: bytes | None = None) -> AuditReport:
    """Audit a recorded run, finished or not.

    Args:
        run: The run.
        reveal: Whether to put texts of messages into the report.
        key: Key of the digests in the report. None means the run's own.

    Returns:
        The report.

    Raises:
        RecordBroken: A line of the record is damaged.
    """
    seal = Seal(key or run.info.key.encode() or new_key(), reveal)
    games = run.attempts()
    begun = defaultdict[tuple[int, int], list[CallLine]](list)
    for line in begun_lines(run.path / CALLS):
        begun[line.game, line.attempt].append(line)
    subject = of_run(run, games, seal)
    side_by_side = _side_by_side(run, games)
    return audit_entries(subject, games, seal, models=run.info.models, begun=begun, side_by_side=side_by_side)


def _side_by_side(run: SavedRun, games: Collection[int]) -> frozenset[int]:
    """The games in which the order of messages depended on which act ended first, or for which this is unknown. Empty
    for a society on a server, whose clients decide what is requested when."""
    overs = {} if run.info.clients else run.finished()
    told = {game for game, over in overs.items() if not over.raced and not over.failed}
    return frozenset() if run.info.clients else frozenset(games) - told


def audit_entries(
    subject: Subject,
    games: Mapping[int, Sequence[TranscriptEntry]],
    seal: Seal,
    planned: PlannedGames = PLAYED,
    models: RecordedModels = LOCAL,
    begun: BegunLines = MappingProxyType({}),
    side_by_side: Container[int] = frozenset(),
) -> AuditReport:
    """Audit transcripts by game. Reads nothing but its arguments.

    Args:
        subject: What is audited.
        games: The transcript of each game.
        seal: Makes the digests in the report.
        planned: Facts about games that were planned and not played.
        models: The models of the run.
        begun: Records of tool calls before they were made, by game and attempt.
        side_by_side: Games in which message order depended on which act ended first, or for which this is unknown.

    Returns:
        The report.
    """
    facts = _facts(
        subject,
        games,
        seal=seal,
        planned=planned,
        models=models,
        begun=begun,
        side_by_side=side_by_side,
    )
    readings = facts.readings
    unclean = tuple(reading.edge for reading in readings if reading.edge.verdict != "clean")
    drawn = tables.worst_game([*games, *planned.refused], readings)
    report = AuditReport(
        subject=_subject(subject, games),
        conclusion="clean",
        reasons=(),
        readers=tables.by_reader(subject.agents, readings),
        matrix=tables.matrix(readings),
        findings=tuple(findings(facts)),
        edges=unclean,
        clean_edges=len(readings) - len(unclean),
        blockages=facts.blockages,
        releases=facts.releases,
        unfinished=facts.unfinished,
        drawn_game=drawn,
        drawn=() if drawn is None else _drawn(drawn, games.get(drawn, ()), readings, seal=seal, planned=planned),
        texts=sum(len(verdict.texts) for verdict in facts.verdicts),
        words=facts.ledger,
        calls=tuple(chain.from_iterable(game.reported() for game in facts.calls)),
    )
    return concluded(report)


def new_key() -> bytes:
    """A new random key for digests."""
    return secrets.token_bytes(32)


def _facts(
    subject: Subject,
    games: Mapping[int, Sequence[TranscriptEntry]],
    *,
    seal: Seal,
    planned: PlannedGames,
    models: RecordedModels,
    begun: BegunLines,
    side_by_side: Container[int],
) -> Facts:
    played = [(game, said) for game, entries in games.items() for said in by_attempt(entries)]
    verdicts = tuple(GameVerdict(game, said, planned.places.get(game), models) for game, said in played)
    readings = chain.from_iterable(verdict.readings() for verdict in verdicts)
    calls = tuple(
        GameCalls(verdict, begun.get((game, said[0].attempt if said else 1), ()))
        for verdict, (game, said) in zip(verdicts, played, strict=True)
    )
    releases = (
        *(notes.releases(verdict, seal) for verdict in verdicts),
        *(notes.released_by_rules(verdict, seal) for verdict in verdicts),
        *(game.releases(seal) for game in calls),
    )
    return Facts(
        subject=subject,
        games=games,
        side_by_side=side_by_side,
        verdicts=verdicts,
        readings=(*readings, *(refusal.reading for refusal in planned.refused.values())),
        blockages=tuple(chain.from_iterable(notes.blockages(verdict) for verdict in verdicts)),
        releases=tuple(chain.from_iterable(releases)),
        unfinished=tuple(chain.from_iterable(notes.unfinished(verdict, seal) for verdict in verdicts)),
        calls=calls,
        words=attempts(verdicts, subject),
    )


def _subject(subject: Subject, games: Mapping[int, Sequence[TranscriptEntry]]) -> Subject:
    raw = sum(raw_offsets(entries) for entries in games.values())
    return subject.model_copy(update={"environment": subject.environment | {"raw offsets": str(raw)}})


def _drawn(
    game: int, entries: Sequence[TranscriptEntry], readings: Sequence[Reading], *, seal: Seal, planned: PlannedGames
) -> tuple[Said, ...]:
    """The messages of the worst attempt at a game."""
    if game in planned.refused:
        return planned.refused[game].said
    attempts = {said[0].attempt: said for said in by_attempt(entries) if said}
    worst = tables.worst_attempt(attempts, game, readings)
    place = planned.places.get(game)
    shown = () if worst is None else attempts[worst]
    return tuple(notes.said(entry.message, seal, line_of(entry.act.where) or place) for entry in shown)
