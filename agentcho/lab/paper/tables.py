"""The paper's tables of scores as data: rows, columns, and those of the paper's figures that are at hand.

The figures are for Llama-3.1-8B (Bai & Eisner, arXiv 2512.23049). Where a row has none, it is not at hand: none is
guessed. Does not know: how a row is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agentcho.config import Mode

Adapted = Literal["none", "tuned", "own", "distilled"]
"""Through which adapter a row is played: none; one tuned for its way of reading on baseline games; one of the baseline
tuned on its own games; one of the single step, tuned on what a workflow ended on."""
Name = Literal["1", "2", "3", "4", "5", "6", "7", "f4", "f8"]
TOO_LITTLE = "of which layout the paper's figure after tuning is, is not at hand: it stands in the parallel row"


class Row(NamedTuple):
    """One row. `against`: the label of the row that it is held against, game by game; None: it is held against none.
    `of`: the row whose games a distilled one was tuned on the ends of. `paper`: the paper's figures, by score."""

    label: str
    scenario: str
    mode: Mode = "baseline"
    options: Mapping[str, Any] = {}
    adapter: Adapted = "none"
    against: str | None = None
    of: str | None = None
    paper: Mapping[str, float] = {}


class Table(NamedTuple):
    """A table: `scores` are its columns, by the names that the scenarios give them."""

    name: Name
    title: str
    scores: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def row(self, label: str) -> Row:
        """The row of a label."""
        return next(row for row in self.rows if row.label == label)


SERIAL, PARALLEL = {"layout": "serial"}, {"layout": "parallel"}


def _layouts(scenario: str, score: str, figures: tuple[float, float, float, float]) -> tuple[Row, ...]:
    """The four layouts, both tuned, and the baseline tuned on its own games: all beside the serial baseline. `figures`
    are the paper's for the baseline, for reuse serial and parallel, and after tuning."""
    first, told = "baseline, serial", [{score: figure} for figure in figures]
    return (
        Row(first, scenario, "baseline", SERIAL, paper=told[0]),
        Row("baseline, parallel", scenario, "baseline", PARALLEL, against=first),
        Row("choreographed, serial", scenario, "choreographed", SERIAL, against=first, paper=told[1]),
        Row("choreographed, parallel", scenario, "choreographed", PARALLEL, against=first, paper=told[2]),
        Row("choreographed, serial, tuned", scenario, "choreographed", SERIAL, "tuned", first),
        Row("choreographed, parallel, tuned", scenario, "choreographed", PARALLEL, "tuned", first, paper=told[3]),
        Row("baseline, serial, tuned", scenario, "baseline", SERIAL, "own", first),
    )


def _both(
    label: str, scenario: str, options: Mapping[str, Any], score: str = "", figures: tuple[float, ...] = ()
) -> tuple[Row, Row]:
    """A workflow by the baseline, and choreographed beside it; `figures` are the paper's for both."""
    told = [{score: figure} for figure in figures] or [{}, {}]
    first = f"{label}, baseline"
    return (
        Row(first, scenario, "baseline", options, paper=told[0]),
        Row(f"{label}, choreographed", scenario, "choreographed", options, against=first, paper=told[1]),
    )


def _debates() -> tuple[Row, ...]:
    """Table 4."""
    single, tree, iterated, parallel = "direct", "tree-of-thoughts", "debate", "parallel-debate"

    def trained(label: str, scenario: str, paper: Mapping[str, float]) -> tuple[Row, Row]:
        first = f"{label}, baseline"
        return (
            Row(f"{label}, choreographed, tuned", scenario, "choreographed", {}, "tuned", first, paper=paper),
            Row(f"{label}, distilled", single, "baseline", {}, "distilled", first, of=first),
        )

    return (
        Row("Direct", single, paper={"correct": 0.188}),
        *_both("ToT", tree, {}, "correct", (0.396, 0.302)),
        *trained("ToT", tree, {"correct": 0.414}),
        *_both("MADiter", iterated, {}, "correct", (0.390, 0.248)),
        *trained("MADiter", iterated, {}),
        *_both("MADpar", parallel, {}, "correct", (0.646, 0.524)),
        *trained("MADpar", parallel, {}),
        *_both("MADpar without names", parallel, {"names": False}),
        *_both("MADpar, all rounds", parallel, {"memory": "all"}),
    )


DILEMMA = "prisoners-dilemma"
SETTINGS = {"free": "none", "always cooperate": "always-cooperate", "always defect": "always-defect"}
COOPERATES = "bob cooperates"
AT_HAND = ((0.783, 0.639), (0.877, 0.782), (0.728, 0.467))
"""How often one cooperates in the three settings of Table 3: by the baseline, and with reuse."""


def _settings() -> tuple[Row, ...]:
    """Table 3."""
    known = zip(SETTINGS.items(), AT_HAND, strict=True)
    return tuple(
        row
        for (label, strategy), figures in known
        for row in _both(label, DILEMMA, {"strategy": strategy}, COOPERATES, figures)
    )


def _guesses() -> tuple[Row, ...]:
    """Table 7."""
    asked = ((label, {"strategy": strategy, "predict": True}) for label, strategy in SETTINGS.items())
    return tuple(row for label, options in asked for row in _both(label, DILEMMA, options))


def _behind() -> tuple[Row, ...]:
    """Figure 8."""
    first, options = "baseline", {"strategy": "none"}
    return (
        Row(first, DILEMMA, "baseline", options),
        *(
            Row(f"choreographed, {label}", DILEMMA, "choreographed", options | behind, against=first)
            for label, behind in (
                ("all", {}),
                ("system prompt alone", {"behind": "system"}),
                ("plan alone", {"behind": "plan"}),
                ("talk alone", {"behind": "public"}),
            )
        ),
    )


COVERED = ("covered", "covered of group 1", "covered of group 2", "group 1 over group 2")
TABLES: tuple[Table, ...] = (
    Table(
        "1",
        "Table 1: MultiQA, two questions and one answer to both",
        ("all right", "first right", "last right"),
        _layouts("multi-qa", "all right", (0.564, 0.004, 0.004, 0.493)),
        (TOO_LITTLE,),
    ),
    Table(
        "2",
        "Table 2: Branch-Solve-Merge, 30 words a task",
        COVERED,
        _layouts("branch-solve-merge", "covered", (0.810, 0.651, 0.630, 0.816)),
        (TOO_LITTLE,),
    ),
    Table(
        "3",
        "Table 3: prisoner's dilemma, by Alice's private instruction",
        (COOPERATES, "alice cooperates", "bob", "alice"),
        _settings(),
        ("which setting each figure of the paper belongs to is not at hand: they stand as we know them",),
    ),
    Table(
        "4",
        "Table 4: questions answered at once, by trees of thoughts, and by debates",
        ("correct",),
        _debates(),
        (
            "MADiter is the scenario debate, MADpar parallel-debate; unless it says otherwise, a solver of MADpar "
            "knows its name and reads the last round alone",
            "which of its variants the paper's figures of MADpar are of is not at hand: they stand in the first",
        ),
    ),
    Table(
        "7",
        "Table 7: prisoner's dilemma, what Bob does with his guess",
        ("bob correct", "bob exploits", "bob defends"),
        _guesses(),
    ),
    Table("f8", "Figure 8: prisoner's dilemma, what Alice's words are encoded over for Bob", (COOPERATES,), _behind()),
)


def table_named(name: Name) -> Table:
    """The table of scores of this name."""
    return next(table for table in TABLES if table.name == name)


TIMED = ("5", "f4")
SETS = "6"
NAMES: tuple[Name, ...] = ("1", "2", "3", "4", "5", "6", "7", "f4", "f8")
"""In the paper's order."""
