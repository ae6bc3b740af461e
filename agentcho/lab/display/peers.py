"""Our engine beside llama.cpp's server, and the targets, as text tables."""

from __future__ import annotations

from collections.abc import Iterator

from agentcho.display.text_table import TextTable
from agentcho.lab.bench.peers.targets import LLAMA, ROW
from agentcho.lab.bench.result import Result
from agentcho.lab.display.bench import served

ROW_HEADS = ("prompt of 512", "it ÷ llama-server", "a step", "it ÷ llama-server", "tokens a second")
FLOW_HEADS = ("first token", "end to end", "tokens a second", "it ÷ llama-server", "fed", "cached", "drafts right")
SERVER_HEADS = (
    "first token",
    "plain/it",
    "tokens/s",
    "it/plain",
    "prompts",
    "reused",
    "exactly",
    "by message",
    "words as plain",
)
ABOUT = (
    "same network",
    "peer",
    "peer build",
    "peer type",
    "peer options",
    "peer system",
    "torch",
    "machine",
    "processor",
    "commit",
)
"""The facts shown of the machine and of the peer, if known."""


def peers(result: Result) -> Iterator[TextTable]:
    """One table per subject, then the targets, and what was measured on."""
    label = f"{result.model}, {result.numbers}"
    for subject in result.subjects:
        heads = heads_of(subject)
        yield TextTable(
            f"{label}: {subject}",
            ("", *heads),
            tuple(row(result, subject, arm) for arm in result.arms if told(result, subject, arm)),
        )
    if result.targets:
        lines = tuple(
            (
                each.what,
                bound(each.bound, each.most),
                each.reached.shown(),
                verdict(each.met, result.verdict(each)),
                each.note,
            )
            for each in result.targets
        )
        yield TextTable("asked for", ("", "asked", "reached", "", ""), lines)
    known = [(what, result.machine[what]) for what in ABOUT if what in result.machine]
    yield TextTable(
        "measured on", ("", ""), (*known, ("seed", str(result.seed)), ("repeats", str(result.repeats))), words=2
    )


def heads_of(subject: str) -> tuple[str, ...]:
    """The columns of `row` after the arm."""
    return ROW_HEADS if subject == ROW else FLOW_HEADS


def servers(result: Result) -> Iterator[TextTable]:
    """A user's own server, and ours beside it if there was one: one table per workflow."""
    for subject in result.subjects:
        rows = tuple(served(result, subject, arm) for arm in result.arms)
        yield TextTable(f"{result.model}: {subject}", ("", *SERVER_HEADS), rows)


def told(result: Result, subject: str, arm: str) -> bool:
    """Whether an arm belongs to a subject: our engine has one name in a single row, and three in a workflow."""
    return any(each.subject == subject and each.arm == arm for each in result.figures)


def row(result: Result, subject: str, arm: str) -> tuple[str, ...]:
    """One arm on one subject."""
    if not result.has(subject, arm):
        return (arm, result.why_not(subject, arm), *[""] * (len(heads_of(subject)) - 1))
    return (arm, *(_row if subject == ROW else _flow)(result, subject, arm))


def _row(result: Result, subject: str, arm: str) -> Iterator[str]:
    for what in ("prefill", "step"):
        yield f"{result.spread(subject, arm, what).shown(1, 1000)} ms"
        yield _ratio(result, subject, arm, what)
    yield result.spread(subject, arm, "rate").shown(1)


def _flow(result: Result, subject: str, arm: str) -> Iterator[str]:
    for what in ("ttft", "seconds"):
        yield f"{result.spread(subject, arm, what).shown(2)} s"
    yield result.spread(subject, arm, "rate").shown(1)
    yield _ratio(result, subject, arm, "rate")
    yield f"{result.spread(subject, arm, 'encoded').middle:.0f}"
    for what in ("cached", "right"):
        counted = result.values(subject, arm, what)
        yield f"{result.spread(subject, arm, what).middle:.0f}" if counted else ""


def _ratio(result: Result, subject: str, arm: str, what: str) -> str:
    beside = arm != LLAMA and result.has(subject, LLAMA)
    return result.ratio([subject], arm, LLAMA, what).shown() if beside else ""


def bound(number: float, most: bool) -> str:
    """A target's bound as text."""
    return f"{'at most' if most else 'at least'} {number:g}"


def verdict(met: bool, said: str) -> str:
    """The verdict with a miss in capitals."""
    return said if met else said.replace("missed", "MISSED")
