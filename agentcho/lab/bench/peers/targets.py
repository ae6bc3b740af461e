"""The targets of our engine beside llama.cpp's server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentcho.lab.bench.arms import AUDIT, ENFORCE
from agentcho.lab.bench.result import Result, Target
from agentcho.lab.stats import spread
from agentcho.lab.yardstick import Words

ROW, OURS = "1 row", "agentcho"
LLAMA, GUESSING = "llama-server", "llama-server, n-gram drafts"
SHAPE = "shape:qwen3-0.6b"
"""The model that the targets apply to."""
STEP = {"int8": 1.5, "int4": 1.8}
PREFILL, RATE = 1.0, 1.5
Of = Callable[[list[str], str], Words]
"""`(subjects, arm)`: whether a reading mode keeps the baseline's words."""


def unjudged(subjects: list[str], arm: str) -> Words:
    """The words of random weights cannot be judged."""
    return "unknown"


def targets(result: Result, words: Of = unjudged) -> Iterator[Target]:
    """The targets that the result has figures for. The peer's drafts are only in the notes: the likeliest words of
    random weights repeat themselves, so that drafts say little."""
    if result.model != SHAPE:
        return
    if result.has(ROW, OURS, LLAMA):
        yield from _row(result)
    for arm in (AUDIT, ENFORCE):
        subjects = [subject for subject in result.chosen(arm, LLAMA) if subject != ROW]
        if subjects:
            ratios = {subject: result.ratio([subject], arm, LLAMA, "rate") for subject in subjects}
            least = min(ratios, key=lambda subject: ratios[subject].middle)
            note = f"{least}{_drafts(result, least, arm, 'rate')}"
            yield Target(
                what=f"tokens a second, the least of all: {arm} ÷ {LLAMA}",
                bound=RATE,
                reached=ratios[least],
                note=note,
                words=words(subjects, arm),
            )


def _row(result: Result) -> Iterator[Target]:
    step = STEP.get(result.weights or "")
    asked = {"step": ("a decode step, 1 row", step), "prefill": ("the first token over 512", PREFILL)}
    for what, (name, bound) in asked.items():
        if bound is not None:
            reached = result.ratio([ROW], OURS, LLAMA, what)
            note = _drafts(result, ROW, OURS, what).removeprefix("; ") if what == "step" else ""
            yield Target(what=f"{name}: {OURS} ÷ {LLAMA}", bound=bound, most=True, reached=reached, note=note)


def _drafts(result: Result, subject: str, arm: str, what: str) -> str:
    """The same ratio to the peer with drafts, and how many of its tokens were accepted drafts."""
    if not result.has(subject, GUESSING):
        return ""
    right = spread(result.values(subject, GUESSING, "right"), result.seed).middle
    return f"; with its drafts {result.ratio([subject], arm, GUESSING, what).shown()}, {right:.0f} tokens of them right"
