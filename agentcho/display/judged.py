"""What judges pick over what is reused, as tables: a row a way of reading, and where each fails.

Does not know: how choices are made or compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentcho.display.sheet import Sheet
from agentcho.lab.judging.result import AGREE, ANEW, Agreement, JudgeResult, Row

HEADS = ("the same pick (95%)", "chosen on", "held out (95%)", "encoded anew")


def sheets(found: JudgeResult) -> Iterator[Sheet]:
    """Two tables a task."""
    for task in dict.fromkeys(row.task for row in found.rows):
        rows = [row for row in found.rows if row.task == task]
        title = f"{found.model}, {found.dtype}: {task}, {rows[0].all.choices} choices of four candidates"
        yield Sheet(title, ("", *HEADS), tuple(_row(row) for row in rows))
        quarters = ("", "least sure quarter", "second", "third", "surest", *(f"place {n}" for n in range(1, 5)))
        where = f"{task}: changed picks, by how sure the baseline is, and by its pick's place"
        yield Sheet(where, quarters, _where(rows))


def verdict(found: JudgeResult) -> str:
    """Whether there is a policy that keeps enough choices and encodes few enough tokens, in some sentences."""
    best, asked = found.target, f"{AGREE:.0%} of choices with at most {ANEW:.0%} of tokens encoded anew"
    hard = f"Plain reuse keeps at most 80% in {', '.join(best.hard)}." if best.hard else "Reuse fails no task here."
    if best.reached:
        return f"{best.way} keeps {asked}, on held-out choices. {hard}"
    said = [f"No way that was measured keeps {asked} where reuse fails. {hard}"]
    if best.way is not None and best.misses:
        said.append(f"The cheapest that keeps so many choices is {best.way} ({'; '.join(best.misses)}).")
    if best.cheap is not None:
        said.append(f"Of those that encode so few tokens {best.cheap} keeps most ({'; '.join(best.cheap_keeps)}).")
    return " ".join(said)


def _row(row: Row) -> tuple[str, ...]:
    return (row.way, _share(row.all), f"{row.chosen.share:.1%}", _share(row.held), f"{row.anew:.1%}")


def _share(of: Agreement) -> str:
    return f"{of.share:.1%} ({of.span.shown(lambda share: f'{share:.1%}')})"


def _where(rows: list[Row]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            row.way,
            *(f"{each.changed}/{each.choices}" for each in row.failing),
            *(f"{changed}/{total}" for total, changed in row.places),
        )
        for row in rows
        if row.all.agreed < row.all.choices
    )
