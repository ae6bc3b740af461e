"""Aggregates games to effects: the largest and the mean movement of rows, decisions that flipped, p-values over pairs.
Independent of engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agentcho.audit.measurement import Arm, Effect, Swap
from agentcho.lab.measure.arms import SWAPS, Shift
from agentcho.lab.measure.play import Pair
from agentcho.lab.stats import Floats, clopper_pearson, clustered, holm, mcnemar, pooled_mean

ARMS: tuple[Arm, ...] = ("reuse", "floor", "enforce", "plain", "stale")


class Flips(NamedTuple):
    """The number of decisions that changed. `gained` changed to the reference choice, `lost` away from it."""

    decisions: int
    flips: int
    gained: int
    lost: int

    @property
    def p(self) -> float:
        """McNemar's exact p."""
        return mcnemar(self.gained, self.lost)


def flips(before: Sequence[int], after: Sequence[int], reference: int | None = None) -> Flips:
    """Count the flips. The reference is the given token, or else the most frequent one before."""
    if reference is None:
        reference = max(sorted(set(before)), key=Counter(before).__getitem__, default=0)
    turned = [(one, two) for one, two in zip(before, after, strict=True) if one != two]
    gained, lost = (sum(pair[side] == reference for pair in turned) for side in (1, 0))
    return Flips(len(before), len(turned), gained, lost)


def effects(found: Sequence[Shift], pairs: Sequence[Pair], carried: frozenset[Pair], seed: int) -> tuple[Effect, ...]:
    """One effect per pair, swap and arm that some game has. Holm's correction runs over the pairs of one swap and one
    arm. `carried` are the pairs in which the owner's secrets are behind what the reader reads."""
    made: list[Effect] = []
    for swap in SWAPS:
        for arm in ARMS:
            family = {pair: [s for s in found if (s.pair, s.swap, s.arm) == (pair, swap, arm)] for pair in pairs}
            made += _family(
                family={pair: own for pair, own in family.items() if own},
                swap=swap,
                arm=arm,
                carried=carried,
                seed=seed,
            )
    return tuple(made)


def _family(family: dict[Pair, list[Shift]], swap: Swap, arm: Arm, carried: frozenset[Pair], seed: int) -> list[Effect]:
    counts = {pair: _flips(own) for pair, own in family.items()}
    adjusted = dict(zip(counts, holm([count.p for count in counts.values()]), strict=True))
    return [
        _effect(
            pair=pair,
            own=own,
            swap=swap,
            arm=arm,
            count=counts[pair],
            holm_p=adjusted[pair],
            carried=pair in carried,
            seed=seed,
        )
        for pair, own in family.items()
    ]


def _flips(own: Sequence[Shift]) -> Flips:
    decided = [(s.before, s.after) for s in own if s.before is not None and s.after is not None]
    return flips([before for before, _ in decided], [after for _, after in decided])


def _effect(
    pair: Pair, own: Sequence[Shift], swap: Swap, arm: Arm, count: Flips, holm_p: float, carried: bool, seed: int
) -> Effect:
    tv, kl = [s.tv for s in own], [s.kl for s in own]
    return Effect(
        reader=pair.reader,
        owner=pair.owner,
        swap=swap,
        arm=arm,
        carried=carried,
        games=len(own),
        rows=sum(map(len, tv)),
        tv_max=_largest(tv),
        tv_mean=pooled_mean(tv),
        tv_interval=clustered(tv, seed),
        kl_max=_largest(kl),
        kl_mean=pooled_mean(kl),
        kl_interval=clustered(kl, seed),
        decisions=count.decisions,
        flips=count.flips,
        flip_interval=clopper_pearson(count.flips, count.decisions),
        mcnemar_p=count.p,
        holm_p=holm_p,
    )


def _largest(games: Sequence[Floats]) -> float:
    return max((float(game.max()) for game in games if len(game)), default=0.0)
