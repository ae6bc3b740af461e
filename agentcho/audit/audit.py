"""The verdict of an audit: from transcripts to a report, by receipts and audiences alone, without engine or model.

Does not know: how games were played, what a leak does, how a report is drawn.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from agentcho.audit import findings, notes, tables
from agentcho.audit.calls import GameCalls
from agentcho.audit.judgement import concluded
from agentcho.audit.notes import Seal
from agentcho.audit.positions import raw_offsets
from agentcho.audit.report import LEVELS, AuditReport, Blockage, Finding, Place, Release, Said, Subject, Unfinished
from agentcho.audit.rules import RULES
from agentcho.audit.subject import of_run
from agentcho.audit.verdict import GameVerdict, Reading, line_of
from agentcho.audit.words import GameWords, attempts, ledger
from agentcho.records.calls import CallLine, begun_lines
from agentcho.records.models import LOCAL, Models
from agentcho.records.names import CALLS
from agentcho.records.record import SavedRun
from agentcho.records.transcript import Entry, by_attempt

BegunLines = Mapping[tuple[int, int], Sequence[CallLine]]
"""The lines of calls of tools before they were made, by game and attempt."""


class Refused(NamedTuple):
    """A game that ended because a reading was not allowed to happen; `said` are its messages, to be drawn."""

    reading: Reading
    said: tuple[Said, ...]


class Planned(NamedTuple):
    """Facts about games that were planned and not played: the line of the file of each, for messages without a place,
    and the games that ended in a refusal."""

    places: Mapping[int, Place] = MappingProxyType({})
    refused: Mapping[int, Refused] = MappingProxyType({})


PLAYED = Planned()
"""Games that were played have neither."""


class Judged(NamedTuple):
    """What was found in all games."""

    verdicts: tuple[GameVerdict, ...]
    readings: tuple[Reading, ...]
    blockages: tuple[Blockage, ...]
    releases: tuple[Release, ...]
    unfinished: tuple[Unfinished, ...]
    calls: tuple[GameCalls, ...]
    words: tuple[GameWords, ...]


def audit_run(run: SavedRun, reveal: bool = False, key: bytes | None = None) -> AuditReport:
    """Audit a recorded run, finished or not. `key` is that of the digests, by default the run's own; `reveal` puts
    texts into the report. Raises `RecordBroken` where a line is none."""
    seal = Seal(key or run.info.key.encode() or new_key(), reveal)
    games = run.attempts()
    begun = defaultdict[tuple[int, int], list[CallLine]](list)
    for line in begun_lines(run.path / CALLS):
        begun[line.game, line.attempt].append(line)
    subject, models = of_run(run, games, seal), run.info.models
    return audit_entries(subject, games, seal, models=models, begun=begun, side_by_side=_side_by_side(run, games))


def _side_by_side(run: SavedRun, games: Collection[int]) -> frozenset[int]:
    """The games in which messages were said side by side in one place, or of which it is not known. Of a society on a
    server it is not asked: who asks for what and when, its clients decide."""
    overs = {} if run.info.clients else run.finished()
    told = {game for game, over in overs.items() if not over.raced and not over.failed}
    return frozenset() if run.info.clients else frozenset(games) - told


def audit_entries(
    subject: Subject,
    games: Mapping[int, Sequence[Entry]],
    seal: Seal,
    planned: Planned = PLAYED,
    models: Models = LOCAL,
    begun: BegunLines = MappingProxyType({}),
    side_by_side: Container[int] = frozenset(),
) -> AuditReport:
    """Audit transcripts by game, of a run with these models, in which calls of tools were `begun`, and in some games
    messages were said `side_by_side`. Reads nothing but its arguments."""
    judged = _judge(subject, games, seal, planned, models, begun)
    readings = judged.readings
    unclean = tuple(reading.edge for reading in readings if reading.edge.verdict != "clean")
    drawn = tables.worst_game([*games, *planned.refused], readings)
    report = AuditReport(
        subject=_subject(subject, games),
        conclusion="clean",
        reasons=(),
        readers=tables.by_reader(subject.agents, readings),
        matrix=tables.matrix(readings),
        findings=tuple(_findings(subject, games, judged, side_by_side)),
        edges=unclean,
        clean_edges=len(readings) - len(unclean),
        blockages=judged.blockages,
        releases=judged.releases,
        unfinished=judged.unfinished,
        drawn_game=drawn,
        drawn=() if drawn is None else _drawn(drawn, games.get(drawn, ()), readings, seal, planned),
        texts=sum(len(verdict.texts) for verdict in judged.verdicts),
        words=ledger(subject, judged.words),
        calls=tuple(chain.from_iterable(game.reported() for game in judged.calls)),
    )
    return concluded(report)


def new_key() -> bytes:
    """A key for digests that nobody else has."""
    return secrets.token_bytes(32)


def _judge(
    subject: Subject,
    games: Mapping[int, Sequence[Entry]],
    seal: Seal,
    planned: Planned,
    models: Models,
    begun: BegunLines,
) -> Judged:
    played = [(game, said) for game, entries in games.items() for said in by_attempt(entries)]
    verdicts = tuple(GameVerdict(game, said, planned.places.get(game), models) for game, said in played)
    readings = chain.from_iterable(verdict.readings() for verdict in verdicts)
    calls = tuple(
        GameCalls(verdict, begun.get((game, said[0].attempt if said else 1), ()))
        for verdict, (game, said) in zip(verdicts, played, strict=True)
    )
    released = (*(notes.releases(verdict, seal) for verdict in verdicts), *(game.releases(seal) for game in calls))
    return Judged(
        verdicts,
        (*readings, *(refusal.reading for refusal in planned.refused.values())),
        tuple(chain.from_iterable(notes.blockages(verdict) for verdict in verdicts)),
        tuple(chain.from_iterable(released)),
        tuple(chain.from_iterable(notes.unfinished(verdict, seal) for verdict in verdicts)),
        calls,
        attempts(verdicts, subject),
    )


def _findings(
    subject: Subject, games: Mapping[int, Sequence[Entry]], judged: Judged, side_by_side: Container[int]
) -> list[Finding]:
    scenario = subject.scenario
    lines: dict[tuple[int, str], Place | None] = {}
    for verdict in judged.verdicts:
        lines |= {(verdict.game, id): verdict.asked(entry) for id, entry in verdict.cones.entries.items()}
    found = [
        *findings.leaks(scenario, judged.readings, judged.verdicts),
        *findings.of_the_run(subject, encoded=any(v.cones.records or not v.texts for v in judged.verdicts)),
        *findings.acts(scenario, games),
        *findings.brought(subject, games),
        *findings.ordered(scenario, subject.agents, games, side_by_side),
        *findings.released(scenario, judged.releases, lines, games),
        *findings.blocked(scenario, judged.blockages, lines),
        *findings.called(scenario, judged.calls),
        *findings.told(subject, ledger(subject, judged.words), judged.words),
    ]
    return sorted(found, key=order)


def order(finding: Finding) -> tuple[int, str, str, str, str]:
    """The sort key of findings in a report: level, rule and names."""
    names = (finding.reader or "", finding.owner or "", finding.carrier or "")
    return (LEVELS.index(RULES[finding.rule].level), finding.rule, *names)


def _subject(subject: Subject, games: Mapping[int, Sequence[Entry]]) -> Subject:
    raw = sum(raw_offsets(entries) for entries in games.values())
    return subject.model_copy(update={"environment": subject.environment | {"raw offsets": str(raw)}})


def _drawn(
    game: int, entries: Sequence[Entry], readings: Sequence[Reading], seal: Seal, planned: Planned
) -> tuple[Said, ...]:
    """The messages of the worst attempt at a game."""
    if game in planned.refused:
        return planned.refused[game].said
    attempts = {said[0].attempt: said for said in by_attempt(entries) if said}
    worst, place = tables.worst_attempt(attempts, game, readings), planned.places.get(game)
    shown = () if worst is None else attempts[worst]
    return tuple(notes.said(entry.message, seal, line_of(entry.act.where) or place) for entry in shown)
