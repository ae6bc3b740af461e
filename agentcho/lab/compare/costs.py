"""The costs of a column on forced words: tokens encoded, seconds to the first token, seconds to the end.

Columns are interleaved; ratios are taken within one game and repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from agentcho.lab.compare.comparison import Cost
from agentcho.lab.compare.fidelity import Arm, forced
from agentcho.lab.stats import ratios
from agentcho.lab.timing import first_token, in_turns
from agentcho.records.trace import Workflow


class _Taken(NamedTuple):
    """The costs of one play of one game."""

    encoded: int
    ttft: float
    seconds: float


def costs(
    workflows: Sequence[Workflow], ways: Mapping[str, Arm], repeats: int, tell: Callable[[int], None]
) -> dict[str, Cost]:
    """Time every arm on every game, after one game to warm up; the first arm is the reference."""
    takes = {name: partial(_taken, arm) for name, arm in ways.items()}
    taken = in_turns(takes, [workflows[0], *repeats * list(workflows)], tell)
    first = next(iter(taken.values()))
    return {name: _cost(own, first, len(workflows)) for name, own in taken.items()}


def _taken(arm: Arm, workflow: Workflow) -> _Taken:
    played = forced(workflow, arm, logits=False)
    return _Taken(played.encoded, first_token(played), played.seconds)


def _cost(own: Sequence[_Taken], first: Sequence[_Taken], games: int) -> Cost:
    ttft, seconds = [one.ttft for one in own], [one.seconds for one in own]
    return Cost(
        encoded=[one.encoded for one in own[:games]],
        ttft=ttft,
        seconds=seconds,
        ttft_ratio=ratios(ttft, [one.ttft for one in first]),
        seconds_ratio=ratios(seconds, [one.seconds for one in first]),
    )
