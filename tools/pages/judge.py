"""The part of the page on repair about what judges pick, from its result file: `python -m tools.pages.judge
docs/results docs/how-to/repair.md`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from agentcho.lab.display.judge import verdict
from agentcho.lab.judging.result import Agreement, JudgeResult, Row, read_judge
from tools.pages.render import arguments

MARKED = re.compile(r"(<!-- judge -->\n\n).*?(\n\n<!-- end of judge -->)", re.DOTALL)


def part(found: JudgeResult) -> str:
    """What was measured, its tables, and whether the result is sufficient."""
    where = f"{found.model} ({found.dtype}, {found.machine['machine']})"
    head = (
        f"Measured on {where} by `{found.command}`: {found.n:,} choices per task, every text forced. *The same pick* "
        "is the share of choices that agree with baseline mode, with exact 95% intervals. The policy is chosen on one "
        "half of the choices, and *held out* is the other half. *Encoded anew* is the share of the tokens that a judge "
        "reads from others. *Changed* is the share of picks that differ from the baseline's: by quarters of the "
        "baseline's margins, the least certain first, and by the place of the baseline's pick in the prompt."
    )
    tasks = [list(_table(found, task)) for task in dict.fromkeys(row.task for row in found.rows)]
    lines = [*_wrapped(verdict(found)), "", *_wrapped(head), *(line for table in tasks for line in ("", *table))]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 130, break_long_words=False, break_on_hyphens=False)


def _table(found: JudgeResult, task: str) -> Iterator[str]:
    yield f"| `{task}` | the same pick | held out | encoded anew | changed, by quarters | changed, by place |"
    yield "| --- | --- | --- | ---: | --- | --- |"
    for row in (each for each in found.rows if each.task == task):
        cells = (_share(row.all), _share(row.held), f"{row.anew:.0%}", _where(row), _places(row))
        yield f"| {row.way} | {' | '.join(cells)} |"


def _share(of: Agreement) -> str:
    return f"{of.share:.1%} ({of.span.shown(lambda share: f'{share:.1%}')})"


def _where(row: Row) -> str:
    return ", ".join(f"{each.changed / max(each.choices, 1):.0%}" for each in row.failing)


def _places(row: Row) -> str:
    return ", ".join(f"{changed / max(total, 1):.0%}" for total, changed in row.places)


def page(results: Path, text: str) -> str:
    """The text of the page with the contents of `judge.json`, if that exists."""
    if not (file := results / "judge.json").exists():
        return text
    found = part(read_judge(file))
    return MARKED.sub(lambda match: match[1] + found + match[2], text)


if __name__ == "__main__":
    given = arguments("judges").parse_args()
    given.page.write_text(page(given.results, given.page.read_text()))
