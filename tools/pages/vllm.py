"""The part about speed on the page on vLLM, from its result file: `python -m tools.pages.vllm docs/results
docs/vllm.md`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from agentcho.lab.bench.result import Result, read_result
from agentcho.lab.stats import FEW
from tools.bench.vllm.names import ARMS, FIRST, OWN, PLAIN, ROWS, step_of
from tools.pages.marks import put
from tools.pages.render import arguments, rewrite

MARK = "speed"
FILE = "vllm.json"
ABOUT = {
    PLAIN: "vLLM alone, prefix cache on",
    "vllm+audit": "engine vllm, `audit`",
    "vllm+enforce": "engine vllm, `enforce`",
    "agentcho+enforce": "agentcho's own engine, `enforce`",
    "generate": "stock `generate` with caches kept by hand",
}


def part(found: Result) -> list[str]:
    """What was measured, its tables, and the targets with what was reached."""
    machine = f"{found.machine['machine']}, vLLM {found.machine['vllm']}, commit {found.machine['commit'][:8]}"
    head = (
        f"{found.model}, {found.dtype}, on {machine}, by `{found.command}`: arms in turn, {found.repeats} repeats, "
        f"the same forced words in all arms, texts {found.scale:g} times as long as usual, blocks of 32 tokens in both "
        "vLLMs. Times are medians with minimum and maximum, then in parentheses the speedup over vLLM alone."
    )
    played = [s for s in found.subjects if found.values(s, PLAIN, "seconds")]
    lines = [*_wrapped(_told(found, played)), "", *_wrapped(head), ""]
    for what, title in (("ttft", "first token"), ("seconds", "end to end")):
        lines += [f"| {title} | " + " | ".join(ABOUT[arm] for arm in ARMS) + " |", "| --- |" + " ---: |" * len(ARMS)]
        lines += [f"| {subject} | {' | '.join(_cells(found, subject, what))} |" for subject in played]
        lines.append("")
    lines += [*_steps(found), "", *_targets(found)]
    return lines


def _told(found: Result, played: list[str]) -> str:
    """The conclusions from the tables, in a sentence each."""
    own, ours = next(iter(OWN)), "vllm+enforce"
    beside = [found.ratio([subject], own, ours, "seconds").middle for subject in played]
    alone = {arm: [found.ratio([s], PLAIN, arm, "seconds").middle for s in played] for arm in ("vllm+audit", ours)}
    means = {arm: sum(ratios) / len(ratios) for arm, ratios in alone.items()}
    return (
        f"Under `enforce`, workflows run {min(beside):.2f} to {max(beside):.2f} times as fast as on agentcho's own "
        f"engine. By the mean of the medians below, they take {1 / means['vllm+audit']:.2f} times as long as with vLLM "
        f"alone under `audit`, and {1 / means[ours]:.2f} times as long under `enforce`. The time saved at first tokens "
        "goes into second encodings, and into one additional step per message."
    )


def _cells(found: Result, subject: str, what: str) -> Iterator[str]:
    for arm in ARMS:
        if not found.values(subject, arm, what):
            yield found.why_not(subject, arm)
            continue
        beside = "" if arm == PLAIN else f" ({found.ratio([subject], PLAIN, arm, what).middle:.2f})"
        yield f"{found.spread(subject, arm, what).shown(2)} s{beside}"


def _steps(found: Result) -> Iterator[str]:
    ours = ("vllm+audit", *OWN)
    yield "| | " + " | ".join(ABOUT[arm].partition(",")[0] for arm in (PLAIN, *ours)) + " |"
    yield "| --- |" + " ---: |" * (1 + len(ours))
    for rows in ROWS:
        cells = (f"{found.spread(step_of(rows), arm, 'step').shown(1, 1000)} ms" for arm in (PLAIN, *ours))
        yield f"| {step_of(rows)}, processor time | {' | '.join(cells)} |"
    cells = (f"{found.spread(FIRST, arm, 'ttft').shown(0, 1000)} ms" for arm in (PLAIN, *ours))
    yield f"| {FIRST} tokens, 64 of its own | {' | '.join(cells)} |"


def _targets(found: Result) -> Iterator[str]:
    yield "| target | bound | reached | |"
    yield "| --- | ---: | ---: | --- |"
    for target in found.targets:
        sign, note = "≤" if target.most else "≥", f" ({target.note})" if target.note else ""
        yield f"| {target.what}{note} | {sign} {target.bound:g} | {target.reached.shown()} | {found.verdict(target)} |"
    if found.repeats < FEW:
        yield from ("", f"No target counts as met with fewer than {FEW} repeats.")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 130, break_long_words=False, break_on_hyphens=False)


def page(results: Path, text: str) -> str:
    """The page with that part updated from the results."""
    return put(text, MARK, ["", *part(read_result(results / FILE)), ""])


if __name__ == "__main__":
    given = arguments("vLLM").parse_args()
    rewrite(given.page, page(given.results, given.page.read_text(encoding="utf-8")))
