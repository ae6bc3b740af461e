"""The paper's tables of scores as data: rows, columns, and the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agentcho.config import Mode
from agentcho.lab.paper.figures import (
    DILEMMA,
    GUESSES,
    LEAKED,
    MULTI_QA,
    QUESTIONS,
    QWEN_8B,
    QWEN_14B,
    STORIES,
    Figure,
    Figures,
)

Adapted = Literal["none", "tuned", "own", "distilled"]
"""The adapter that a row is played with: none; one tuned for its reading mode on baseline games; one of the baseline
tuned on its own games; one of the single step, tuned on the final messages of a workflow."""
Name = Literal["1", "2", "3", "4", "5", "6", "7", "f4", "f8", "tasks"]


class Row(NamedTuple):
    """One row. `against`: the label of its reference row, paired by game; None: it has none. `of`: the row whose games'
    final messages a distilled row was tuned on. `taught`: the options of the games that its adapter was tuned on, if
    they are not its own. `top_p`: the paper's sampling."""

    label: str
    scenario: str
    mode: Mode = "baseline"
    options: Mapping[str, Any] = {}
    adapter: Adapted = "none"
    against: str | None = None
    of: str | None = None
    taught: Mapping[str, Any] | None = None
    top_p: float = 1.0


class Table(NamedTuple):
    """A table: `scores` are its columns, named as by the scenarios. `figures` are the paper's, by model. `games`: the
    paper's number per row. `shares`: the scores that are 0 or 1 in each game."""

    name: Name
    title: str
    scores: tuple[str, ...]
    rows: tuple[Row, ...]
    figures: Mapping[str, Figures]
    games: int
    shares: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def row(self, label: str) -> Row:
        """The row with a label."""
        return next(row for row in self.rows if row.label == label)

    @property
    def figured(self) -> Figures:
        """The figures of the first model."""
        return next(iter(self.figures.values()))

    def paper(self, label: str, score: str) -> Figure | None:
        """The paper's figure of a row, for the first model; None: the paper has none."""
        return self.figured.get(label, {}).get(score)


class Teaching(NamedTuple):
    """The training of a table's adapters: the number of traces and epochs. The checkpoint is selected by the mean of
    `score` over `dev` games that are neither compared on nor trained on, or, if `score` is None, by the loss on
    held-out traces."""

    traces: int
    epochs: int
    score: str | None = None
    dev: int = 0


TEACHING: dict[Name, Teaching] = {
    "1": Teaching(traces=200, epochs=2, score="all right", dev=100),
    "2": Teaching(traces=100, epochs=4),
    "3": Teaching(traces=400, epochs=4),
    "4": Teaching(traces=500, epochs=8, score="correct", dev=280),
    "6": Teaching(traces=500, epochs=8, score="correct", dev=280),
    "7": Teaching(traces=400, epochs=4),
}
"""The paper's numbers of traces and epochs, by table. It prints no epochs for the dilemma (ours: 4), and no games to
select MultiQA's checkpoint by (ours: 100). The dilemma and Branch-Solve-Merge have no accuracy: their checkpoints are
selected by the loss."""

LLAMA = "Llama-3.1-8B"
SERIAL, PARALLEL = {"layout": "serial"}, {"layout": "parallel"}


def _layouts(scenario: str) -> tuple[Row, ...]:
    """The four layouts, both tuned ones, and the baseline tuned on its own games: all against the serial baseline."""
    first = "baseline, serial"
    reused: Mode = "choreographed"
    return (
        Row(first, scenario, options=SERIAL),
        Row("baseline, parallel", scenario, options=PARALLEL, against=first),
        Row("choreographed, serial", scenario, mode=reused, options=SERIAL, against=first),
        Row("choreographed, parallel", scenario, mode=reused, options=PARALLEL, against=first),
        Row("choreographed, serial, tuned", scenario, mode=reused, options=SERIAL, adapter="tuned", against=first),
        Row("choreographed, parallel, tuned", scenario, mode=reused, options=PARALLEL, adapter="tuned", against=first),
        Row("baseline, serial, tuned", scenario, options=SERIAL, adapter="own", against=first),
    )


def _both(label: str, scenario: str, options: Mapping[str, Any], top_p: float = 1.0) -> tuple[Row, Row]:
    """A workflow in the baseline, and choreographed against it."""
    first = f"{label}, baseline"
    reused = f"{label}, choreographed"
    return (
        Row(first, scenario, options=options, top_p=top_p),
        Row(reused, scenario, mode="choreographed", options=options, against=first, top_p=top_p),
    )


def _tuned(
    label: str,
    scenario: str,
    options: Mapping[str, Any],
    taught: Mapping[str, Any] | None = None,
    top_p: float = 1.0,
) -> Row:
    """A choreographed workflow with the adapter that is to restore the baseline's behavior."""
    return Row(
        f"{label}, choreographed, tuned",
        scenario,
        mode="choreographed",
        options=options,
        adapter="tuned",
        against=f"{label}, baseline",
        taught=taught,
        top_p=top_p,
    )


MATH_TOP_P = 0.95
"""The paper's Appendix E prints it for the workflows of its section 4; its section 3 prints only a temperature."""
NAMED = "parallel-debate, named"
"""The name in tables of times of MADpar with solvers that are told their names."""
UNNAMED = {"names": False}
"""MADpar's agents are identical in the paper: one system prompt for all."""


def _workflow(label: str, scenario: str, options: Mapping[str, Any]) -> tuple[Row, ...]:
    """A workflow of Table 4: baseline, choreographed, tuned, distilled into a single step."""
    first = f"{label}, baseline"
    return (
        *_both(label, scenario, options, MATH_TOP_P),
        _tuned(label, scenario, options, top_p=MATH_TOP_P),
        Row(f"{label}, distilled", "direct", adapter="distilled", against=first, of=first, top_p=MATH_TOP_P),
    )


DIRECT = Row("Direct", "direct", top_p=MATH_TOP_P)


def _questions() -> tuple[Row, ...]:
    """The rows of Table 4."""
    return (
        DIRECT,
        *_workflow("MADiter", "debate", {}),
        *_workflow("ToT", "tree-of-thoughts", {}),
        *_workflow("MADpar", "parallel-debate", UNNAMED),
        *_both("MADpar with names", "parallel-debate", {}, MATH_TOP_P),
        *_both("MADpar with names, all rounds", "parallel-debate", {"memory": "all"}, MATH_TOP_P),
    )


def _qwen() -> tuple[Row, ...]:
    """The rows of Table 6: those of Table 4 that the paper plays with Qwen3."""
    return tuple(row for row in _questions() if row.label in QWEN_8B)


PRISONERS = "prisoners-dilemma"
SETTINGS = {"free": "none", "always cooperate": "always-cooperate", "always defect": "always-defect"}
COOPERATES = "bob cooperates"


def _settings() -> tuple[Row, ...]:
    """The rows of Table 3."""
    asked = [(label, {"strategy": strategy}) for label, strategy in SETTINGS.items()]
    return tuple(
        row
        for label, options in asked
        for row in (*_both(label, PRISONERS, options), _tuned(label, PRISONERS, options))
    )


def _guesses() -> tuple[Row, ...]:
    """The rows of Table 7, with the adapters of Table 3, which are tuned on games in which nobody is asked for a
    guess."""
    asked = [(label, {"strategy": strategy}) for label, strategy in SETTINGS.items()]
    return tuple(
        row
        for label, taught in asked
        for options in [taught | {"predict": True}]
        for row in (*_both(label, PRISONERS, options), _tuned(label, PRISONERS, options, taught))
    )


OVER = {
    "all": {},
    "system prompt alone": {"behind": "system"},
    "plan alone": {"behind": "plan"},
    "talk alone": {"behind": "public"},
}
"""Figure 8: what Alice's words are encoded over for Bob. The paper has all except the last."""


def _behind(label: str, strategy: str) -> tuple[Row, ...]:
    """One setting of Figure 8."""
    first, options = f"{label}, baseline", {"strategy": strategy}
    reused = (
        Row(
            f"{label}, choreographed, {over}",
            PRISONERS,
            mode="choreographed",
            options=options | behind,
            against=first,
        )
        for over, behind in OVER.items()
    )
    return (Row(first, PRISONERS, options=options), *reused)


COVERED = ("covered", "covered of group 1", "covered of group 2", "group 1 over group 2")
GUESSED = ("alice cooperates", "bob predicts cooperation", "bob correct", "bob exploits", "bob defends")
TABLES: tuple[Table, ...] = (
    Table(
        name="1",
        title="Table 1: MultiQA, two questions and one answer to both",
        scores=("all right", "first right", "last right"),
        rows=_layouts("multi-qa"),
        figures={LLAMA: MULTI_QA},
        games=500,
        shares=("all right", "first right", "last right"),
        notes=("the paper fine-tunes the parallel layout alone",),
    ),
    Table(
        name="2",
        title="Table 2: Branch-Solve-Merge, 30 words a task",
        scores=COVERED,
        rows=_layouts("branch-solve-merge"),
        figures={LLAMA: STORIES},
        games=50,
        shares=(),
        notes=("the paper fine-tunes the parallel layout, and the baseline",),
    ),
    Table(
        name="3",
        title="Table 3: prisoner's dilemma, by Alice's private instruction",
        scores=(COOPERATES, "alice cooperates", "bob", "alice"),
        rows=_settings(),
        figures={LLAMA: DILEMMA},
        games=500,
        shares=(COOPERATES, "alice cooperates"),
    ),
    Table(
        name="4",
        title="Table 4: questions answered at once, by trees of thoughts, and by debates",
        scores=("correct",),
        rows=_questions(),
        figures={LLAMA: QUESTIONS},
        games=500,
        shares=("correct",),
        notes=(
            "MADiter is the scenario debate, MADpar parallel-debate without names: the paper's agents are identical, "
            "and ours share one system prompt. The paper does not say how many rounds before a solver reads; ours "
            "reads the last one, unless a row says all",
        ),
    ),
    Table(
        name="6",
        title="Table 6: the workflows of Table 4, beside the paper's Qwen3",
        scores=("correct",),
        rows=_qwen(),
        figures={"Qwen3-8B": QWEN_8B, "Qwen3-14B": QWEN_14B},
        games=500,
        shares=("correct",),
        notes=("the games are those of Table 4", "the paper did not fine-tune Qwen3-14B"),
    ),
    Table(
        name="7",
        title="Table 7: prisoner's dilemma, what Bob does with his guess",
        scores=GUESSED,
        rows=_guesses(),
        figures={LLAMA: GUESSES},
        games=100,
        shares=GUESSED,
        notes=("tuned rows go through the adapters of Table 3, which saw no game with guesses",),
    ),
    Table(
        name="f8",
        title="Figure 8: prisoner's dilemma, what Alice's words are encoded over for Bob",
        scores=(COOPERATES,),
        rows=tuple(row for label, strategy in SETTINGS.items() for row in _behind(label, strategy)),
        figures={LLAMA: LEAKED},
        games=500,
        shares=(COOPERATES,),
        notes=(
            "the paper prints no number of its Figure 8; these are from the authors' repository "
            "(github.com/tjbai/choreo, SUMMARY.md), which has no row for the talk alone",
        ),
    ),
)


def table_named(name: Name) -> Table:
    """The table of scores with this name."""
    return next(table for table in TABLES if table.name == name)


TIMED = ("5", "f4")
SETS = "tasks"
NAMES: tuple[Name, ...] = ("1", "2", "3", "4", "5", "6", "7", "f4", "f8", "tasks")
"""In the paper's order; the last is ours."""
