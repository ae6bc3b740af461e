"""The result of a benchmark as text, together with the targets."""

from __future__ import annotations

from collections.abc import Iterator

from agentcho.display.text_table import TextTable, plain
from agentcho.lab.bench.result import Figures, Result
from agentcho.lab.bench.serving import PEER
from agentcho.lab.display import bench
from tools.bench import cost, stream

TALK = ("talk", "a token said", f"{PEER} ÷ it", "said", "prompts", "exactly", "by message", "encoded")
"""The columns of a talk after the arm."""


def table(result: Result) -> str:
    """All figures, each measure with its interval, followed by the targets."""
    kinds = {"workflows": bench.workflows, "cost": _cost, "talk": _talk}
    sheets = kinds.get(result.bench, _plain)(result)
    return "\n\n".join(plain(sheet) for sheet in (*sheets, *bench.targets(result)))


def _cost(result: Result) -> Iterator[TextTable]:
    yield TextTable(f"{result.model}, {result.numbers}", ("", "", *cost.HEADS), tuple(cost.rows(result)), words=2)


def _talk(result: Result) -> Iterator[TextTable]:
    for subject in result.subjects:
        rows = tuple(talk_row(result, subject, arm) for arm in result.arms)
        yield TextTable(f"{result.model}, {result.numbers}: {subject}", ("", *TALK), rows)


def talk_row(result: Result, subject: str, arm: str) -> tuple[str, ...]:
    """One arm of a talk: its duration, in all and per generated token, and how many times as long a token took with the
    peer; generated tokens; tokens of prompts, the shares of these that were already encoded, and all tokens that the
    model was fed."""
    if not result.has(subject, arm):
        return (arm, result.why_not(subject, arm), *[""] * (len(TALK) - 1))
    whole, token = (result.spread(subject, arm, what) for what in ("seconds", "token"))
    beside = result.ratio([subject], PEER, arm, "token").shown() if result.has(subject, PEER) else ""
    times = (f"{whole.shown()} s", f"{token.shown(1, 1000)} ms", beside)
    said, prompt, fed = (bench.middle(result, subject, arm, what, shown=".0f") for what in ("said", "prompt", "fed"))
    exact, reused = (bench.middle(result, subject, arm, what, shown=".0%") for what in ("exact", "reused"))
    return (arm, *times, said, prompt, exact, reused, fed)


def _plain(result: Result) -> Iterator[TextTable]:
    rows = tuple(
        (each.subject, each.arm, what, shown(result, each, what)) for each in result.figures for what in each.values
    )
    yield TextTable(f"{result.model}, {result.numbers}", ("", "", "", "median and interval"), rows, words=3)


def shown(result: Result, each: Figures, what: str) -> str:
    """One figure in a readable unit."""
    found = result.spread(each.subject, each.arm, what)
    if what in ("seconds", "ttft", "least", "steps", "p95", "median", "prefill", "without", "limit", *stream.TIMES):
        return f"{found.shown(1, 1000)} ms"
    if what in ("share", "reached", "agree"):
        return f"{found.shown(1, 100)}%"
    if what == "kl":
        return found.shown(4)
    for size, name in ((1e9, "G"), (1e6, "M")):
        if found.middle >= size / 10:
            return f"{found.shown(2, 1 / size)} {name}"
    return found.shown(0)
