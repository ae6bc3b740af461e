"""Facts that an audit derives from transcripts before it looks for findings. Independent of rules."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from agentcho.audit.calls import GameCalls
from agentcho.audit.report import Blockage, Place, Release, Subject, Unfinished, WordsLedger
from agentcho.audit.verdict import GameVerdict, Reading, line_of
from agentcho.audit.words import GameWords, ledger
from agentcho.records.transcript import TranscriptEntry

CodeLines = Mapping[tuple[int, int | None, str], Place | None]
"""The line of code that requested a message, by game, attempt and message. Attempt None is the last one that has the
message. Lines of traces are not code."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All games of a run, and the facts derived from their transcripts.

    Args:
        subject: What is audited.
        games: The lines of each game, all attempts at it.
        side_by_side: The games in which message order depended on which act ended first, or for which this is unknown.
        verdicts: The verdicts on the attempts at games.
        readings: Every reading, with its verdict.
        blockages: Messages in a prompt that a later message of the prompt did not attend to.
        releases: Messages and calls to a wider audience than that of what their author had read.
        unfinished: Messages that were streamed in part and never ended.
        calls: The tool calls of each attempt.
        words: How much the words of each attempt can have revealed.
    """

    subject: Subject
    games: Mapping[int, Sequence[TranscriptEntry]]
    side_by_side: Container[int]
    verdicts: tuple[GameVerdict, ...]
    readings: tuple[Reading, ...]
    blockages: tuple[Blockage, ...]
    releases: tuple[Release, ...]
    unfinished: tuple[Unfinished, ...]
    calls: tuple[GameCalls, ...]
    words: tuple[GameWords, ...]

    @cached_property
    def lines(self) -> Mapping[tuple[int, str], Place | None]:
        """The line of code, or of a trace, that asked for a message, by game and message."""
        found: dict[tuple[int, str], Place | None] = {}
        for verdict in self.verdicts:
            found |= {(verdict.game, id): verdict.asked(entry) for id, entry in verdict.cones.entries.items()}
        return found

    @cached_property
    def code(self) -> CodeLines:
        """The line of code that requested each message."""
        found: dict[tuple[int, int | None, str], Place | None] = {}
        for verdict in self.verdicts:
            for id, entry in verdict.cones.entries.items():
                place = line_of(entry.act.where)
                found[verdict.game, verdict.attempt, id] = found[verdict.game, None, id] = place
        return found

    @cached_property
    def ledger(self) -> WordsLedger | None:
        """How much words can have revealed in all games; None: the run has no rule for words."""
        return ledger(self.subject, self.words)

    @property
    def encoded(self) -> bool:
        """Whether anything was encoded: False if only models behind APIs have spoken."""
        return any(verdict.cones.records or not verdict.texts for verdict in self.verdicts)
