"""Workflows in all arms: who plays what, and how figures are shown as tables.

Does not know: engines, the command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from agentcho.bench import cost
from agentcho.bench.arms import Arm, arms
from agentcho.bench.measure import Timed, measure, runs_of, steady
from agentcho.bench.plans import Subject
from agentcho.bench.result import Figures, Result, Target
from agentcho.bench.targets import BASELINE, CONTINUOUS
from agentcho.display.sheet import Sheet, plain
from agentcho.errors import ConfigError
from agentcho.progress import Tell, part
from agentcho.records.trace import Workflow


def workflows(
    engine: Any, subjects: Sequence[Subject], named: Sequence[str], repeats: int, stepwise: bool, tell: Tell
) -> list[Figures]:
    """Every subject in all named arms, which take turns. `ConfigError`: a name that there is not."""
    known = arms()
    for name in named:
        if name not in known:
            raise ConfigError(f"no arm {name!r}; give one of {', '.join(known)}")
    found: list[Figures] = []
    each = runs_of(named, repeats)
    for number, subject in enumerate(subjects):
        timed = {name: _timed(engine, known[name], subject, stepwise) for name in named}
        found += measure(subject.name, timed, repeats, part(tell, number * each, len(subjects) * each))
    return found


def _timed(engine: Any, arm: Arm, subject: Subject, stepwise: bool) -> Timed:
    def take(workflow: Workflow) -> dict[str, float]:
        return arm(engine, workflow, stepwise).figures()

    return Timed(partial(take, subject.warm), steady(partial(take, subject.workflow)))


def table(result: Result) -> str:
    """All figures as text, each measure with its interval, then the targets."""
    shown = {"workflows": _workflows, "gpu": _gpu, "cost": _cost}.get(result.bench, _plain)
    return "\n\n".join(plain(sheet) for sheet in (*shown(result), *_targets(result)))


def _workflows(result: Result) -> Iterator[Sheet]:
    label = f"{result.model}, {result.dtype}"
    for subject in result.subjects:
        rows = tuple(row(result, subject, arm) for arm in result.arms)
        heads = ("", "first token", "baseline/it", "end to end", "baseline/it", "waiting", "tokens")
        yield Sheet(f"{label}: {subject}", heads if result.stepwise else (*heads[:3], heads[-1]), rows)


def row(result: Result, subject: str, arm: str) -> tuple[str, ...]:
    """One arm: seconds to a first token and of the whole, both beside the baseline's, the share of time in which a call
    waits for its first token, and the tokens fed."""
    if not result.has(subject, arm):
        return (arm, _why(result, subject, arm), *[""] * (5 if result.stepwise else 2))
    found = [*_against(result, subject, arm, "ttft", BASELINE)]
    if result.stepwise:
        found += (*_against(result, subject, arm, "seconds", BASELINE), share(result, subject, arm))
    return (arm, *found, f"{result.spread(subject, arm, 'encoded').middle:.0f}")


def _gpu(result: Result) -> Iterator[Sheet]:
    flows, rest = halves(result)
    rows = tuple(
        (subject if not place else "", *beside(flows, subject, arm))
        for subject in flows.subjects for place, arm in enumerate(flows.arms)
    )  # fmt: skip
    where = result.machine.get("gpu", result.device)
    ratios = ("baseline/it", f"{CONTINUOUS}/it")
    heads = ("", "", "first token", *ratios, "end to end", *ratios, "tokens")
    yield Sheet(f"{result.model}, {result.dtype}, {where}", heads, rows, words=2)
    yield from _plain(rest)


def _cost(result: Result) -> Iterator[Sheet]:
    yield Sheet(f"{result.model}, {result.dtype}", ("", "", *cost.HEADS), tuple(cost.rows(result)), words=2)


def halves(result: Result) -> tuple[Result, Result]:
    """A result of a GPU as that of its workflows, and that of the rest."""
    flows = tuple(each for each in result.figures if "ttft" in each.values or each.unavailable is not None)
    rest = tuple(each for each in result.figures if each not in flows)
    return result.model_copy(update={"figures": flows}), result.model_copy(update={"figures": rest})


def beside(result: Result, subject: str, arm: str) -> tuple[str, ...]:
    """One arm: seconds to a first token and of the whole, each beside the baseline's and continuous batching's, and the
    tokens fed."""
    if not result.has(subject, arm):
        return (arm, _why(result, subject, arm), *[""] * 6)
    both = (_against(result, subject, arm, what, BASELINE, CONTINUOUS) for what in ("ttft", "seconds"))
    return (arm, *(word for words in both for word in words), f"{result.spread(subject, arm, 'encoded').middle:.0f}")


def _why(result: Result, subject: str, arm: str) -> str:
    found = (f.unavailable for f in result.figures if f.subject == subject and f.arm == arm)
    return f"not available here: {next(found, 'not measured')}"


def share(result: Result, subject: str, arm: str) -> str:
    """The share of time in which a call waits for its first token."""
    return f"{result.spread(subject, arm, 'prefill').middle:.0%}"


def _against(result: Result, subject: str, arm: str, what: str, *others: str) -> tuple[str, ...]:
    """Seconds, and the ratios of others to them."""
    ratios = (
        result.ratio([subject], other, arm, what).shown() if result.has(subject, other) else "" for other in others
    )
    return (f"{result.spread(subject, arm, what).shown(3)} s", *ratios)


def _plain(result: Result) -> Iterator[Sheet]:
    rows = tuple(
        (each.subject, each.arm, what, shown(result, each, what)) for each in result.figures for what in each.values
    )
    yield Sheet(f"{result.model}, {result.dtype}", ("", "", "", "median and interval"), rows, words=3)


def shown(result: Result, each: Figures, what: str) -> str:
    """One figure in a unit that reads well."""
    found = result.spread(each.subject, each.arm, what)
    if what in ("seconds", "ttft", "least", "steps", "p95", "median", "prefill"):
        return f"{found.shown(1, 1000)} ms"
    if what in ("share", "reached"):
        return f"{found.shown(1, 100)}%"
    for size, name in ((1e9, "G"), (1e6, "M")):
        if found.middle >= size / 10:
            return f"{found.shown(2, 1 / size)} {name}"
    return found.shown(0)


def _targets(result: Result) -> Iterator[Sheet]:
    rows = tuple(
        (each.what, asked(each), each.reached.shown(digits(each.bound)), each.verdict, each.note)
        for each in result.targets
    )
    if rows:
        yield Sheet("targets", ("", "asked", "reached", "", ""), rows)


def asked(target: Target) -> str:
    """The bound as a condition."""
    return f"{'≤' if target.most else '≥'} {target.bound:g}"


def digits(bound: float) -> int:
    return 0 if bound >= 100 else 4 if bound < 0.1 else 2
