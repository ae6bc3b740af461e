"""What an audit works out of transcripts before it looks for findings. Does not know: rules, reports."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from agentcho.audit.calls import GameCalls
from agentcho.audit.report import Blockage, Place, Release, Subject, Unfinished, WordsLedger
from agentcho.audit.verdict import GameVerdict, Reading
from agentcho.audit.words import GameWords, ledger
from agentcho.records.transcript import TranscriptEntry


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All games of a run, and what follows from their transcripts.

    Args:
        subject: What is audited.
        games: The lines of each game, all attempts at it.
        side_by_side: The games in which messages were said side by side in one place, or of which that is not known.
        verdicts: The verdicts on the attempts at games.
        readings: Every reading, with its verdict.
        blockages: Messages that stand in a prompt and were not attended to by a later one.
        releases: Messages and calls before a wider audience than their author had read for.
        unfinished: Messages that were streamed in part and never ended.
        calls: The calls of tools of each attempt.
        words: What words can have told, of each attempt.
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
    def ledger(self) -> WordsLedger | None:
        """What words can have told in all games; None: the run has no rule for words."""
        return ledger(self.subject, self.words)

    @property
    def encoded(self) -> bool:
        """Whether anything was encoded: not where models behind APIs alone have spoken."""
        return any(verdict.cones.records or not verdict.texts for verdict in self.verdicts)
