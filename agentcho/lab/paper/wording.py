"""A reproduction of the paper in words: tables of text that a terminal and a page show. Does not know: either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

from agentcho.audit.wording import many
from agentcho.lab.compare.comparison import Difference, Preference
from agentcho.lab.paper.found import LoadedFound, PaperFound, RowFound, TableFound, TimesFound
from agentcho.lab.paper.tables import NAMES, TABLES

UNKNOWN = "-"
BACK = ", brought back by tuning"
AT_HAND = f"{UNKNOWN} beside a score: the paper's figure is not at hand"
NO_JUDGE = (
    "the paper has wins here too, by a model that judges: none judged, and the understudy is no judge; --judge MODEL "
    "asks one, in both orders"
)
OTHER_MODEL = (
    "the paper's figures are of Llama-3.1-8B on its own tasks: beside another model only whether reuse hurts can be "
    "compared, and where"
)


class Grid(NamedTuple):
    """A title, heads of columns, rows of as many words, and notes; columns after the first `words` ones are numbers."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: int = 1


def grids(found: PaperFound) -> tuple[Grid, ...]:
    """All of them, in the paper's order, and the phases."""
    named = [(table.name, grid) for table in found.tables for grid in _table(table)]
    named += [(times.name, _times(times)) for times in found.times]
    if found.sets:
        named.append(("6", _sets(found)))
    ordered = sorted(named, key=lambda each: NAMES.index(each[0]))
    return (*(grid for _, grid in ordered), _phases(found))


def heading(found: PaperFound) -> str:
    """What was played, in a line."""
    model = found.model.get("name") or found.model.get("model") or "?"
    quick = " · quick: few games, nothing trained" if found.quick else ""
    return f"arXiv 2512.23049 · {model} · {many(found.games, 'game')} a row · seed {found.seed} · {found.data}{quick}"


def planned(parts: Sequence[tuple[str, float]]) -> str:
    """How long what is left will take, before it begins: seconds by part."""
    told = ", ".join(f"{what} {_lasting(seconds)}" for what, seconds in parts)
    whole = _lasting(sum(seconds for _, seconds in parts))
    return f"about {whole} to go on one core, as it was measured of the understudy: {told}; --budget does it in pieces"


def _lasting(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def notes(found: PaperFound) -> tuple[str, ...]:
    """What is to be known of all tables."""
    told = [AT_HAND, OTHER_MODEL] if found.tables else []
    if found.judge:
        told.append(f"judged by {found.judge.get('model', 'a model')}, in both orders")
    if found.left:
        told.append(f"left over by --budget, the same command goes on: {', '.join(found.left)}")
    return tuple(told)


def _table(table: TableFound) -> Iterator[Grid]:
    told = [name for name in table.scores if any(_paper(row, name) is not None for row in table.rows)]
    heads = ["", "games"]
    for name in table.scores:
        heads += [name, "paper"] if name in told else [name]
    rows = tuple(_row(table, row, told) for row in table.rows)
    judged = tuple((row.label, *_preferred(row.preferred)) for row in table.rows if row.preferred)
    unjudged = () if judged or table.name != "2" else (NO_JUDGE,)
    yield Grid(table.title, tuple(heads), rows, (*table.notes, *_left_out(table), *unjudged, *_held_out(table)))
    tested = tuple(each for name in table.scores for row in table.rows for each in _tested(table, row, name))
    if tested:
        called = table.title.partition(":")[0]
        yield Grid(
            f"{called}, game by game", ("", "score", "less", "difference, 95 %", "p", "Holm p"), tested, (), words=3
        )
    back = tuple(_brought_back(table))
    if back:
        heads_ = ("", "score", "baseline", "reused", "tuned", "of what was lost")
        yield Grid(table.title.partition(":")[0] + BACK, heads_, back, words=2)
    if judged:
        heads_ = ("", "wins", "losses", "ties", "wins of decided, 95 %", "p")
        yield Grid(f"{table.title.partition(':')[0]}, preferred by the judge to the first row's", heads_, judged)


def _row(table: TableFound, row: RowFound, told: list[str]) -> tuple[str, ...]:
    cells = [row.label, str(row.games - row.without) if row.left_out is None else ""]
    for name in table.scores:
        score, say = row.scores.get(name), _sayer(table, name)
        cells.append(
            ""
            if score is None
            else f"{say(score.mean.value)} ({score.mean.span.shown(say)})"
            if score.mean.games
            else "no game"
        )
        if name in told:
            paper = _paper(row, name)
            cells.append(UNKNOWN if paper is None else say(paper))
    return tuple(cells)


def _paper(row: RowFound, name: str) -> float | None:
    """The paper's figure, of a row that was left out too."""
    if name in row.scores:
        return row.scores[name].paper
    planned = (each for table in TABLES for each in table.rows if each.label == row.label and name in table.scores)
    return next((each.paper.get(name) for each in planned if each.scenario == row.scenario), None)


def _sayer(table: TableFound, name: str, sign: Literal["", "+"] = "") -> partial[str]:
    return partial(_said, name in table.binary, sign)


def _said(share: bool, sign: str, value: float) -> str:
    return f"{100 * value:{sign}.1f}%" if share else f"{value:{sign}.3f}"


def _tested(table: TableFound, row: RowFound, name: str) -> Iterator[tuple[str, ...]]:
    score = row.scores.get(name)
    found: Difference | None = None if score is None else score.difference
    if found is not None and found.games:
        say = _sayer(table, name, "+")
        told = f"{say(found.value)} ({found.span.shown(say)})"
        yield (row.label, name, row.against or "", told, _p(found.p), _p(found.holm))


def _brought_back(table: TableFound) -> Iterator[tuple[str, ...]]:
    """For each tuned row, by the first score: the baseline, the same way of reading before tuning, after it, and the
    share of the loss that is made good; none where the interval of the loss has no loss in it too."""
    name = next(iter(table.scores), "")
    say, scored = _sayer(table, name), {row.label: row.scores[name] for row in table.rows if name in row.scores}
    there = {label: score for label, score in scored.items() if score.mean.games}
    for row in (each for each in table.rows if each.adapter == "tuned"):
        before = next((each.label for each in table.rows if each.adapter == "none" and _alike(each, row)), "")
        if row.against is not None and {row.against, before, row.label} <= there.keys():
            baseline, reused, tuned = (there[label].mean.value for label in (row.against, before, row.label))
            found = there[before].difference
            lost = found is not None and found.span.high < 0 and reused < baseline
            share = f"{(tuned - reused) / (baseline - reused):.0%}" if lost else "no loss is shown"
            yield (row.label, name, say(baseline), say(reused), say(tuned), share)


def _alike(one: RowFound, other: RowFound) -> bool:
    """Whether they are of the same games, read in the same way."""
    return (one.scenario, one.options, one.mode) == (other.scenario, other.options, other.mode)


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _preferred(told: Preference) -> tuple[str, ...]:
    share = f"{told.share:.1%} ({told.span.shown('{:.1%}'.format)})"
    return f"{told.wins} of {told.games}", str(told.losses), str(told.ties), share, _p(told.p)


def _left_out(table: TableFound) -> Iterator[str]:
    why: dict[str, list[str]] = {}
    for row in table.rows:
        if row.left_out is not None:
            why.setdefault(row.left_out, []).append(row.label)
    for reason, labels in why.items():
        yield f"{'; '.join(labels)}: {reason}"


def _held_out(table: TableFound) -> Iterator[str]:
    for row in table.rows:
        if (held := row.held_out) is not None:
            step = "; its best step is 0, so the adapter changes nothing" if held.step == 0 else ""
            yield (
                f"{row.label}: {held.seen} of {held.tasks} tasks stand in one of the {held.traces} traces it was "
                f"trained on{step}"
            )


def _times(found: TimesFound) -> Grid:
    heads = ("", "", "runs", "first token", "baseline/it", "end to end", "baseline/it", "waiting")
    rows = tuple(
        (
            row.subject,
            row.arm,
            str(row.runs),
            f"{row.first.shown(3)} s",
            row.first_ratio.shown(),
            f"{row.seconds.shown(3)} s",
            row.seconds_ratio.shown(),
            f"{row.waiting.middle:.0%}",
        )
        for row in found.rows
    )
    left = () if found.left_out is None else (found.left_out,)
    return Grid(found.title, heads, rows, (*found.notes, *left), words=2)


def _sets(found: PaperFound) -> Grid:
    heads = ("", "compared on", "trained on", "tasks a game", "digest")
    rows = tuple((e.scenario, e.compared, e.trained, str(e.draws), e.digest[:12]) for e in found.sets)
    notes = tuple(f"{each.scenario} {_loaded(each.loaded)}" for each in found.sets if each.loaded is not None)
    return Grid("Table 6: what the workflows work at", heads, rows, notes, words=3)


def _loaded(found: LoadedFound) -> str:
    """What came of a published set's loader."""
    if found.left_out is not None:
        return f"was not played through the loader of {found.loader}: {found.left_out}"
    means = [UNKNOWN if mean is None else f"{mean:.3f}" for mean in (found.without, found.through)]
    return (
        f"with its tasks in the form of {found.loader}, through its loader: the same words in {found.same} of "
        f"{many(found.games, 'game')}; {found.score} {means[1]}, without it {means[0]}"
    )


def _phases(found: PaperFound) -> Grid:
    rows = tuple((phase.name, f"{phase.seconds:.1f} s") for phase in found.phases)
    whole = sum(phase.seconds for phase in found.phases)
    return Grid("phases", ("", "seconds"), (*rows, ("all", f"{whole:.1f} s")))
