"""Sentences for the README and the pages on what reuse gains and what enforcing costs, from the newest results.

If several results compare the same things, the smallest gain counts.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentcho.audit.wording import listed
from agentcho.lab.bench.aims import family
from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE, GENERATE, exactly
from agentcho.lab.bench.plans import DOCUMENTS, LAYOUTS, READERS, TRACE, UNNAMED
from agentcho.lab.bench.result import Result, read_result
from agentcho.lab.paper.found import PaperFound, Timed
from agentcho.lab.stats import Spread
from tools.pages.behind import computes_as_today

TABLE, FIGURE = "5", "f4"
"""The paper's table of times, and its figure on trees of thoughts."""
NEWEST = "bench-six.json"
"""The six workflows at full length, in all arms."""
READ = "bench-readers.json"
"""Panels that read documents."""
READ_BY_SMOLLM2 = "bench-readers-smollm2.json"
PLANS = "plan.json"
"""What `agentcho plan` predicts of panels and trees on GPUs."""
EXACT = "bench-cost.json"
"""The deterministic profile compared with the fast one."""
CROWDED = "bench-agents.json"
"""Debates with increasing numbers of agents."""
PAPER = ("paper-times.json", "paper.json")
"""Files that may have the paper's tables of times. The first that has a table counts."""
OLDER = "was last measured on an older version of the engine: see [docs/speed.md](docs/speed.md)."
Chosen = Callable[[Path], bool]
"""Which result files count."""
LEADING = ("debate", "tree-of-thoughts")
"""The workflows that the README lists first."""


def every(file: Path) -> bool:
    """Count every result file."""
    return True


def timed(results: Path, table: str, chosen: Chosen = every) -> tuple[Timed, ...]:
    """The rows of one of the paper's tables of times. Empty if no result that counts has them."""
    files = [file for file in (results / name for name in PAPER) if file.is_file() and chosen(file)]
    found = (PaperFound.model_validate_json(file.read_bytes()) for file in files)
    return next((times.rows for each in found for times in each.times if times.name == table and times.rows), ())


def of_paper(rows: Sequence[Timed], workflow: str, arm: str, what: str) -> list[Spread]:
    """The baseline's time divided by that of an arm in a table of times, for first tokens ("ttft") or whole
    workflows."""
    own = [row for row in rows if (row.subject, row.arm) == (workflow, arm)]
    return [row.first_ratio if what == "ttft" else row.seconds_ratio for row in own]


def gains(flows: Sequence[Result], rows: Sequence[Timed], workflow: str, arm: str, what: str) -> Iterator[Spread]:
    """The baseline's time divided by an arm's, for each result that has both.

    Args:
        flows: Benchmarks of workflows.
        rows: The paper's table of times.
        workflow: Its name. All recorded workflows of one file are pooled.
        arm: A way of reading.
        what: "ttft" or "seconds".

    Yields:
        A spread for each result. If a workflow was timed with prompts that begin alike and with others, the smaller.
    """
    for result in flows:
        both = result.chosen(BASELINE, arm)
        there = [each for each in both if family(each) == workflow and result.values(each, arm, what)]
        kinds = [[each for each in there if each.endswith(UNNAMED) is unnamed] for unnamed in (False, True)]
        if found := [result.ratio(each, BASELINE, arm, what) for each in kinds if each]:
            yield least(found)
    yield from of_paper(rows, workflow, arm, what)


def least(ratios: Sequence[Spread]) -> Spread:
    """The spread with the smallest median."""
    return min(ratios, key=lambda each: each.middle)


def flows_of(results: Path, chosen: Chosen = every) -> list[Result]:
    """All benchmarks of workflows except sweeps."""
    found = [read_result(file) for file in sorted(results.glob("bench-*.json")) if chosen(file)]
    return [result for result in found if result.bench == "workflows" and result.sweep is None]


def ends(results: Path, chosen: Chosen = every) -> dict[str, tuple[Spread, Spread]]:
    """What `enforce` gains over the baseline in each workflow of the paper: at first tokens, and end to end."""
    flows, rows = flows_of(results, chosen), timed(results, TABLE, chosen)
    whole = [result for result in flows if result.stepwise]
    names = dict.fromkeys(family(subject) for result in whole for subject in result.subjects)
    found = dict[str, tuple[Spread, Spread]]()
    for name in (each for each in names if not each.startswith(TRACE)):
        first = [*gains(flows, rows, name, ENFORCE, "ttft")]
        last = [*gains(whole, rows, name, ENFORCE, "seconds")]
        if first and last:
            found[name] = least(first), least(last)
    return found


def slower(results: Path, chosen: Chosen = every) -> str:
    """In how many of the paper's workflows the baseline finishes sooner than `enforce` by medians, and in how many of
    these in every repeat. Empty if in none."""
    found = ends(results, chosen)
    count = sum(whole.middle < 1 for _, whole in found.values())
    if not count:
        return ""
    beyond = sum(whole.high < 1 for _, whole in found.values())
    where = f"all {count} workflows of the paper" if count == len(found) else f"{count} of {len(found)} workflows"
    return f"{where} (beyond the spread of the repeats in {beyond or 'none'})"


def first_screen(results: Path, chosen: Chosen = computes_as_today) -> list[str]:
    """What the README says first about time, from the chosen results: a sentence, and a row per workflow."""
    found, behind = ends(results, chosen), slower(results, chosen)
    if not found:
        return wrapped(f"Speed {OLDER}") if ends(results) else []
    sooner = sum(round(first.middle, 2) > 1 for first, _ in found.values())
    surely = sum(first.low > 1 for first, _ in found.values())
    beyond = f" (beyond the spread of the repeats in {surely or 'none'})" if surely < sooner else ""
    where = "" if sooner == surely == len(found) else f" in {sooner} of {len(found)} workflows{beyond}"
    told = (
        f"First tokens come sooner{where} than if every prompt is encoded as a whole, with a prefix cache (`--mode "
        "baseline`, whose encodings leak nothing either), and whole workflows end much sooner where many agents read "
        "the same long text behind system prompts of their own; where every prompt can begin with that text, a prefix "
        "cache shares it too."
    )
    if behind:
        told += (
            " **Short workflows gain little or nothing: by medians the baseline is faster than `enforce`, the default, "
            f"in {behind}.**"
        )
    told += (
        " The table divides the time of the baseline, and its memory for keys and values (kept until the end), by "
        "those of `enforce`: above 1, `enforce` is better. Measured with "
        f"{_measured_on(flows_of(results, chosen))} on two cores of a CPU. In both modes, "
        "agents were forced to say the same words; when they generate their own, reuse can change these "
        "([where](docs/speed.md)). Each of "
        "the first six rows is the smallest gain in any measurement of this version of the engine ([some older "
        f"measurements are lower](docs/speed.md)){_on_larger(results, chosen)}."
    )
    kept = memory(results, chosen)
    named = sorted(found, key=lambda name: LEADING.index(name) if name in LEADING else len(LEADING))
    rows = [
        f"| {name} | {found[name][0].shown()} | {found[name][1].shown()} | {kept.get(name, '')} |" for name in named
    ]
    if panels := [*_readers(results, chosen)]:
        told += (
            " In the last three rows, measured on the bundled model, a prompt begins with the reader's own system "
            "prompt (*system first*), with the document (*document first*), or with four documents in an order of the "
            "reader's own (*reordered*)."
        )
        rows += panels
    told += _beside_stock(results, chosen)
    told += (
        " llama.cpp and vLLM decode faster than agentcho's own engine on a CPU "
        "([figures](docs/real-model.md#speed-on-words-that-it-sampled))."
    )
    return [*wrapped(told), "", "| | first token | end to end | memory |", "| --- | ---: | ---: | ---: |", *rows]


def _measured_on(flows: Sequence[Result]) -> str:
    """The models of benchmarks, in words, and whether some had shortened texts."""
    both = [each for each in flows if each.chosen(BASELINE, ENFORCE)]
    models = dict.fromkeys(each.model.removeprefix("shape:") for each in both)
    named = listed(["the bundled model" if each == "understudy" else f"the shape of {each}" for each in models])
    return f"{named} (in part with shortened texts)" if any(each.scale < 1 for each in both) else named


def memory(results: Path, chosen: Chosen = every) -> dict[str, str]:
    """The baseline's keys and values divided by those of `enforce`, by workflow of the paper; the smaller if prompts
    that begin alike were measured too. Nothing is dropped while a workflow goes on, so what was encoded is kept."""
    found = dict[str, list[Spread]]()
    for result in (each for each in flows_of(results, chosen) if each.stepwise):
        for subject in result.chosen(BASELINE, ENFORCE):
            if result.values(subject, BASELINE, "encoded") and not subject.startswith(TRACE):
                kept = result.ratio([subject], BASELINE, ENFORCE, "encoded")
                found.setdefault(family(subject), []).append(kept)
    return {name: least(ratios).shown() for name, ratios in found.items()}


def _readers(results: Path, chosen: Chosen) -> Iterator[str]:
    """Rows of the README for the largest panel of readers, by how prompts begin."""
    if not _counts(results / READ, chosen):
        return
    read, tokens, count = read_result(results / READ), max(DOCUMENTS), max(READERS)
    for ends in LAYOUTS.values():
        subject = panel_name(tokens, count, ends)
        gained = [
            read.ratio([subject], BASELINE, ENFORCE, what).shown() if read.values(subject, BASELINE, what) else ""
            for what in ("ttft", "seconds", "encoded")
        ]
        yield f"| {count} readers of {tokens:,} tokens, {ends} | {' | '.join(gained)} |"


def _on_larger(results: Path, chosen: Chosen) -> str:
    """What the largest panels gain end to end on the small real model, and what is predicted of a large one. Empty if
    that was not measured."""
    if not (_counts(results / READ_BY_SMOLLM2, chosen) and (results / PLANS).is_file()):
        return ""
    read, plan = read_result(results / READ_BY_SMOLLM2), json.loads((results / PLANS).read_bytes())["readers"]
    panels = [panel_name(max(DOCUMENTS), max(READERS), ends) for ends in LAYOUTS.values()]
    small = ", ".join(f"{read.ratio([each], BASELINE, ENFORCE, 'seconds').middle:.2f}" for each in panels)
    large = ", ".join(f"{predicted_gain(plan, each, 'enforce', 'seconds'):.2f}" for each in panels)
    return (
        "; in the settings of the last three, SmolLM2-135M gains "
        f"{small} end to end, and an 8B model on an H100 is predicted to gain {large} ([more](docs/where-it-wins.md))"
    )


def predicted_gain(plan: Mapping[str, Any], subject: str, mode: str, what: str) -> float:
    """The baseline's time divided by a mode's in a plan, for first tokens ("ttft") or whole workflows."""
    by = {(each["subject"], each["mode"]): each for each in plan["predicted"]}
    return float(by[subject, "baseline"][what] / by[subject, mode][what])


def _beside_stock(results: Path, chosen: Chosen) -> str:
    """How `enforce` compares with stock `generate` in the largest panels. Empty if that was not measured."""
    if not _counts(results / READ, chosen):
        return ""
    read = read_result(results / READ)
    panels = [panel_name(max(DOCUMENTS), max(READERS), ends) for ends in LAYOUTS.values()]
    if not all(read.has(each, GENERATE, ENFORCE) for each in panels):
        return ""
    first, whole = (
        ", ".join(f"{read.ratio([each], GENERATE, ENFORCE, what).middle:.2f}" for each in panels)
        for what in ("ttft", "seconds")
    )
    return (
        f" Stock `generate` of transformers, with caches reused by hand, takes {first} times as long as `enforce` to "
        f"first tokens in the last three rows, and {whole} times to the end."
    )


def panel_name(tokens: int, count: int, ends: str) -> str:
    """The name in results of the panel with `count` readers of documents of `tokens` tokens, in one of `LAYOUTS`."""
    return f"{tokens} tokens, {count} readers, {ends}"


def wrapped(text: str) -> list[str]:
    """Wrap a text into lines of the README."""
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


def sentence(results: Path, chosen: Chosen = computes_as_today) -> str:
    """What enforcing costs compared with `audit`, and `--deterministic` compared with the fast profile, in the chosen
    results. Empty if nothing was measured."""
    there = [name for name in (NEWEST, CROWDED, EXACT) if (results / name).is_file()]
    told = [*_enforcing(results, chosen), *_exactly(results, chosen)]
    return " ".join(told) or (f"What enforcing costs {OLDER}" if there else "")


def _counts(file: Path, chosen: Chosen) -> bool:
    return file.is_file() and chosen(file)


def _enforcing(results: Path, chosen: Chosen) -> Iterator[str]:
    if not _counts(results / NEWEST, chosen):
        return
    six, rows = read_result(results / NEWEST), timed(results, TABLE, chosen)
    subjects = [each for each in six.chosen(AUDIT, ENFORCE) if not each.startswith(TRACE)]
    first, whole = (
        [six.ratio([each], ENFORCE, AUDIT, what).middle for each in subjects] + over_audit(rows, what)
        for what in ("ttft", "seconds")
    )
    trees, more = over_audit(timed(results, FIGURE, chosen), "seconds"), ""
    if trees and max(trees) > max(whole):
        more = f", up to {max(trees):.2f} in trees of many branches ([docs/paper.md](docs/paper.md))"
    yield (
        f"On a CPU with {six.model.removeprefix('shape:')} in {six.numbers}, the paper's workflows at full length: "
        f"under `enforce` first tokens took {_range(first)} times as long as under `audit`, and whole workflows "
        f"{_range(whole)} times{more}."
    )
    if _counts(results / CROWDED, chosen):
        crowded = read_result(results / CROWDED)
        most = max(crowded.ratio([each], ENFORCE, AUDIT, "ttft").middle for each in crowded.chosen(AUDIT, ENFORCE))
        yield f"First tokens took up to {most:.2f} times as long in parallel debates of 16 agents with short texts."


def over_audit(rows: Sequence[Timed], what: str) -> list[float]:
    """The time under `enforce` divided by that under `audit`, for each subject of a table of times, from its
    medians."""
    seconds = {(row.subject, row.arm): row.first.middle if what == "ttft" else row.seconds.middle for row in rows}
    subjects = dict.fromkeys(row.subject for row in rows)
    return [seconds[each, ENFORCE] / seconds[each, AUDIT] for each in subjects if (each, ENFORCE) in seconds]


def _exactly(results: Path, chosen: Chosen) -> Iterator[str]:
    if _counts(results / EXACT, chosen):
        cost = read_result(results / EXACT)
        middles = [cost.ratio([each], exactly(ENFORCE), ENFORCE, "seconds").middle for each in cost.subjects]
        yield (
            f"`--deterministic` took {_range(middles)} times as long as the fast profile in {len(middles)} workflows "
            "under `enforce` ([docs/speed.md](docs/speed.md))."
        )


def _range(middles: Sequence[float]) -> str:
    low, high = f"{min(middles):.2f}", f"{max(middles):.2f}"
    return low if low == high else f"{low} to {high}"
