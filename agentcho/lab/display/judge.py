"""The choices of judges that read reused encodings, as tables: one row per reading mode, and where each fails."""

from __future__ import annotations

from collections.abc import Iterator

from agentcho.display.text_table import TextTable
from agentcho.lab.judging.result import AGREE, ANEW, Agreement, JudgeResult, Row, Second

LOOKS = "a second look, with everything encoded anew, where the first is not sure; held out"
HEADS = ("the same pick (95%)", "chosen on", "held out (95%)", "encoded anew")


def sheets(found: JudgeResult) -> Iterator[TextTable]:
    """Two tables per task."""
    for task in dict.fromkeys(row.task for row in found.rows):
        rows = [row for row in found.rows if row.task == task]
        title = f"{found.model}, {found.dtype}: {task}, {rows[0].all.choices} choices of four candidates"
        yield TextTable(title, ("", *HEADS), tuple(_row(row) for row in rows))
        quarters = ("", "least sure quarter", "second", "third", "surest", *(f"place {n}" for n in range(1, 5)))
        where = f"{task}: changed picks, by how sure the baseline is, and by its pick's place"
        yield TextTable(where, quarters, _where(rows))
    if found.second:
        tasks = [name for task in dict.fromkeys(row.task for row in found.rows) for name in (task, "again", "anew")]
        heads = ("the first look", "again below", *tasks)
        yield TextTable(f"{found.model}: {LOOKS}", heads, tuple(_looks(each) for each in found.second))


def verdict(found: JudgeResult) -> str:
    """Whether a policy keeps enough choices and encodes few enough tokens, in a few sentences."""
    best = found.target
    asked = f"{AGREE:.0%} of choices with at most {ANEW:.0%} of tokens encoded anew"
    hard = (
        f"Plain reuse keeps at most 80% in {', '.join(best.hard)}."
        if best.hard
        else "Plain reuse keeps more than 80% in every task."
    )
    if best.way is not None and not best.misses:
        return f"{best.way} keeps {asked}, on held-out choices. {hard}"
    said = [f"None of the measured repairs keeps {asked}. {hard}"]
    if best.way is not None and best.misses:
        said.append(f"The cheapest way that keeps {AGREE:.0%} of choices is {best.way} ({'; '.join(best.misses)}).")
    if best.cheap is not None:
        said.append(
            f"Of the ways that encode at most {ANEW:.0%} anew, {best.cheap} keeps most ({'; '.join(best.cheap_keeps)})."
        )
    return " ".join((*said, *_second(found)))


def _second(found: JudgeResult) -> Iterator[str]:
    """The cheapest second look that keeps enough of the choices it was selected on, in a sentence."""
    looks = [each for each in found.second if each.below is not None]
    if not looks:
        return
    best = min(looks, key=lambda each: (not each.reached, each.cost))
    did = "; ".join(f"{each.task}: {each.kept.share:.1%} with {each.anew:.0%}" for each in best.looks)
    yield (
        f"Judging again, with everything encoded anew, where {best.first} prefers its pick by less than "
        f"{best.below:.2f} nats {'reaches that target' if best.reached else 'misses that target too'} ({did} of "
        "tokens). This was only computed; no view implements it."
    )


def _row(row: Row) -> tuple[str, ...]:
    return (row.way, _share(row.all), f"{row.chosen.share:.1%}", _share(row.held), f"{row.anew:.1%}")


def _looks(second: Second) -> tuple[str, ...]:
    if second.below is None:
        return (second.first, "none suffices")
    cells = (cell for each in second.looks for cell in (_share(each.kept), f"{each.again:.0%}", f"{each.anew:.0%}"))
    return (second.first, f"{second.below:.2f} nats", *cells)


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
