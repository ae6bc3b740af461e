"""The five arms of the differential test on one game: rows of a reader's messages, before and after a swap.

Does not know: other games' results, statistics over games.
"""

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

Said = dict[str, NDArray[np.float32]]
"""Rows by decode."""
SWAPS: tuple[Swap, ...] = ("same-length", "other-length")


class Ways(NamedTuple):
    """The ways of reading that the arms compare."""

    reuse: ReusePolicy
    enforce: ReusePolicy
    plain: ReusePolicy


def ways(deterministic: bool) -> Ways:
    """All in one profile but the ceiling, of which nothing exact is claimed: it is fast. Shadows play no part, for
    every word is known."""
    reuse = ReusePolicy("choreographed", "audit", "never", deterministic)
    return Ways(reuse, reuse._replace(leakage="enforce"), ReusePolicy("baseline", "audit", "never", False))


class Shown(NamedTuple):
    """One game, one pair, one swap, one arm: how far each row moved, and the decision before and after."""

    game: int
    pair: Pair
    swap: Swap
    arm: Arm
    tv: Floats
    kl: Floats
    before: int | None
    after: int | None


class Bench:
    """Plays games on one engine. `skipped` counts, by reason, what could not be encoded."""

    def __init__(self, engine: MeasuredPort, plays: Sequence[Play], seed: int, deterministic: bool) -> None:
        self.engine, self.plays, self.seed = engine, plays, seed
        self.ways = ways(deterministic)
        self.skipped: Counter[str] = Counter()

    def of(self, games: Sequence[int]) -> Bench:
        """The same with these games alone, counting together what is skipped."""
        bench = copy(self)
        bench.plays = [self.plays[game] for game in games]
        return bench

    def said(
        self, play: Play, reuse: ReusePolicy, decodes: Sequence[Line], first: Sequence[str] = (), apart: bool = False
    ) -> Said | None:
        """The rows of these decodes, encoded from nothing; None, and counted: they cannot be."""
        try:
            with Stage(self.engine, play, reuse, apart) as stage:
                return {line.message.id: stage.rows(line.message.id, first) for line in decodes}
        except UNENCODABLE as error:
            self.skipped[why_not(error)] += 1
            return None


class Original(NamedTuple):
    """A game as it was, under each way, for every decode that some pair compares; None: it could not be encoded."""

    reuse: Said | None
    floor: Said | None
    enforce: Said | None


def original(bench: Bench, game: int, readers: Sequence[str]) -> Original:
    """Encode a game as it was: once, once again from nothing and each encoding alone, and under enforcement."""
    play = bench.plays[game]
    decodes = [line for reader in readers for line in play.decodes(reader)]
    reuse, enforce = bench.ways.reuse, bench.ways.enforce
    floor = bench.said(play, reuse, decodes, apart=True)
    return Original(bench.said(play, reuse, decodes), floor, bench.said(play, enforce, decodes))


def shown(bench: Bench, game: int, pair: Pair, before: Original, asked: Question | None) -> Iterator[Shown]:
    """Every arm of one game and pair that could be encoded. Everything the reader may see stays as it was."""
    play = bench.plays[game]
    decodes = compared(play, pair)
    plain = bench.said(play, bench.ways.plain, decodes, in_sight(play, pair))
    for swap in SWAPS:
        words = swapped(bench.plays, game, pair, swap, bench.seed)
        if not words:
            bench.skipped["no other words for its secrets"] += 1
            continue
        other = play.saying(words)
        after_plain = bench.said(other, bench.ways.plain, decodes, in_sight(play, pair))
        arms: dict[Arm, tuple[Said | None, Said | None]] = {
            "reuse": (before.reuse, bench.said(other, bench.ways.reuse, decodes)),
            "floor": (before.reuse, before.floor),
            "enforce": (before.enforce, before.enforce and bench.said(other, bench.ways.enforce, decodes)),
            "plain": (plain, after_plain),
            "stale": (before.reuse, before.enforce),
        }
        for arm, (one, two) in arms.items():
            if one is not None and two is not None:
                yield _shown(game, pair, swap, arm, [line.message.id for line in decodes], one, two, asked)


def in_sight(play: Play, pair: Pair) -> list[str]:
    """The secrets to be put in plain sight: those behind what the reader reads; where there are none, all that were
    said before its last message."""
    secrets = [line.message.id for line in play.hidden(pair.owner, pair.reader)]
    through, said = through_to(play, pair), play.decodes(pair.reader)
    order = [line.message.id for line in play.lines]
    early = set(order[: order.index(said[-1].message.id)]) if said else set[str]()
    return [id for id in secrets if id in (through or early)]


def _shown(
    game: int, pair: Pair, swap: Swap, arm: Arm, ids: Sequence[str], before: Said, after: Said, asked: Question | None
) -> Shown:
    gaps = [distance(before[id], after[id]) for id in ids]
    empty = np.zeros(0)
    tv, kl = np.concatenate([empty, *(g.tv for g in gaps)]), np.concatenate([empty, *(g.kl for g in gaps)])
    if asked is None or asked.id not in ids:
        return Shown(game, pair, swap, arm, tv, kl, None, None)
    return Shown(game, pair, swap, arm, tv, kl, asked.answer(before[asked.id]), asked.answer(after[asked.id]))
