"""The page on a real model, from result files: `python -m tools.pages.real_model docs/results docs/real-model.md`.

Parts without a result file are left out, and the page says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel

from agentcho.audit.wording import listed
from agentcho.lab.display.reading import apart, effect_cells, moved_cells, shown
from agentcho.lab.leaks.result import LeaksResult, Row, Secrets, read_leaks
from agentcho.lab.paper.aligned import aligned
from agentcho.lab.paper.effects import Effect as PaperEffect
from agentcho.lab.paper.effects import effects, expected, sign, verdict
from agentcho.lab.paper.found import PaperFound
from agentcho.lab.paper.tables import COOPERATES, Table, table_named
from agentcho.lab.paper.wording import EFFECTS, Grid, grids, summary
from agentcho.lab.reading.decisions import BEHIND, DECISION, GUESS, TOLD
from agentcho.lab.reading.fidelity import BASELINE, steps
from agentcho.lab.reading.partitions import PARTITIONS
from agentcho.lab.reading.result import (
    DecisionsResult,
    Effect,
    Exchange,
    FidelityResult,
    Measured,
    read_decisions,
    read_fidelity,
)
from agentcho.lab.tune.recipe import Recipe
from tools.pages.real_distances import HEADS, distances
from tools.pages.real_speed import draw, speed, untimed
from tools.pages.real_tasks import merged, short_tasks
from tools.pages.render import arguments, commit_of, render, rewrite
from tools.real_costs import Costs
from tools.trainings import Checkpoint, TrainedAdapter, Trainings

T = TypeVar("T", bound=BaseModel)
WIDTH = 576
"""The width of SmolLM2-135M, which determines learning rates if none was given."""
FIDELITY = ("real-fidelity", "real-fidelity-office", "real-fidelity-office-ways")
"""Results of `agentcho bench fidelity`."""
PARTITIONED = "real-partitions"
"""The result of `agentcho bench fidelity --modes baseline`: what caches in parts would encode."""
DECISIONS = ("real-decisions-recorded", "real-decisions-forced")
"""Results of `agentcho bench decisions`."""
LEAKS = (
    "real-leaks-forced",
    "real-leaks-natural",
    "real-leaks-natural-plans",
    "real-leaks-natural-vaults",
    "real-leaks-natural-more",
    "real-leaks-natural-vaults-more",
)
"""Results of `agentcho bench leaks`."""
LEAKING = "leaks"
"""The verdict of an attack that reads more than chance and more than the text tells."""
CALLED = {"linear": "a linear probe", "mlp": "an MLP", "collision": "a collision search", "asked": "asking the model"}
"""Attacks by their names in results; others are called as they are named there."""
TUNED = (
    "real-fidelity-tuned",
    "real-fidelity-tuned-dilemma",
    "real-fidelity-tuned-dilemma-2e-4",
    "real-fidelity-tuned-dilemma-t1",
)
"""Results of `agentcho bench fidelity` with adapters."""
BY_EPOCH = ("real-fidelity-tuned-epochs-audit", "real-fidelity-tuned-epochs-enforce")
"""Those with the adapters of several epochs of one training."""
TRAININGS = (
    "real-trainings",
    "real-trainings-dilemmas",
    "real-trainings-tasks",
    "real-trainings-trees",
    "real-trainings-epochs",
)
"""Results of `tools.trainings`, for these adapters and others."""
COSTS = "real-costs"
"""The result of `tools.real_costs`."""
PAPER, TABLES = "real-paper", ("Table 1", "Table 2", "Table 4")
"""The result of `agentcho paper`, and the tables of it that are shown."""
TREES = "real-task-one-step-tree-of-thoughts-tuned"
"""The result of `agentcho compare` on trees of thoughts with adapters."""
AUDIT, ENFORCE = "choreographed:audit", "choreographed:enforce"
FULL, ANCHORED, NEARLY = f"{AUDIT}+full", f"{AUDIT}+kvcomm:1", 0.98
KEPT = {
    AUDIT: "`audit`",
    ENFORCE: "`enforce`",
    f"{AUDIT}+first-k:16": "`audit`, 16 tokens of each message anew",
}
SETTINGS = {"none": "free", "always-cooperate": "always cooperate", "always-defect": "always defect"}
"""The paper's names for what Alice was told."""
LEAST, FEWEST = 0.005, 6
"""A change of a probability below half a point counts as none. With fewer conversations than this, no verdict is
given."""
TUNED_ROW = ", tuned"
"""The end of the name of a row with an adapter."""
FIGURE_8 = {f"{AUDIT}, {name}": name for name in BEHIND.values()}


ATTACKS = ("linear", "mlp", "inversion", "collision", "asked")
KINDS = ("codes", "names", "plans", "preferences", "vaults")
"""All attacks, and all kinds of secrets, of `agentcho bench leaks`."""
INCONCLUSIVE = "inconclusive"
"""The verdict on an effect whose positive control did not move the reader."""


class Compared(NamedTuple):
    """One effect of the paper next to ours: the change of a probability, as shares; the verdict on our probability, and
    on our log-odds, which can move where a probability near 1 cannot."""

    table: str
    row: str
    paper: float
    ours: Effect
    by_share: str
    by_odds: str


def page(results: Path) -> str:
    """The whole page."""
    fidelity = {name: read_fidelity(file) for name in FIDELITY if (file := results / f"{name}.json").is_file()}
    leaks = [read_leaks(file) for name in LEAKS if (file := results / f"{name}.json").is_file()]
    decisions = [read_decisions(file) for name in DECISIONS if (file := results / f"{name}.json").is_file()]
    compared = [each for found in decisions for each in _compared(found)]
    plain = [each for each in compared if not each.row.endswith(TUNED_ROW)]
    tuned = [read_fidelity(file) for name in TUNED if (file := results / f"{name}.json").is_file()]
    epochs = [read_fidelity(file) for name in BY_EPOCH if (file := results / f"{name}.json").is_file()]
    parts = read_fidelity(file) if (file := results / f"{PARTITIONED}.json").is_file() else None
    trainings = [found for name in TRAININGS if (found := _read(results / f"{name}.json", Trainings)) is not None]
    repaired = distances(decisions)
    paper, fast = _read(results / f"{PAPER}.json", PaperFound), speed(results)
    return render(
        "real-model",
        speed=fast,
        kept=_kept(fidelity.values()),
        partitions=parts and (_about(parts), _partitions(parts, fidelity.values())),
        fidelity=[
            (_about(each), list(_tables(each)), [*_nearer(each), *_idle(each)], name) for name, each in fidelity.items()
        ],
        decisions=[
            (_about(each), _moved(each), _effects(each, DECISION), _effects(each, GUESS), each) for each in decisions
        ],
        sizes=_sizes(decisions),
        distances=_table(HEADS, [each.row for each in repaired]) if repaired else "",
        brought_back=[each.sentence for each in repaired if each.question == DECISION],
        adapted=any("@" in each.way for found in decisions for each in found.effects),
        verdict=_verdict(plain),
        leaks_here=_leaks_here(decisions),
        summary=_summary([each.by_share for each in plain]),
        summary_odds=_summary([each.by_odds for each in plain]),
        compared=_compared_table(compared),
        leaks=[(_about_leaks(each), _leaks(each), _tried(each), each) for each in leaks],
        trainings=_trainings(trainings),
        twice=_twice(trainings),
        tuned=[(_about(each), list(_tables(each)), list(_brought_back(each))) for each in tuned],
        epochs=[(_about(each), list(_tables(each))) for each in epochs],
        by_epoch=_by_epoch(epochs),
        best_epochs=[line for each in epochs for line in _best_epochs(each)],
        paper=paper and _Paper.of(paper),
        tasks=short_tasks(results),
        merged=merged(results),
        missing="; ".join([*_missing(tuned, paper, leaks, decisions), *_unadapted(paper, results), *_untimed(results)]),
        attacked=[line for each in leaks for line in _attacked(each)],
        costs=_read(results / f"{COSTS}.json", Costs),
    )


def _read(file: Path, kind: type[T]) -> T | None:
    """Read a result file, if it exists."""
    return kind.model_validate_json(file.read_bytes()) if file.is_file() else None


def _about(found: Measured) -> str:
    machine = found.machine
    return (
        f"`{found.command}`: {found.model}, {found.dtype}; {machine['machine']}, torch {machine['torch']}, commit "
        f"{commit_of(machine)}, seed {found.seed}."
    )


# -- fidelity


def _tables(found: FidelityResult) -> Iterator[tuple[str, str]]:
    """The title of each set, with its size, and its table."""
    for subject in dict.fromkeys(row.subject for row in found.rows):
        own = [row for row in found.rows if row.subject == subject]
        heads = ("way", "KL, nats a token (95%)", "same likeliest token", "nats a token more (95%)", "tokens encoded")
        rows = [(row.column, *apart(row), f"{row.ratio:.2f}") for row in own]
        title = f"{subject}: {own[0].games} conversations, {own[0].rows:,} tokens said"
        yield title, _table(heads, rows)


def _kept(found: Iterable[FidelityResult]) -> str:
    """What the plain ways and the cheapest repair preserve of the baseline, and at what cost, for each set."""
    heads = ("conversations", "number", *(f"{called}: same likeliest token" for called in KEPT.values()))
    rows = []
    for each in found:
        for subject in dict.fromkeys(row.subject for row in each.rows):
            own = {row.column: row for row in each.rows if row.subject == subject}
            if not KEPT.keys() & own.keys():
                continue
            cells = [f"{own[n].same.value:.1%}, {own[n].ratio:.2f} of the tokens" if n in own else "" for n in KEPT]
            rows.append((subject, f"{own[BASELINE].games}", *cells))
    return _table(heads, rows)


def _partitions(found: FidelityResult, read: Iterable[FidelityResult]) -> str:
    """What partitioned caches encode relative to the baseline, beside the plain ways of `read` where those are of the
    same conversations."""
    ways = {(row.subject, row.column): row for each in read if _same(each, found) for row in each.rows}
    columns = (*PARTITIONS, AUDIT, ENFORCE)
    rows = []
    for subject in dict.fromkeys(row.subject for row in found.rows):
        own = {row.column: row for row in found.rows if row.subject == subject}
        known = [own.get(column) or ways.get((subject, column)) for column in columns]
        rows.append((subject, f"{own[BASELINE].games}", *(f"{row.ratio:.2f}" if row else "" for row in known)))
    return _table(("conversations", "number", *(KEPT.get(column, column) for column in columns)), rows)


def _same(read: FidelityResult, found: FidelityResult) -> bool:
    """Whether the baselines of two results encoded the same tokens of the same conversations, on one model."""
    baselines = [
        {(each.subject, each.id): each.encoded for each in result.reads if each.column == BASELINE}
        for result in (read, found)
    ]
    return (read.model, read.dtype, baselines[0]) == (found.model, found.dtype, baselines[1])


def _idle(found: FidelityResult) -> Iterator[str]:
    """Sets in which KVCOMM found nothing to reuse."""
    for subject in dict.fromkeys(row.subject for row in found.rows):
        own = {row.column: row for row in found.rows if row.subject == subject}
        anchored, called = own.get(ANCHORED), "`full`" if FULL in own else "the baseline"
        whole = own.get(FULL, own.get(BASELINE))
        if whole and anchored and anchored.encoded >= NEARLY * whole.encoded:
            games = f"{subject}, {anchored.games} conversations"
            yield f"{games}: KVCOMM at threshold 1 encoded as much as {called}: it reused nothing"


def _nearer(found: FidelityResult) -> Iterator[str]:
    """Whether enforcement is nearer to the baseline than plain reuse, for each set."""
    for step in found.steps:
        if (step.first, step.second) != (AUDIT, ENFORCE):
            continue
        side = sign(step.nearer.span.low, step.nearer.span.high)
        near, far = ("`enforce`", "`audit`") if side > 0 else ("`audit`", "`enforce`")
        if side == 0:
            yield f"{step.subject}: `audit` and `enforce` are equally near the baseline"
            continue
        low, high = sorted(abs(end) for end in (step.nearer.span.low, step.nearer.span.high))
        size = f"{abs(step.nearer.value):.4f} ({low:.4f} to {high:.4f}) nats a token"
        count = step.share if side > 0 else step.games - step.share
        told = f"{near} is nearer the baseline than {far}, by a KL of {size}, in {count} of {step.games} conversations"
        yield f"{step.subject}: {told}"


# -- tuning


def _trainings(found: Sequence[Trainings]) -> str:
    """Each adapter: what it was trained for, at which rate, the loss on held-out traces and any score that chose the
    checkpoint after each epoch, and the epoch that was kept."""
    adapters = [adapter for each in found for adapter in each.adapters]
    if not adapters:
        return ""
    epochs = sorted({each.epoch for adapter in adapters for each in adapter.checkpoints if each.epoch})
    after = (f"epoch {epoch:g}" for epoch in epochs)
    heads = ("adapter", "reads", "peak rate", "traces", "minutes", "kept", "before", *after)
    return _table(heads, [_training_cells(adapter, epochs) for adapter in adapters])


def _twice(found: Sequence[Trainings]) -> bool:
    """Whether two adapters have one name."""
    names = [adapter.name for each in found for adapter in each.adapters]
    return len(set(names)) < len(names)


def _training_cells(adapter: TrainedAdapter, epochs: Sequence[float]) -> tuple[str, ...]:
    training, found = adapter.training, {each.epoch: each for each in adapter.checkpoints}
    kept = next(f"{each.epoch:g}" for each in adapter.checkpoints if each.step == training.step)
    rate = Recipe.model_validate(training.recipe).peak(WIDTH)
    what = (adapter.name, f"`{training.leakage}`", f"{rate:.2g}", f"{training.train}", f"{training.seconds / 60:.0f}")
    return *what, kept, *(_checkpoint(found[epoch]) if epoch in found else "" for epoch in (0.0, *epochs))


def _checkpoint(found: Checkpoint) -> str:
    return f"{found.loss:.3f}{f' ({found.score:.2f})' if found.score is not None else ''}"


def _brought_back(found: FidelityResult) -> Iterator[str]:
    """For each column with an adapter, how much nearer to the baseline it is than the same column without one."""
    columns = dict.fromkeys(row.column for row in found.rows)
    pairs = [(plain, column) for column in columns if (plain := column.partition("@")[0]) in columns and "@" in column]
    for step in steps(found.reads, [pair for pair in pairs if pair[0] != BASELINE], found.seed):
        before = next(r.kl.value for r in found.rows if (r.subject, r.column) == (step.subject, step.first))
        side = sign(step.nearer.span.low, step.nearer.span.high)
        low, high = step.nearer.span.low / before, step.nearer.span.high / before
        ends = sorted((abs(low), abs(high)))
        apart = "the divergence from the baseline"
        size = f"{abs(step.nearer.value) / before:.0%} ({ends[0]:.0%} to {ends[1]:.0%}) of {apart}"
        span = f"the interval of the change, {0 - high:+.0%} to {0 - low:+.0%}, includes 0"
        times = f"{1 - step.nearer.value / before:.0f} times as large ({1 - high:.0f} to {1 - low:.0f})"
        more = f"makes {apart} {times}" if low < -1 else f"adds {size}"
        told = {1: f"takes away {size}", 0: f"shows no change of {apart} ({span})", -1: more}
        count = f"nearer the baseline in {step.share} of {step.games} conversations"
        adapter = step.second.partition("@")[2]
        adapted = f"{BASELINE}@{adapter}"
        own = next((r.kl.value for r in found.rows if (r.subject, r.column) == (step.subject, adapted)), None)
        alone = "" if own is None else f"; the baseline with this adapter itself diverges by {own:.4f} nats a token"
        yield f"{step.subject}: under {step.first}, the adapter {adapter} {told[side]}; {count}{alone}"


def _by_epoch(found: Sequence[FidelityResult]) -> str:
    """What each epoch of a training brings back: the change of the divergence from the baseline, the conversations that
    are nearer to it, and the divergence of the baseline with the same adapter."""
    heads = (
        *("conversations", "way", "adapter", "its divergence from the baseline, against no adapter (95%)"),
        *("nearer in", "divergence of the baseline with this adapter"),
    )
    return _table(heads, [row for each in found for row in _epoch_rows(each)])


def _best_epochs(found: FidelityResult) -> Iterator[str]:
    """A sentence on the epoch that takes away most of the divergence, and the last one."""
    rows = list(_epoch_rows(found))
    for subject, way in dict.fromkeys((row[0], row[1]) for row in rows):
        own = [row for row in rows if row[:2] == (subject, way)]
        best = min(own, key=lambda row: float(row[3].partition("%")[0]))
        mode = way.replace("choreographed:", "")
        yield (
            f"{subject}: under {mode}, of the {len(own)} measured epochs of one training, {best[2]} changes the "
            f"divergence most, {best[3]} (the best for these conversations themselves); the last, {own[-1][2]}, "
            f"{own[-1][3]}"
        )


def _epoch_rows(found: FidelityResult) -> Iterator[tuple[str, ...]]:
    columns = dict.fromkeys(row.column for row in found.rows)
    pairs = [(plain, column) for column in columns if (plain := column.partition("@")[0]) in columns and "@" in column]
    kl = {(row.subject, row.column): row.kl.value for row in found.rows}
    for step in steps(found.reads, [pair for pair in pairs if pair[0] != BASELINE], found.seed):
        adapter, before = step.second.partition("@")[2], kl[step.subject, step.first]
        low, high = 0 - step.nearer.span.high / before, 0 - step.nearer.span.low / before
        own = kl.get((step.subject, f"{BASELINE}@{adapter}"))
        changed = f"{0 - step.nearer.value / before:+.1%} ({low:+.1%} to {high:+.1%})"
        nearer = f"{step.share} of {step.games}"
        yield step.subject, f"`{step.first}`", adapter, changed, nearer, "" if own is None else f"{own:.4f}"


# -- the paper's tables


class _Paper(NamedTuple):
    """The part of a result of `agentcho paper` that is shown."""

    found: PaperFound
    grids: tuple[Grid, ...]
    summary: str
    floor: bool
    hours: float

    @classmethod
    def of(cls, found: PaperFound) -> _Paper:
        shown = tuple(grid for grid in grids(found) if grid.title.startswith(TABLES) or grid.title == EFFECTS)
        measured = tuple(each for each in effects(aligned(found)) if each.table in TABLES and each.ours is not None)
        shown = tuple(_only(grid, measured) if grid.title == EFFECTS else grid for grid in shown)
        floor = bool(measured) and all(each.bound == "at floor" for each in measured)
        return cls(found, shown, summary(measured), floor, sum(phase.seconds for phase in found.phases) / 3600)


def _only(grid: Grid, measured: Sequence[PaperEffect]) -> Grid:
    """The rows of effects that were measured."""
    kept = {(each.table, each.row, each.score) for each in measured}
    rows = tuple(row for row in grid.rows if row[:3] in kept)
    return grid._replace(rows=rows, notes=(summary(measured), *grid.notes[1:]))


def _missing(
    tuned: Sequence[FidelityResult],
    paper: PaperFound | None,
    leaks: Sequence[LeaksResult],
    decisions: Sequence[DecisionsResult],
) -> list[str]:
    """What has not been measured yet."""
    natural = [each for each in leaks if each.sentence == "natural"]
    tried = {row.attack for each in natural for row in each.rows if row.unavailable is None}
    kinds = {each.kind for found in natural for each in found.secrets}
    begun = {row.attack for each in natural for row in each.rows}
    attacks = [CALLED.get(name, name) for name in ATTACKS if name not in begun]
    barred = [CALLED.get(name, name) for name in ATTACKS if name in begun - tried]
    others = [name for name in KINDS if name not in kinds]
    adapted = any("@" in each.way for found in decisions for each in found.effects)
    return [
        *([] if tuned else ["the effect of tuning"]),
        *([] if paper else ["the scores of the paper's workflows"]),
        *([] if natural else ["attacks on sentences in the model's own words"]),
        *([f"attacks by {listed(attacks)} on such sentences"] if natural and attacks else []),
        *([f"attacks by {listed(barred)} on such sentences, each of which is different"] if barred else []),
        *([f"{listed(others)} as secrets of such sentences"] if natural and others else []),
        *([] if adapted else ["decisions with adapters"]),
    ]


def _unadapted(paper: PaperFound | None, results: Path) -> Iterator[str]:
    """The scores that were measured without adapters only, and why where there is a reason."""
    if paper is not None:
        floor = " (all of them are at their floor, where an adapter can show nothing)" if _Paper.of(paper).floor else ""
        yield f"the scores of `agentcho paper` with adapters{floor}"
    if not (results / f"{TREES}.json").is_file():
        yield "the scores of trees of thoughts with adapters"


def _untimed(results: Path) -> Iterator[str]:
    """The programs beside which the model's own words have not been timed."""
    if programs := untimed(results):
        yield f"speed on words that it sampled itself, beside {listed(programs)}"


# -- decisions


def _compared(found: DecisionsResult) -> Iterator[Compared]:
    """Table 3, Table 7 and Figure 8 of the paper, setting by setting. Recorded and forced conversations are
    separate."""
    for each in found.effects:
        setting, fired = SETTINGS.get(each.told), _fired(_control(found, each.subject, each.question))
        if setting is None or each.games < FEWEST:
            continue
        tuned = TUNED_ROW if _of_kind(each.way, f"{AUDIT}@") else ""
        row = f"{setting}, choreographed{tuned}"
        if (each.way == AUDIT or tuned) and each.question == DECISION:
            yield from _beside(each, fired, "3", row, score=COOPERATES)
        if (each.way == AUDIT or tuned) and each.question == GUESS:
            yield from _beside(each, fired, "7", row, score="bob predicts cooperation")
        if each.way in FIGURE_8 and each.question == DECISION:
            yield from _beside(each, fired, "f8", f"{setting}, choreographed, {FIGURE_8[each.way]}", score=COOPERATES)


def _beside(ours: Effect, fired: bool, name: str, label: str, *, score: str) -> Iterator[Compared]:
    table: Table = table_named(name)  # type: ignore[arg-type]
    row = table.row(label)
    own, before = table.paper(label, score), table.paper(row.against or "", score)
    paper = expected(table, row)
    if own is None or before is None or paper is None:
        return
    moved = sign(ours.change.span.low, ours.change.span.high) if abs(ours.change.value) >= LEAST else 0
    odds = sign(ours.odds.span.low, ours.odds.span.high)
    by_share, by_odds = (verdict(paper, each) if fired else INCONCLUSIVE for each in (moved, odds))
    title = table.title.partition(":")[0]
    yield Compared(
        table=title, row=label, paper=own.value - before.value, ours=ours, by_share=by_share, by_odds=by_odds
    )


def _compared_table(found: Sequence[Compared]) -> str:
    heads = ("effect", "conversations", "paper, points", "here, points (95%)", "log-odds (95%)", "sign", "of log-odds")
    rows = [
        (
            f"{each.table}: {each.row}",
            f"{each.ours.subject} ({each.ours.games})",
            f"{100 * each.paper:+.1f}",
            shown(each.ours.change, 2, "+", 100),
            shown(each.ours.odds, 3, "+"),
            each.by_share,
            each.by_odds,
        )
        for each in found
    ]
    return _table(heads, rows)


def _verdict(found: Sequence[Compared]) -> str:
    """A sentence on whether the paper's effects on decisions occur here."""
    if not found:
        return ""
    shown_too = [each for each in found if each.by_share == "reproduced"]
    asked = [each for each in found if each.by_share not in ("no difference in both", INCONCLUSIVE)]
    said = f"reproduced in {len(shown_too)} of {len(asked)} rows" if shown_too else "not reproduced"
    told = [each for each in found if each.by_share != INCONCLUSIVE]
    if not told:
        return "neither shown nor ruled out: the positive control did not move the reader"
    most = max(told, key=lambda each: abs(each.ours.change.value))
    row = f"{most.table}, {most.row}, {most.ours.subject}"
    size = f"{100 * most.ours.change.value:+.2f} points ({row})"
    return f"{said}: among the effects that are not inconclusive, the largest change of a probability is {size}"


def _leaks_here(found: Sequence[DecisionsResult]) -> bool:
    """Whether hidden content moves the reader under reuse but not under enforcement, in every set."""
    moved = [each for result in found for each in result.moved if each.question == DECISION]
    reused = [each.size.span.low > 0 for each in moved if each.way == AUDIT]
    enforced = [each.size.value == 0 for each in moved if each.way == ENFORCE]
    return bool(reused and enforced) and all(reused) and all(enforced)


def _summary(found: Sequence[str]) -> str:
    """The number of the paper's effects with each verdict."""
    counts = [f"{found.count(name)} {name}" for name in dict.fromkeys(found)]
    return f"{len(found)} effects: {', '.join(counts)}"


def _control(found: DecisionsResult, subject: str, question: str) -> Exchange | None:
    """The exchange in which her thoughts are in his own prompt, and she was told opposite things."""
    told = ("always-cooperate", "always-defect")
    own = (each for each in found.moved if (each.subject, each.question) == (subject, question) and each.way == TOLD)
    return next((each for each in own if (each.first, each.second) == told), None)


def _fired(control: Exchange | None) -> bool:
    """Whether it moved the reader in one direction."""
    return control is not None and sign(control.odds.span.low, control.odds.span.high) != 0


def _sizes(found: Sequence[DecisionsResult]) -> str:
    """How much an exchange of hidden content moves the log-odds of an answer: the direction in which the control moves
    it, and the unsigned size in each way."""
    heads = (
        "conversations",
        "answer",
        "pairs",
        "control, signed (95%)",
        "control, size",
        "`audit`, size",
        "`enforce`, size",
    )
    tuned = any("@" in each.way for result in found for each in result.moved)
    more = ("`audit`, tuned, size", "`enforce`, tuned, size") if tuned else ()
    rows = [row for each in found for row in _size_rows(each)]
    return _table((*heads, *more), [row[: len(heads) + len(more)] for row in rows])


def _size_rows(found: DecisionsResult) -> Iterator[tuple[str, ...]]:
    for subject, question in dict.fromkeys((each.subject, each.question) for each in found.moved):
        own = [each for each in found.moved if (each.subject, each.question) == (subject, question)]
        control = _control(found, subject, question)
        signed = "" if control is None else shown(control.odds, 3, "+")
        kinds = (TOLD, AUDIT, ENFORCE, f"{AUDIT}@", f"{ENFORCE}@")
        sizes = [[each.size.value for each in own if _of_kind(each.way, kind)] for kind in kinds]
        pairs = sum(each.games for each in own if each.way == AUDIT)
        yield (subject, question, f"{pairs}", signed, *(f"{np.mean(size):.3f}" if size else "" for size in sizes))


def _of_kind(way: str, kind: str) -> bool:
    """Whether a way is of a kind; a kind that ends with "@" is of any adapter."""
    return way.startswith(kind) if kind.endswith("@") else way == kind


def _effects(found: DecisionsResult, asked: str) -> str:
    heads = (
        *("conversations", f"{found.owner} was told", "way", "games", "probability"),
        *("less baseline, points (95%)", "log-odds less baseline (95%)", "turned"),
    )
    rows = [(e.subject, e.told, e.way, *effect_cells(e)) for e in found.effects if e.question == asked and e.games]
    return _table(heads, rows)


def _moved(found: DecisionsResult) -> str:
    heads = (
        *("conversations", "question", "what is hidden", "way", "games"),
        *("probability, points (95%)", "log-odds (95%)", "size of log-odds (95%)"),
    )
    rows = [(e.subject, e.question, f"{e.first} less {e.second}", e.way, *moved_cells(e)) for e in _in_order(found)]
    return _table(heads, rows)


def _in_order(found: DecisionsResult) -> list[Exchange]:
    return sorted(found.moved, key=lambda each: (each.subject, each.question, each.first, each.second))


# -- attacks


def _about_leaks(found: LeaksResult) -> str:
    machine = found.machine
    return (
        f"`{found.command}`: {found.model}, {found.dtype}; {machine['machine']}, torch {machine['torch']}, commit "
        f"{commit_of(machine)}, seed {found.seed}; {found.n} secrets of each kind, a quarter of them tested."
    )


def _tried(found: LeaksResult) -> str:
    """The attacks that were tried, in words."""
    names = {row.attack for row in found.rows if row.unavailable is None}
    return listed([CALLED.get(name, name) for name in ATTACKS if name in names])


def _leaks(found: LeaksResult) -> str:
    """The best attack for each way and each kind of secret, and the verdict."""
    heads = ("way", *(f"{each.kind}: bits of {each.entropy:.1f} (95%), by, verdict" for each in found.secrets))
    rows = [
        (way, *(_best(_rows(found, way, each.kind)) for each in found.secrets))
        for way in dict.fromkeys(row.way for row in found.rows)
    ]
    return _table(heads, rows)


def _rows(found: LeaksResult, way: str, kind: str) -> list[Row]:
    return [row for row in found.rows if (row.way, row.kind) == (way, kind)]


def _best(rows: Sequence[Row]) -> str:
    best = _most(rows)
    if best is None:
        return ""
    return f"{best.bits:.1f} ({best.bits_interval.shown('{:.1f}'.format)}), {best.attack}, {_verdict_of(rows, best)}"


def _verdict_of(rows: Iterable[Row], best: Row) -> str:
    """The verdict of the best attack, unless another one shows a leak."""
    return LEAKING if any(row.verdict == LEAKING for row in rows) else best.verdict


def _most(rows: Iterable[Row]) -> Row | None:
    """The attack that found the most bits. None: none was tried."""
    return max((row for row in rows if row.unavailable is None), key=lambda row: row.bits, default=None)


def _attacked(found: LeaksResult) -> list[str]:
    """A sentence on what the best attack on each kind of secret found, in the ways that users choose between."""
    return [_attacked_kind(found, secret) for secret in found.secrets]


def _attacked_kind(found: LeaksResult, secret: Secrets) -> str:
    parts = []
    for way, called in {"reuse": "reused encodings", "audience": "the audience's", "text": "the words alone"}.items():
        rows = _rows(found, way, secret.kind)
        if (best := _most(rows)) is not None:
            verdict = f", verdict {_verdict_of(rows, best)}" if way != "text" else ""
            parts.append(f"{best.bits:.1f} ({best.bits_interval.shown('{:.1f}'.format)}) from {called}{verdict}")
    words = "sentences in the model's own words" if found.sentence == "natural" else "one forced sentence"
    of = f"{secret.entropy:.1f} bits of secret ({secret.kind})"
    return f"{words}, {of}, attacked by {_tried(found)}: {'; '.join(parts)}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ("---", *("---" for _ in heads[1:])), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    given = arguments("a real model").parse_args()
    rewrite(given.page, page(given.results))
    draw(given.results, given.page.parent / "fronts" / "real-speed.png")
