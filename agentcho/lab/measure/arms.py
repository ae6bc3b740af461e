"""The five arms of the differential test on one game: rows of a reader's messages, before and after a swap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.audit.measurement import Arm, Swap
from agentcho.config import ReusePolicy
from agentcho.lab.measure.decisions import Question
from agentcho.lab.measure.play import Line, MeasuredPort, Pair, Play, compared, through_to
from agentcho.lab.measure.stage import UNENCODABLE, Stage, why_not
from agentcho.lab.measure.swap import swapped
from agentcho.lab.stats import Floats, distance

RowsByMessage = dict[str, NDArray[np.float32]]
"""Rows by decode."""
SWAPS: tuple[Swap, ...] = ("same-length", "other-length")


class Policies(NamedTuple):
    """The reuse policies that the arms compare."""

    reuse: ReusePolicy
    enforce: ReusePolicy
    plain: ReusePolicy


def policies(deterministic: bool) -> Policies:
    """All use the same profile, except the ceiling, which uses the fast one: nothing exact is claimed of it. There are
    no shadows, because every text is known."""
    reuse = ReusePolicy("choreographed", "audit", "never", deterministic)
    return Policies(reuse, reuse._replace(leakage="enforce"), ReusePolicy("baseline", "audit", "never", False))


class Shift(NamedTuple):
    """One game, one pair, one swap, one arm: how far each row moved, and the decision before and after."""

    game: int
    pair: Pair
    swap: Swap
    arm: Arm
    tv: Floats
    kl: Floats
    before: int | None
    after: int | None


class Experiment:
    """Games, the engine that encodes them, and the policies that are compared. `skipped` counts what could not be
    encoded, by reason."""

    def __init__(self, engine: MeasuredPort, plays: Sequence[Play], seed: int, deterministic: bool) -> None:
        self.engine = engine
        self.plays = plays
        self.seed = seed
        self.policies = policies(deterministic)
        self.skipped: Counter[str] = Counter()

    def of(self, games: Sequence[int]) -> Experiment:
        """The same experiment on these games alone, with the same count of skipped games."""
        experiment = copy(self)
        experiment.plays = [self.plays[game] for game in games]
        return experiment

    def said(
        self, play: Play, reuse: ReusePolicy, decodes: Sequence[Line], first: Sequence[str] = (), apart: bool = False
    ) -> RowsByMessage | None:
        """The rows of these decodes, with every encoding made anew; None if they cannot be encoded, which is counted in
        `skipped`."""
        try:
            with Stage(self.engine, play, reuse, apart) as stage:
                return {line.message.id: stage.rows(line.message.id, first) for line in decodes}
        except UNENCODABLE as error:
            self.skipped[why_not(error)] += 1
            return None


class Original(NamedTuple):
    """The rows of an unchanged game under each policy, for every decode that some pair compares; None: it could not be
    encoded."""

    reuse: RowsByMessage | None
    floor: RowsByMessage | None
    enforce: RowsByMessage | None


def original(experiment: Experiment, game: int, readers: Sequence[str]) -> Original:
    """Encode an unchanged game three times: with reuse, with reuse and each encoding in a step of its own, and under
    enforcement."""
    play = experiment.plays[game]
    decodes = [line for reader in readers for line in play.decodes(reader)]
    reuse, enforce = experiment.policies.reuse, experiment.policies.enforce
    floor = experiment.said(play, reuse, decodes, apart=True)
    return Original(experiment.said(play, reuse, decodes), floor, experiment.said(play, enforce, decodes))


def shifts_of(
    experiment: Experiment, game: int, pair: Pair, before: Original, asked: Question | None
) -> Iterator[Shift]:
    """Every arm of one game and pair that could be encoded. Everything that the reader may see is unchanged."""
    play = experiment.plays[game]
    decodes = compared(play, pair)
    plain = experiment.said(play, experiment.policies.plain, decodes, in_sight(play, pair))
    for swap in SWAPS:
        words = swapped(plays=experiment.plays, game=game, pair=pair, swap=swap, seed=experiment.seed)
        if not words:
            experiment.skipped["no other words for its secrets"] += 1
            continue
        other = play.saying(words)
        after_plain = experiment.said(other, experiment.policies.plain, decodes, in_sight(play, pair))
        arms: dict[Arm, tuple[RowsByMessage | None, RowsByMessage | None]] = {
            "reuse": (before.reuse, experiment.said(other, experiment.policies.reuse, decodes)),
            "floor": (before.reuse, before.floor),
            "enforce": (
                before.enforce,
                before.enforce and experiment.said(other, experiment.policies.enforce, decodes),
            ),
            "plain": (plain, after_plain),
            "stale": (before.reuse, before.enforce),
        }
        for arm, (one, two) in arms.items():
            if one is not None and two is not None:
                yield _shift(
                    game=game,
                    pair=pair,
                    swap=swap,
                    arm=arm,
                    ids=[line.message.id for line in decodes],
                    before=one,
                    after=two,
                    asked=asked,
                )


def in_sight(play: Play, pair: Pair) -> list[str]:
    """The secrets to put into the reader's own prompt: those that reach what it reads; if there are none, all secrets
    before its last message."""
    secrets = [line.message.id for line in play.hidden(pair.owner, pair.reader)]
    through, said = through_to(play, pair), play.decodes(pair.reader)
    order = [line.message.id for line in play.lines]
    early = set(order[: order.index(said[-1].message.id)]) if said else set[str]()
    return [id for id in secrets if id in (through or early)]


def _shift(
    game: int,
    pair: Pair,
    swap: Swap,
    arm: Arm,
    ids: Sequence[str],
    before: RowsByMessage,
    after: RowsByMessage,
    asked: Question | None,
) -> Shift:
    gaps = [distance(before[id], after[id]) for id in ids]
    empty = np.zeros(0)
    tv, kl = np.concatenate([empty, *(g.tv for g in gaps)]), np.concatenate([empty, *(g.kl for g in gaps)])
    if asked is None or asked.id not in ids:
        return Shift(game=game, pair=pair, swap=swap, arm=arm, tv=tv, kl=kl, before=None, after=None)
    return Shift(
        game=game,
        pair=pair,
        swap=swap,
        arm=arm,
        tv=tv,
        kl=kl,
        before=asked.answer(before[asked.id]),
        after=asked.answer(after[asked.id]),
    )
