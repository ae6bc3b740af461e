"""The cost of enforcement: the same texts forced under audit, enforce and baseline, in one run.

Arms are interleaved after a warm-up; figures are medians over repeats, ratios are taken within a repeat. For first
tokens, the rest of each text is fed at once after its first token; for throughput, one token per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.stats import Median, ratios
from agentcho.lab.timing import first_token, in_turns
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, counted, part
from agentcho.records.environment import machine_info, source_digests, versions
from agentcho.records.trace import Workflow

Arm = dict[str, Any]
AT_ONCE = 1 << 20
"""A stride longer than any text."""
ARMS: dict[str, Arm] = {
    "audit": {"leakage": "audit"},
    "enforce": {"leakage": "enforce", "shadow": "auto"},
    "baseline": {"mode": "baseline"},
}


class FirstToken(NamedTuple):
    """Mean seconds to the first token over all decoded messages, one figure per repeat and arm."""

    workflow: str
    seconds: dict[str, list[float]]
    encoded: dict[str, int]

    def ratio(self, arm: str, to: str) -> Median:
        """The ratio of one arm's times to another's."""
        return ratios(self.seconds[arm], self.seconds[to])


class Throughput(NamedTuple):
    """Tokens a second while a message is decoded, without first tokens, one figure per repeat."""

    workflow: str
    plain: list[float]
    shadowed: list[float]

    @property
    def ratio(self) -> Median:
        """The ratio of the speed with shadow rows to the speed without."""
        return ratios(self.shadowed, self.plain)


class LeakageBench(NamedTuple):
    """All figures of one model."""

    model: str
    first: tuple[FirstToken, ...]
    throughput: tuple[Throughput, ...]

    def to_json(self) -> dict[str, Any]:
        """The raw figures."""
        return {
            "model": self.model,
            "first_token_seconds": {each.workflow: each.seconds for each in self.first},
            "encoded_tokens": {each.workflow: each.encoded for each in self.first},
            "tokens_a_second": {t.workflow: {"plain": t.plain, "shadow": t.shadowed} for t in self.throughput},
        }


def figures(found: Sequence[LeakageBench], seed: int) -> dict[str, Any]:
    """The content of a result file: the machine and the figures."""
    where = machine_info() | versions() | source_digests()
    return {"format": "agentcho-bench-leakage/1", "machine": where, "seed": seed, "found": [f.to_json() for f in found]}


def measure(
    name: str,
    engine: EnginePort,
    timed: Sequence[Workflow],
    spoken: Sequence[Workflow],
    repeats: int,
    tell: ProgressCallback,
) -> LeakageBench:
    """Time first tokens on `timed` and throughput on `spoken`. `tell` receives the progress over all repeats, including
    warm-ups."""
    first, throughput = [], []
    each = repeats + 1
    of = each * (len(timed) + len(spoken))
    for number, workflow in enumerate(timed):
        told = _repeats(tell, f"{name}: first tokens of {workflow.id}", each * number, of)
        first.append(_first_token(engine, [workflow] * each, told))
    for number, workflow in enumerate(spoken, len(timed)):
        told = _repeats(tell, f"{name}: tokens a second in {workflow.id}", each * number, of)
        throughput.append(_throughput(engine, [workflow] * each, told))
    return LeakageBench(name, tuple(first), tuple(throughput))


def _repeats(tell: ProgressCallback, what: str, before: int, of: int) -> Callable[[int], None]:
    told = counted(part(tell, before, of), f"repeats ({what})", of)
    return lambda done: told(done + 1)


def _first_token(engine: EnginePort, plays: Sequence[Workflow], told: Callable[[int], None]) -> FirstToken:
    takes = {arm: partial(replay, engine=engine, logits=False, stride=AT_ONCE, **ARMS[arm]) for arm in ARMS}
    found = in_turns(takes, plays, told)
    seconds = {arm: [first_token(one) for one in played] for arm, played in found.items()}
    return FirstToken(plays[0].id, seconds, {arm: played[-1].encoded for arm, played in found.items()})


def _throughput(engine: EnginePort, plays: Sequence[Workflow], told: Callable[[int], None]) -> Throughput:
    shadows: tuple[Literal["never", "always"], ...] = ("never", "always")
    takes: dict[str, Callable[[Workflow], Replayed]] = {
        how: partial(replay, engine=engine, leakage="enforce", logits=False, shadow=how) for how in shadows
    }
    found = in_turns(takes, plays, told)
    plain, shadowed = ([_speed(one) for one in played] for played in found.values())
    return Throughput(plays[0].id, plain, shadowed)


def _speed(replayed: Replayed) -> float:
    lengths = (said.entry.message.sampled or (0, 0) for said in replayed.values())
    tokens = sum(stop - start - 1 for start, stop in lengths)
    return tokens / sum(said.seconds - said.ttft for said in replayed.values())
