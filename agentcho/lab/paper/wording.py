"""Words a reproduction of the paper: text tables for the terminal and for a page. Independent of both."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

from agentcho.audit.wording import many
from agentcho.lab.bench.arms import AUDIT
from agentcho.lab.compare.comparison import Difference, Preference
from agentcho.lab.paper.aligned import NOT_MEASURED, aligned
from agentcho.lab.paper.effects import RULE, Effect, counted, effects
from agentcho.lab.paper.figures import GAIN, TIMES, WINS, Figures
from agentcho.lab.paper.found import HeldOut, LoadedFound, PaperFound, RowFound, TableFound, TimesFound
from agentcho.lab.paper.tables import MATH_TOP_P, NAMES, Table, table_named

UNKNOWN = "-"
BACK = ", brought back by tuning"
UNPRINTED = f"{UNKNOWN} beside a score: the paper prints no figure there"
NO_JUDGE = (
    "the paper's texts were judged by GPT-4o: here none judged, and the understudy is no judge; --judge MODEL asks "
    "one, in both orders"
)
UNJUDGED = "not judged"
OTHER_MODEL = (
    "the paper's figures are of Llama-3.1-8B on its own tasks: beside another model only whether reuse hurts can be "
    "compared, and where"
)
OF_THE_PAPER = "the paper times MADiter (debate), ToT and MADpar (parallel-debate) alone, on an A100 with Llama-3.1-8B"
END_TO_END = (
    f"the paper: end to end up to {GAIN} times sooner. It draws its Figure 4, and prints none of its other points"
)
EFFECTS = "which of the paper's effects are here"


class Grid(NamedTuple):
    """A title, heads of columns, rows of equal length, and notes; columns after the first `words` ones are numbers."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: int = 1


def grids(found: PaperFound) -> tuple[Grid, ...]:
    """All tables in the paper's order, then the effects that they show, and the phases."""
    found = aligned(found)
    named = [(table.name, grid) for table in found.tables for grid in _table(table, found)]
    named += [(times.name, _times(times)) for times in found.times]
    if found.sets:
        named.append(("tasks", _sets(found)))
    ordered = sorted(named, key=lambda each: NAMES.index(each[0]))
    told = effects(found)
    shown = [_effects(told)] if told else []
    return (*(grid for _, grid in ordered), *shown, _phases(found))


def summary(told: Sequence[Effect]) -> str:
    """The counts of the paper's effects by verdict, in one line."""
    parts = []
    for name, bounds in counted(told).items():
        within = ", ".join(f"{count} of them {bound}" for bound, count in bounds.items() if bound)
        parts.append(f"{sum(bounds.values())} {name}{f' ({within})' if within else ''}")
    return f"{many(len(told), 'effect')}: {', '.join(parts)}"


def sampled(found: PaperFound) -> str:
    """The sampling of games, in one line."""
    if found.top_p is None:
        return f"temperature {found.temperature:g}, top-p {MATH_TOP_P:g} in Tables 4 to 6 and none in the others"
    return f"temperature {found.temperature:g}, top-p {found.top_p:g} in all tables"


def _effects(told: Sequence[Effect]) -> Grid:
    rows = tuple(
        (
            each.table,
            each.row,
            each.score,
            _change(each, each.paper),
            "" if each.ours is None else _change(each, each.ours),
            f"{each.verdict}, {each.bound}" if each.bound else each.verdict,
        )
        for each in told
    )
    heads = ("", "row", "score", "paper", "ours", "")
    return Grid(EFFECTS, heads, rows, (summary(told), RULE), words=3)


def _change(effect: Effect, value: float) -> str:
    """A ratio of times, or a difference in points."""
    return f"{value:.2f} x" if effect.score in ("first token", "end to end") else f"{100 * value:+.1f}"


def heading(found: PaperFound) -> str:
    """What was played, in one line."""
    model = found.model.get("name") or found.model.get("model") or "?"
    quick = " · quick: few games, nothing trained" if found.quick else ""
    return f"arXiv 2512.23049 · {model} · {many(found.games, 'game')} a row · seed {found.seed} · {found.data}{quick}"


def planned(parts: Sequence[tuple[str, float]]) -> str:
    """The estimated time of the remaining work, from seconds by part."""
    told = ", ".join(f"{what} {_lasting(seconds)}" for what, seconds in parts)
    whole = _lasting(sum(seconds for _, seconds in parts))
    return f"about {whole} to go on one core, as it was measured of the understudy: {told}; --budget does it in pieces"


def _lasting(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def notes(found: PaperFound) -> tuple[str, ...]:
    """Notes on all tables."""
    told = [UNPRINTED, OTHER_MODEL] if found.tables else []
    if found.judge:
        told.append(f"judged by {found.judge.get('model', 'a model')}, in both orders")
    if found.left:
        told.append(f"left over by --budget, the same command goes on: {', '.join(found.left)}")
    return tuple(told)


def _table(table: TableFound, found: PaperFound) -> Iterator[Grid]:
    planned, called = table_named(table.name), table.title.partition(":")[0]
    told = [name for name in table.scores if any(planned.paper(row.label, name) for row in table.rows)]
    heads = ["", "games"]
    for name in table.scores:
        heads += [name, *_models(planned)] if name in told else [name]
    rows = tuple(_row(planned, table, row, told) for row in table.rows)
    judged = any(row.preferred for row in table.rows)
    unjudged = () if judged or table.name != "2" else (NO_JUDGE,)
    missing = _missing(planned, table, found)
    notes = (*table.notes, *_left_out(table), *missing, *unjudged, *_held_out(table))
    yield Grid(table.title, tuple(heads), rows, notes)
    tested = tuple(each for name in table.scores for row in table.rows for each in _tested(planned, table, row, name))
    if tested:
        of_paper = (f"{head}, 95 %" for head in _models(planned))
        heads_: tuple[str, ...] = ("", "score", "less", "difference, 95 %", *of_paper, "p", "Holm p")
        yield Grid(f"{called}, game by game", heads_, tested, (), words=3)
    back = tuple(_brought_back(table))
    if back:
        heads_ = ("", "score", "baseline", "reused", "tuned", "of what was lost")
        yield Grid(f"{called}{BACK}", heads_, back, words=2)
    if judged or table.name == "2":
        heads_ = ("", "pairs", "baseline wins", "paper, 95 %", "baseline loses", "paper, 95 %", "p")
        yield Grid(f"{called}, head to head with the baseline", heads_, tuple(_wins(table)))


def _models(planned: Table) -> list[str]:
    """The heads of the columns with the paper's figures."""
    return ["paper"] if len(planned.figures) == 1 else [f"paper, {model}" for model in planned.figures]


def _row(planned: Table, table: TableFound, row: RowFound, told: list[str]) -> tuple[str, ...]:
    cells = [row.label, str(row.games - row.without) if row.left_out is None else ""]
    for name in table.scores:
        score, say = row.scores.get(name), _sayer(table, name)
        if score is None:
            cells.append(NOT_MEASURED if _lacking(row, name) else "")
        else:
            cells.append(f"{say(score.mean.value)} ({score.mean.span.shown(say)})" if score.mean.games else "no game")
        if name in told:
            figures = (of_model.get(row.label, {}).get(name) for of_model in planned.figures.values())
            cells += [UNKNOWN if figure is None else say(figure.value) for figure in figures]
    return tuple(cells)


def _missing(planned: Table, table: TableFound, found: PaperFound) -> Iterator[str]:
    """What was not measured, and the command that measures it."""
    rows = [row.label for row in table.rows if row.left_out == NOT_MEASURED]
    played = [row for row in table.rows if row.scores]
    columns = [name for name in planned.scores if played and not any(name in row.scores for row in played)]
    if rows or columns:
        model = found.model.get("model", "understudy")
        named = [] if model == "understudy" else ["--model", model]
        command = shlex.join(["agentcho", "paper", *named, "-n", str(found.games), "--table", table.name])
        yield f"{NOT_MEASURED}, and `{command}` measures it: {'; '.join([*rows, *columns])}"


def _sayer(table: TableFound, name: str, sign: Literal["", "+"] = "") -> partial[str]:
    return partial(_said, name in table.binary, sign)


def _said(share: bool, sign: str, value: float) -> str:
    return f"{100 * value:{sign}.1f}%" if share else f"{value:{sign}.3f}"


def _tested(planned: Table, table: TableFound, row: RowFound, name: str) -> Iterator[tuple[str, ...]]:
    """The difference of a row from its reference, beside the paper's. If the paper has one that was not measured, the
    row says so."""
    score = row.scores.get(name)
    found: Difference | None = None if score is None else score.difference
    say = _sayer(table, name, "+")
    paper = [_paper_change(figures, row, name, say) for figures in planned.figures.values()]
    if found is not None and found.games:
        told = f"{say(found.value)} ({found.span.shown(say)})"
        yield (row.label, name, row.against or "", told, *paper, _p(found.p), _p(found.holm))
    elif _lacking(row, name) and set(paper) != {UNKNOWN}:
        yield (row.label, name, row.against or "", NOT_MEASURED, *paper, "", "")


def _lacking(row: RowFound, name: str) -> bool:
    """Whether a file of another version lacks this score."""
    return name not in row.scores and (row.left_out == NOT_MEASURED or (row.left_out is None and bool(row.scores)))


def _paper_change(figures: Figures, row: RowFound, name: str, say: Callable[[float], str]) -> str:
    """The paper's difference of a row from its baseline, with the interval if it prints one."""
    before, own = (figures.get(label, {}).get(name) for label in (row.against or "", row.label))
    if before is None or own is None:
        return UNKNOWN
    change = say(own.value - before.value)
    if own.low is None or own.high is None:
        return change
    return f"{change} ({_end(say, own.low)} to {_end(say, own.high)})"


def _end(say: Callable[[float], str], value: float) -> str:
    """The end of an interval; one that only rounds to 0 gets one more digit."""
    told = say(value)
    return f"{100 * value:+.2f}%" if value and float(told.rstrip("%")) == 0 else told


def _brought_back(table: TableFound) -> Iterator[tuple[str, ...]]:
    """For each tuned row, by the first score: the baseline, the same mode before and after tuning, and the recovered
    share of the loss; no share if the interval of the loss includes 0."""
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
    """Whether they have the same games, read in the same mode."""
    return (one.scenario, one.options, one.mode) == (other.scenario, other.options, other.mode)


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _wins(table: TableFound) -> Iterator[tuple[str, ...]]:
    """How often the judge preferred the baseline's text and the row's, beside the paper's; the rest are ties."""
    for row in table.rows:
        won, told = WINS.get(row.label) if table.name == "2" else None, row.preferred
        if won is None and told is None:
            continue
        paper = (UNKNOWN, UNKNOWN) if won is None else (_share(*won.baseline), _share(*won.row))
        pairs, wins, loses = ("", UNJUDGED, UNJUDGED) if told is None else _judged(told)
        yield (row.label, pairs, wins, paper[0], loses, paper[1], "" if told is None else _p(told.p))


def _judged(told: Preference) -> tuple[str, str, str]:
    """The pairs, and the shares of them that the baseline wins and loses."""
    pairs = max(told.games, 1)
    return str(told.games), f"{told.losses / pairs:.1%}", f"{told.wins / pairs:.1%}"


def _share(value: float, low: float, high: float) -> str:
    return f"{value:.1%} ({low:.1%} to {high:.1%})"


def _left_out(table: TableFound) -> Iterator[str]:
    why: dict[str, list[str]] = {}
    for row in table.rows:
        if row.left_out is not None and row.left_out != NOT_MEASURED:
            why.setdefault(row.left_out, []).append(row.label)
    for reason, labels in why.items():
        yield f"{'; '.join(labels)}: {reason}"


def _held_out(table: TableFound) -> Iterator[str]:
    for row in table.rows:
        if (held := row.held_out) is not None:
            step = "; its best step is 0, so the adapter changes nothing" if held.step == 0 else ""
            seen = f"; {held.seen} of {held.tasks} tasks stand in one of its traces" if held.tasks else ""
            yield f"{row.label}: {_trained(held)}{seen}{step}"


def _trained(held: HeldOut) -> str:
    """What an adapter was trained on, and how its checkpoint was selected."""
    if not held.dev:
        return f"{held.traces} traces, {held.epochs} epochs, the checkpoint chosen by the loss on some of them"
    by = f"{held.chosen} in {held.dev} games" if held.chosen else f"the loss on {held.dev} other traces"
    return f"trained on {held.traces} traces for {held.epochs} epochs, the checkpoint chosen by {by}"


def _times(found: TimesFound) -> Grid:
    heads = ["", "", "runs", "first token", "baseline/it", "end to end", "baseline/it", "waiting"]
    printed = found.name == "5"
    if printed:
        heads[5:5], heads[8:8] = ["paper"], ["paper"]
    rows = []
    for row in found.rows:
        paper = TIMES.get(row.subject) if row.arm == AUDIT else None
        first, end = (UNKNOWN, UNKNOWN) if paper is None else (_ratio(*paper.first), _ratio(*paper.end))
        rows.append(
            (
                row.subject,
                row.arm,
                str(row.runs),
                f"{row.first.shown(3)} s",
                row.first_ratio.shown(),
                *([first] if printed else []),
                f"{row.seconds.shown(3)} s",
                row.seconds_ratio.shown(),
                *([end] if printed else []),
                f"{row.waiting.middle:.0%}",
            )
        )
    if printed and rows:
        there = {row.subject for row in found.rows}
        rows += [_not_timed(subject, *paper) for subject, paper in TIMES.items() if subject not in there]
    left = () if found.left_out is None else (found.left_out,)
    return Grid(found.title, tuple(heads), tuple(rows), (*_notes(found), *left), words=2)


def _not_timed(subject: str, first: tuple[float, float, float], end: tuple[float, float, float]) -> tuple[str, ...]:
    """The row of a workflow that the paper timed and the file did not."""
    return (subject, AUDIT, "", NOT_MEASURED, "", _ratio(*first), NOT_MEASURED, "", _ratio(*end), "")


def _notes(found: TimesFound) -> Iterator[str]:
    """Notes on times. Notes of older files about the paper are left out."""
    if found.rows:
        yield OF_THE_PAPER if found.name == "5" else END_TO_END
    yield from (each for each in found.notes if not each.startswith(("the paper: ", "of which workflow each figure")))


def _ratio(value: float, low: float, high: float) -> str:
    return f"{value:g} ({low:g}-{high:g})"


def _sets(found: PaperFound) -> Grid:
    heads = ("", "compared on", "trained on", "tasks a game", "digest")
    rows = tuple((e.scenario, e.compared, e.trained, str(e.draws), e.digest[:12]) for e in found.sets)
    notes = tuple(f"{each.scenario} {_loaded(each.loaded)}" for each in found.sets if each.loaded is not None)
    return Grid("what the workflows work at", heads, rows, notes, words=3)


def _loaded(found: LoadedFound) -> str:
    """The result of a published set's loader."""
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
