"""How many agents a store of keys and values has room for, such that their first tokens come in time.

Every agent has a private prompt, one document that all agents read, and the last words of another agent. They speak in
groups, round by round. If the private prompt comes first, as system prompts do, a prefix cache shares nothing; if the
document comes first, it shares that. So both orders are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import median, quantiles
from typing import Any

from agentcho.games.runs.replay import replay
from agentcho.lab.bench.arms import BASELINE, STRIDE, policy
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.words import with_words
from agentcho.lab.bench.workflows import line, random_words, spoken, whole
from agentcho.lab.timing import turns
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.trace import Workflow

GROUP, ROUNDS = 8, 3
"""Agents who speak at once, and the number of turns of each. Sizes are multiples of a group."""
PROMPT, SAID = 24, 6
"""Words of a private prompt, and of a message."""
TWICE = 2.0
"""A first token is in time within this multiple of the baseline's time with two groups, which have enough room."""
MOST = 1024
"""Maximum number of agents."""
TRIES = 2
"""A number of agents fits if their first tokens come in time in one of this many runs. Otherwise a short disturbance of
the machine, which delays a whole group, would end the search."""


ORDERS = {"": False, ", which stands first": True}
"""Whether a prompt begins with the document that all read, by the suffix of the name."""


def crowd(agents: int, words: int, seed: int, shared_first: bool = False) -> Workflow:
    """`agents` agents over a document of `words` words. Each speaker reads the last words of the previous group.
    `shared_first`: each prompt begins with the document."""
    dice = Random(seed)
    names = [f"agent{number}" for number in range(agents)]
    lines = [line("document", names[0], [], random_words(dice, words))]
    lines += [
        line(f"brief {name}", name, [], random_words(dice, PROMPT), audience=[name], role="system") for name in names
    ]
    last: list[str] = []
    for number in range(ROUNDS):
        for first in range(0, agents, GROUP):
            group = names[first : first + GROUP]
            ids = [f"{name} {number}" for name in group]
            lines += [
                spoken(id, name, [*opening(name, shared_first), *last], random_words(dice, SAID))
                for id, name in zip(ids, group, strict=True)
            ]
            last = ids[-1:]
    return whole("crowd", seed, names, lines)


def opening(name: str, shared_first: bool) -> list[str]:
    """The beginning of this agent's prompt."""
    return ["document", f"brief {name}"] if shared_first else [f"brief {name}", "document"]


def first_token(engine: Any, trace: Workflow, arm: str) -> float:
    """The 95th percentile of the seconds to a first token, after the first round, in which all prompts are new."""
    reuse = policy(arm)
    assert reuse is not None
    played = replay(trace, engine, reuse, logits=False, stride=STRIDE)
    times = [said.ttft for id, said in played.items() if not id.endswith(" 0")]
    return quantiles(times, n=20, method="inclusive")[-1]


def most(fits: Callable[[int], bool], step: int = GROUP, cap: int = MOST) -> int:
    """The maximum number of agents that fits, in multiples of `step` up to `cap`: doubled until it does not fit, then
    bisected. 0: not even one step fits."""
    good, bad = 0, step
    while bad <= cap and fits(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, cap + step)
    while bad - good > step:
        middle = good + (bad - good) // (2 * step) * step
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def room(
    engine: Any, arms: Sequence[str], words: int, limit: float | None, repeats: int, seed: int, tell: ProgressCallback
) -> list[Figures]:
    """For each order of a prompt and each arm, the "agents" that get their first tokens within the "limit" in seconds
    (None: `TWICE`), in this engine's store of "tokens"; and how close their words are."""
    few = {order: crowd(2 * GROUP, words, seed, first) for order, first in ORDERS.items()}
    first_token(engine, few[""], BASELINE)  # warm-up
    within = {
        order: limit or TWICE * median(first_token(engine, few[order], BASELINE) for _ in range(3)) for order in few
    }
    runs = [(order, arm, number) for number in range(repeats) for order in ORDERS for arm in turns(list(arms), number)]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for done, (order, arm, number) in enumerate(runs):

        def fits(agents: int, order: str = order, arm: str = arm, seed: int = seed + number, done: int = done) -> bool:
            tell(f"runs ({arm}{order}, {agents} agents)", done, len(runs))
            trace = crowd(agents, words, seed, ORDERS[order])
            return any(first_token(engine, trace, arm) <= within[order] for _ in range(TRIES))

        taken = {"agents": float(most(fits)), "limit": within[order], "tokens": float(engine.room[0])}
        found.setdefault((order, arm), []).append(taken)
    return [
        figures
        for order in ORDERS
        for figures in with_words(
            engine,
            few[order],
            [Figures.of(f"a document of {words} words{order}", arm, found[order, arm]) for arm in arms],
        )
    ]
