"""Runs all measurements of an audit on an engine: the size of a leak, never whether there is one.

A verdict comes from receipts alone and does not depend on anything here: a measured zero clears nothing. Must not know
verdicts or records on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

from agentcho.audit.measurement import Measurement, Probe
from agentcho.lab.measure.ablation import HEADERS, Answered, Outcome, ablations, answered
from agentcho.lab.measure.arms import Experiment, Shift, original, shifts_of
from agentcho.lab.measure.controls import noise
from agentcho.lab.measure.decisions import Question, question
from agentcho.lab.measure.differential import effects
from agentcho.lab.measure.play import (
    MeasuredPort,
    Pair,
    Play,
    guess_choices,
    of_entries,
    of_workflow,
    pairs,
    through_to,
)
from agentcho.lab.measure.probe import probe
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.records.trace import Workflow
from agentcho.records.transcript import TranscriptEntry

Part = Literal["differential", "probe", "ablation"]
PARTS: frozenset[Part] = frozenset({"differential", "probe", "ablation"})
SCOPE = (
    "Effects are measured in choreographed mode on the words of the finished games, in whichever mode these were "
    "played: reuse reads what audit reads, enforce what enforce reads.",
    "A measured zero clears nothing: the verdict comes from receipts alone.",
    "A swap replaces a secret by what the same owner said in the same place of another game. What is equal in all "
    "games is no secret and stays, unless nothing else is behind what the reader reads; then its tokens are shuffled.",
    "The ceiling (plain) is measured in the fast profile, so it is not exact to the bit.",
    "Words that were generated token by token are encoded here in one piece.",
)
NOTHING = "Nobody hides anything from anybody: there is nothing to swap."
BOUND = (
    "The probe is a lower bound on the channel: a better reader may find more. It knows the public words and compares "
    "with its own encoding of them behind a secret of a game that is put aside. No correction is made over layers."
)


def measure(
    games: Sequence[Sequence[TranscriptEntry] | Workflow],
    engine: Any,
    *,
    seed: int = 0,
    deterministic: bool = True,
    parts: Collection[Part] = PARTS,
    kinds: Sequence[str] | None = None,
    tell: ProgressCallback = no_progress,
) -> Measurement:
    """Measure finished games: entries of a transcript, one sequence per game, or workflows of a trace.

    `engine` is an `Engine` that nothing else uses meanwhile; all encodings made are released. `deterministic` is the
    profile of the arms. `kinds` name the kind of each game's secrets, for the probe. `tell` is called after each game
    and part. What cannot be encoded (refused, too long) is left out and counted in the notes. Raises what the engine
    raises on its own failure.
    """
    port: MeasuredPort = engine
    plays = _plays(games, port, kinds)
    experiment, found = Experiment(port, plays, seed, deterministic), pairs(plays)
    work = _Work(experiment, found, parts, tell)
    shifts, answers = work.games()
    probes, notes = work.probes()
    reached = frozenset(pair for pair in found if any(through_to(play, pair) for play in plays))
    made = effects(shifts, found, reached, seed)
    return Measurement(
        deterministic=deterministic,
        model=port.fingerprint.get("model", "unknown"),
        seed=seed,
        games=len(plays),
        noise=noise(made),
        effects=made,
        probes=probes,
        ablations=ablations(answers),
        notes=(*SCOPE, *((BOUND,) if probes else ()), *notes, *_skipped(experiment), *(() if found else (NOTHING,))),
    )


def asked_pairs(games: Sequence[Sequence[TranscriptEntry] | Workflow], engine: Any) -> tuple[Pair, ...]:
    """The pairs that `measure` swaps secrets of in these games, whether or not they can be encoded."""
    return pairs(_plays(games, engine, None))


def _plays(
    games: Sequence[Sequence[TranscriptEntry] | Workflow], engine: MeasuredPort, kinds: Sequence[str] | None
) -> tuple[Play, ...]:
    named: Sequence[str | None] = kinds or [None] * len(games)
    if len(named) != len(games):
        raise ValueError(f"{len(named)} kinds for {len(games)} games; give one kind per game")
    plays = [_play(game, engine, number) for number, game in enumerate(games)]
    return guess_choices([play._replace(kind=kind or play.kind) for play, kind in zip(plays, named, strict=True)])


def _play(game: Sequence[TranscriptEntry] | Workflow, engine: MeasuredPort, number: int) -> Play:
    return of_workflow(game, engine, number) if isinstance(game, Workflow) else of_entries(game)


class _Work:
    """The state of the measurements."""

    def __init__(
        self, experiment: Experiment, found: Sequence[Pair], parts: Collection[Part], tell: ProgressCallback
    ) -> None:
        self._experiment = experiment
        self._pairs = found
        self._parts = parts
        self._tell = tell
        self._owners = {pair.owner: pair for pair in reversed(found)} if "probe" in parts else {}
        looks = bool({"differential", "ablation"} & set(parts)) and bool(found)
        self._all, self._done = len(experiment.plays) * (looks + len(self._owners)), 0
        self._looks = looks
        framing = experiment.engine.framing
        self._encode, self._closing = framing.content.encode, framing.end

    def games(self) -> tuple[list[Shift], list[list[Answered]]]:
        """The arms and the ablation, game by game; both use the same encodings."""
        shifts, answers = list[Shift](), list[list[Answered]]()
        for game in range(len(self._experiment.plays)) if self._looks else ():
            before = original(self._experiment, game, sorted({pair.reader for pair in self._pairs}))
            for pair in self._pairs:
                asked = self._asked(self._experiment.plays[game], pair)
                if "differential" in self._parts:
                    shifts += shifts_of(
                        experiment=self._experiment, game=game, pair=pair, before=before, asked=asked.get("decision")
                    )
                if "ablation" in self._parts:
                    answers.append(
                        list(answered(experiment=self._experiment, game=game, pair=pair, before=before, asked=asked))
                    )
            self._tick()
        return shifts, answers

    def probes(self) -> tuple[tuple[Probe, ...], list[str]]:
        """The probes of each owner, as read by the first agent that it hides something from."""
        found, notes = list[Probe](), list[str]()
        for pair in reversed(self._owners.values()):
            end = self._done + len(self._experiment.plays)
            made, note = probe(self._experiment, pair, self._tick)
            found += made
            notes.append(note)
            self._tick(end - self._done)
        return tuple(found), notes

    def _asked(self, play: Play, pair: Pair) -> dict[Outcome, Question]:
        asked = {
            outcome: question(play=play, reader=pair.reader, encode=self._encode, closing=self._closing, header=header)
            for outcome, header in HEADERS.items()
        }
        return {outcome: one for outcome, one in asked.items() if one is not None}

    def _tick(self, steps: int = 1) -> None:
        self._done += steps
        self._tell("measurements", self._done, self._all)


def _skipped(experiment: Experiment) -> Iterator[str]:
    for reason, times in sorted(experiment.skipped.items()):
        yield f"left out {times} times: {reason}"
