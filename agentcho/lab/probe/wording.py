"""Words the result of a probe for the terminal and for SARIF. Independent of both formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agentcho.audit.wording import many
from agentcho.lab.probe.findings import BOUNDARIES, ProbeReport, Question, Verdict
from agentcho.lab.stats import Spread

ASKED: dict[Question, str] = {
    "control": "a caller's own prompts (control)",
    "keys": "across keys",
    "salts": "across cache salts",
    "beyond": "beyond prefixes",
}


class Row(NamedTuple):
    """A line of the table: the question, the verdict, and the numbers."""

    asked: str
    verdict: Verdict
    reason: str
    numbers: tuple[str, ...]


HEADS = ("trials", "hit, ms", "miss, ms", "KS p", "MW p", "adjusted")


def headline(report: ProbeReport) -> tuple[str, str]:
    """The verdict as one word, and as a sentence."""
    asked = [one for one in report.comparisons if one.question in BOUNDARIES]
    if report.conclusion == "shared":
        across = " and ".join(ASKED[one.question] for one in asked if one.verdict == "shared")
        return "SHARED", f"this server reuses what it computed for one caller {across}"
    if report.conclusion == "not seen":
        across = " and ".join(ASKED[one.question] for one in asked)
        return "NOT SEEN", f"no reuse {across} was seen, and reuse like a caller's own would have been"
    doubts = [f"{ASKED[one.question]}: {one.reason}" for one in asked if one.verdict == "inconclusive"]
    return "INCONCLUSIVE", "; ".join(doubts) or "no question about sharing was asked; give --other-key or --salts"


def spent(report: ProbeReport) -> str:
    """The server, the model, and the resources used."""
    took = report.spent
    size = "" if report.prompt_tokens is None else f" of {report.prompt_tokens:,} tokens"
    parts = [report.url, report.model, f"prompts of {report.prompt_words:,} random words{size}"]
    parts += [many(took.requests, "request"), f"{took.seconds:.0f} s", f"{took.prompt_tokens:,} prompt tokens"]
    return " · ".join(parts)


def rows(report: ProbeReport) -> Iterator[Row]:
    """All questions, with their numbers."""
    for one in report.comparisons:
        numbers = (f"{one.trials}", _times(one.hit), _times(one.miss), *map(p, (one.ks_p, one.mann_whitney_p)))
        yield Row(ASKED[one.question], one.verdict, one.reason, (*numbers, p(one.adjusted_p)))
    words = report.words
    numbers = (f"{words.prompts}", "", "", "", "", p(words.p if words.prompts else None))
    yield Row("greedy words change with a hit", words.verdict, words.reason, numbers)


def ended(report: ProbeReport) -> str:
    """Why it ended early, and what was left out; empty if neither applies."""
    said = [] if report.ended is None else [f"the probe ended before all trials were done: {report.ended}"]
    if report.spent.discarded:
        said.append(f"{many(report.spent.discarded, 'trial')} discarded because the server was too busy")
    return "; ".join(said)


def p(value: float | None) -> str:
    """A p-value as text; empty if there is none."""
    return "" if value is None else f"{value:.1e}" if value < 0.001 else f"{value:.3f}"


def _times(of: Spread | None) -> str:
    return "" if of is None else of.shown(1, 1000)
