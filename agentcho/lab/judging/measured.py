"""Measures each task in each reading mode, choice by choice against the baseline; selects a policy on one half of the
choices, and evaluates it on the other.

Every block is saved beside the result file at once, so that an interrupted measurement can be resumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from pydantic import Field

from agentcho.config import Leakage
from agentcho.errors import ConfigError
from agentcho.lab.judging.cases import CANDIDATES, TASKS, drawn
from agentcho.lab.judging.picked import BASELINE, REUSE, Way, picked, way
from agentcho.lab.judging.result import AGREE, ANEW, Agreement, Block, Failing, Row, Target
from agentcho.lab.partial import PartialData, PartialResult, code_digest
from agentcho.lab.stats import clopper_pearson
from agentcho.protocol.progress import ProgressCallback

FOLDERS = ("lab/judging", "provenance", "engine", "reuse", "runner", "protocol")
TOGETHER = 10
"""The number of choices that are played in one workflow."""
HARD = 0.80
"""Plain reuse fails a task if it keeps at most this share of choices."""
WAYS = (BASELINE, REUSE, "first-k:16", "ends:0,16", "ends:0,32", "top-k:0.3", "cacheblend:0.3", "full")
"""The modes that are measured if none is named."""


class JudgeOptions(NamedTuple):
    """What is measured: `n` choices per task."""

    tasks: tuple[str, ...]
    ways: tuple[Way, ...]
    n: int
    seed: int

    @classmethod
    def of(cls, tasks: Iterable[str], names: Iterable[str], n: int, seed: int, leakage: Leakage) -> JudgeOptions:
        """Options from the names of tasks and modes; baseline and plain reuse are added. `ConfigError`: unknown
        name."""
        named = tuple(dict.fromkeys((BASELINE, REUSE, *names)))
        for task in (wanted := tuple(dict.fromkeys(tasks))):
            if task not in TASKS:
                raise ConfigError(f"unknown task {task!r}; give one of {', '.join(TASKS)}")
        return cls(wanted, tuple(way(name, leakage) for name in named), n, seed)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that blocks depend on."""
        return {"seed": str(self.seed), "leakage": self.ways[0].policy.leakage}


class JudgePart(PartialData):
    """The content of the file: blocks by task, mode and number."""

    format: Literal["agentcho-bench-judge-part/1"] = "agentcho-bench-judge-part/1"
    blocks: dict[str, dict[str, dict[int, Block]]] = Field(default_factory=dict)


class PartialJudge(PartialResult[JudgePart]):
    """The partial results."""

    data_type = JudgePart
    by = "`agentcho bench judge`"

    def lacking(self, task: str, ways: Sequence[Way], block: int, choices: int) -> list[Way]:
        """The modes in which a block of this many choices was not played yet, or only with fewer choices."""
        known = self.data.blocks.get(task, {})
        there = {name for name, blocks in known.items() if block in blocks and len(blocks[block].picks) == choices}
        return [each for each in ways if each.name not in there]

    def add(self, task: str, block: int, found: dict[str, Block]) -> None:
        """Add the blocks of each mode, and save."""
        for name, each in found.items():
            self.data.blocks.setdefault(task, {}).setdefault(name, {})[block] = each
        self.save()

    def of(self, task: str, name: str, n: int) -> list[Block]:
        """The blocks of the first `n` choices."""
        found = self.data.blocks[task][name]
        return [found[number] for number, _ in enumerate(_blocks(n))]


def _blocks(n: int) -> list[range]:
    return [range(first, min(first + TOGETHER, n)) for first in range(0, n, TOGETHER)]


def measure(engine: Any, asked: JudgeOptions, kept: PartialJudge, tell: ProgressCallback) -> None:
    """Play what is not saved yet. `tell` receives the progress in choices."""
    of = asked.n * len(asked.tasks)
    for place, task in enumerate(asked.tasks):
        for number, block in enumerate(_blocks(asked.n)):
            tell(f"choices ({task})", place * asked.n + block.start, of)
            if lacking := kept.lacking(task, asked.ways, number, len(block)):
                cases = [drawn(task, each, asked.seed) for each in block]
                kept.add(task, number, picked(engine, task, cases, lacking))
    tell("choices", of, of)


def rows(asked: JudgeOptions, kept: PartialJudge) -> tuple[Row, ...]:
    """Each mode on each task, compared with the baseline."""
    return tuple(
        _row(task, each.name, kept.of(task, each.name, asked.n), kept.of(task, BASELINE, asked.n))
        for task in asked.tasks
        for each in asked.ways
    )


def _row(task: str, name: str, blocks: Sequence[Block], baseline: Sequence[Block]) -> Row:
    picks, before = ([pick for block in each for pick in block.picks] for each in (blocks, baseline))
    same = [one == other for one, other in zip(picks, before, strict=True)]
    margins = [margin for block in baseline for margin in block.margins]
    changed = Counter(place for place, kept in zip(before, same, strict=True) if not kept)
    total = Counter(before)
    return Row(
        task=task,
        way=name,
        all=agreement(sum(same), len(same)),
        chosen=agreement(sum(same[::2]), len(same[::2])),
        held=agreement(sum(same[1::2]), len(same[1::2])),
        anew=sum(block.anew for block in blocks) / sum(block.read for block in blocks),
        failing=_failing(same, margins),
        places=tuple((total[place], changed[place]) for place in range(CANDIDATES)),
    )


def agreement(agreed: int, choices: int) -> Agreement:
    """The share of choices that agree, with its interval."""
    share = agreed / choices if choices else 1.0
    return Agreement(choices=choices, agreed=agreed, share=share, span=clopper_pearson(agreed, choices))


def _failing(same: Sequence[bool], margins: Sequence[float]) -> tuple[Failing, ...]:
    """Changed picks by quartile of the baseline's margins, the narrowest first."""
    order = sorted(range(len(same)), key=margins.__getitem__)
    cuts = [len(order) * quarter // 4 for quarter in range(5)]
    quarters = [order[low:high] for low, high in pairwise(cuts)]
    return tuple(
        Failing(
            below=None if place == 3 or not quarter else margins[quarter[-1]],
            choices=len(quarter),
            changed=sum(not same[each] for each in quarter),
        )
        for place, quarter in enumerate(quarters)
    )


def target(found: Sequence[Row]) -> Target:
    """The cheapest mode (by tokens encoded) of those that keep enough choices in every task on the selection half, and
    its result on the held-out half; and the mode that keeps most choices of those that are cheap enough."""
    ways: dict[str, list[Row]] = {}
    for row in found:
        ways.setdefault(row.way, []).append(row)
    hard = tuple(row.task for row in ways.pop(REUSE) if row.all.share <= HARD)
    del ways[BASELINE]
    kept = {name: min(row.chosen.share for row in each) for name, each in ways.items()}
    anew = {name: max(row.anew for row in each) for name, each in ways.items()}
    best = min((name for name in ways if kept[name] >= AGREE), key=lambda name: (anew[name], name), default=None)
    cheap = max((name for name in ways if anew[name] <= ANEW), key=lambda name: (kept[name], name), default=None)
    misses = tuple(_missing(row) for row in ways.get(best or "", ()) if row.held.share < AGREE or row.anew > ANEW)
    return Target(
        way=best,
        hard=hard,
        reached=bool(hard) and best is not None and not misses,
        misses=misses,
        cheap=cheap,
        cheap_keeps=tuple(_missing(row) for row in ways.get(cheap or "", ())),
    )


def _missing(row: Row) -> str:
    return f"{row.task}: {row.held.share:.1%} of choices with {row.anew:.0%} of tokens"


def digest() -> str:
    """A digest of the source folders that a measurement runs."""
    return code_digest(FOLDERS)
