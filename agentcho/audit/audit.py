"""The verdict of an audit: from transcripts to a report. No engine, no model: receipts and audiences are enough.

Does not know: how games were played, what a leak does, how a report is drawn.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from agentcho.audit import findings, notes, tables
from agentcho.audit.conclusion import concluded
from agentcho.audit.positions import raw_offsets
from agentcho.audit.report import AuditReport, Blockage, Finding, Place, Release, Said, Subject
from agentcho.audit.rules import RULES
from agentcho.audit.subject import of_run
from agentcho.audit.verdict import Judge, Reading, line_of
from agentcho.records.record import SavedRun
from agentcho.records.transcript import Entry, by_attempt

LEVELS = ("error", "warning", "note")


class Refused(NamedTuple):
    """A game that ended because a reading was not allowed to happen; `said` are its messages, to be drawn."""

    reading: Reading
    said: tuple[Said, ...]


class Judged(NamedTuple):
    """What was found in all games."""

    judges: tuple[Judge, ...]
    readings: tuple[Reading, ...]
    blockages: tuple[Blockage, ...]
    releases: tuple[Release, ...]


def audit_run(run: SavedRun, reveal: bool = False, key: bytes | None = None) -> AuditReport:
    """Audit a recorded run, finished or not. `key` is that of the digests, by default the run's own; `reveal` puts
    texts into the report. Raises `RecordBroken` where a line is none."""
    key = key or run.info.key.encode() or new_key()
    games = run.attempts()
    return audit_entries(of_run(run, games, key), games, key, reveal)


def audit_entries(
    subject: Subject, games: Mapping[int, Sequence[Entry]], key: bytes, reveal: bool = False,
    places: Mapping[int, Place] | None = None, refused: Mapping[int, Refused] | None = None,
) -> AuditReport:  # fmt: skip
    """Audit transcripts by game. `places` are the lines to name where a message does not know its own; `refused`
    are games that ended in a refusal. Reads nothing but its arguments."""
    refused = refused or {}
    judged = _judge(games, key, places or {}, refused)
    readings = judged.readings
    drawn = tables.worst_game([*games, *refused], readings)
    shown = () if drawn is None else _shown(drawn, games.get(drawn, ()), readings)
    return concluded(
        AuditReport(
            subject=_subject(subject, games), conclusion="clean", reasons=(),
            readers=tables.by_reader(subject.agents, readings), matrix=tables.matrix(readings),
            findings=tuple(_findings(subject, games, judged)),
            edges=tuple(r.edge for r in readings if r.edge.verdict != "clean"),
            clean_edges=sum(r.edge.verdict == "clean" for r in readings),
            blockages=judged.blockages, releases=judged.releases,
            unfinished=tuple(chain.from_iterable(notes.unfinished(judge, key, reveal) for judge in judged.judges)),
            drawn_game=drawn,
            drawn=() if drawn is None else _drawn(drawn, shown, refused, key, reveal, (places or {}).get(drawn)),
        )
    )  # fmt: skip


def new_key() -> bytes:
    """A key for digests that nobody else has."""
    return secrets.token_bytes(32)


def _judge(
    games: Mapping[int, Sequence[Entry]], key: bytes, places: Mapping[int, Place], refused: Mapping[int, Refused]
) -> Judged:
    judges = tuple(
        Judge(game, said, places.get(game)) for game, entries in games.items() for said in by_attempt(entries)
    )
    readings = chain.from_iterable(judge.readings() for judge in judges)
    return Judged(
        judges, (*readings, *(refusal.reading for refusal in refused.values())),
        tuple(chain.from_iterable(map(notes.blockages, judges))),
        tuple(chain.from_iterable(notes.releases(judge, key) for judge in judges)),
    )  # fmt: skip


def _findings(subject: Subject, games: Mapping[int, Sequence[Entry]], judged: Judged) -> list[Finding]:
    scenario = subject.scenario
    lines = {
        (judge.game, id): judge.asked(entry)
        for judge in judged.judges for id, entry in judge.cones.entries.items()
    }  # fmt: skip
    found = [
        *findings.leaks(scenario, judged.readings, judged.judges),
        *findings.profile(subject),
        *findings.markers(subject),
        *findings.shared_limits(subject),
        *findings.acts(scenario, games),
        *findings.released(scenario, judged.releases, lines, games),
        *findings.blocked(scenario, judged.blockages, lines),
    ]
    return sorted(found, key=order)


def order(finding: Finding) -> tuple[int, str, str, str, str]:
    """How findings stand in a report: by level, rule and names."""
    names = (finding.reader or "", finding.owner or "", finding.carrier or "")
    return (LEVELS.index(RULES[finding.rule].level), finding.rule, *names)


def _subject(subject: Subject, games: Mapping[int, Sequence[Entry]]) -> Subject:
    raw = sum(raw_offsets(entries) for entries in games.values())
    return subject.model_copy(update={"environment": subject.environment | {"raw offsets": str(raw)}})


def _shown(game: int, entries: Sequence[Entry], readings: Sequence[Reading]) -> Sequence[Entry]:
    """The worst of the attempts at a game."""
    attempts = {said[0].attempt: said for said in by_attempt(entries) if said}
    worst = tables.worst_attempt(attempts, game, readings)
    return () if worst is None else attempts[worst]


def _drawn(
    game: int, entries: Sequence[Entry], refused: Mapping[int, Refused], key: bytes, reveal: bool, place: Place | None
) -> tuple[Said, ...]:
    if game in refused:
        return refused[game].said
    return tuple(notes.said(e.message, key, reveal, line_of(e.act.where) or place) for e in entries)
