"""What a way of reading costs on words that are forced: tokens encoded, time to a first token, time to the end.

Ways take turns; ratios are made within one game and repeat. Does not know: what is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from agentcho.lab.compare.comparison import Cost
from agentcho.lab.compare.fidelity import Arm, forced
from agentcho.records.trace import Workflow


def costs(
    workflows: Sequence[Workflow], ways: Mapping[str, Arm], repeats: int, tell: Callable[[int], None]
) -> dict[str, Cost]:
    """Time every arm on every game, after one game to warm up; the first way is the reference."""
    encoded: dict[str, list[int]] = {name: [] for name in ways}
    ttft: dict[str, list[float]] = {name: [] for name in ways}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    turns = [(workflow, turn) for turn in range(repeats) for workflow in workflows]
    for number, (workflow, turn) in enumerate([(workflows[0], 0), *turns]):
        for name, arm in _rotated(ways, number):
            played = forced(workflow, arm, logits=False)
            if number == 0:
                continue
            ttft[name].append(sum(said.ttft for said in played.values()) / len(played))
            seconds[name].append(played.seconds)
            if turn == 0:
                encoded[name].append(played.encoded)
        tell(number)
    first = next(iter(ways))
    return {
        name: Cost(
            encoded=encoded[name], ttft=ttft[name], seconds=seconds[name],
            ttft_ratio=_ratio(ttft[name], ttft[first]), seconds_ratio=_ratio(seconds[name], seconds[first]),
        ) for name in ways
    }  # fmt: skip


def _rotated(ways: Mapping[str, Arm], number: int) -> list[tuple[str, Arm]]:
    listed = list(ways.items())
    first = number % len(listed)
    return listed[first:] + listed[:first]


def _ratio(these: Sequence[float], those: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and largest."""
    ratios = [a / b for a, b in zip(these, those, strict=True)]
    return median(ratios), min(ratios), max(ratios)
