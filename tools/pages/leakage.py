"""The page on leaks, from result files: `python -m tools.pages.leakage docs/results docs/leakage.md`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from agentcho.audit.measurement import Effect, Probe
from agentcho.audit.report import AuditReport
from agentcho.audit.rules import RULES
from agentcho.lab.leaks.result import read_leaks
from agentcho.lab.stats import ratios
from agentcho.provenance.code_reads import MEANING, SIGHTS, CodeRead
from tools.pages.costs import slower
from tools.pages.render import render, write

COMMAND = "agentcho audit prisoners-dilemma --measure --games 60 --seed 1"
AUDITS = (
    ("leakage-audit.json", "The prisoner's dilemma under audit", f"{COMMAND} --leakage audit"),
    ("leakage-enforce.json", "The same under enforce", f"{COMMAND} --leakage enforce --deterministic"),
)
TUNED = tuple(
    (f"leakage-training-{leakage}.json", f"leakage-training-{leakage}-tuned.json") for leakage in ("audit", "enforce")
)
"""Audits of a model, and of the same model trained to say what the baseline says."""
STEPS = {
    "made fit": "If the cone of each existing encoding contains only messages that everyone for whom it was made may "
    "read, agents who join later included, then so does the cone of the next encoding.",
    "served fit": "It follows that an agent may read everything in the cone of the encoding through which it is served "
    "a message.",
    "served alike": "If two workflows look the same to a reader, and each encoding that it may be served is the same "
    "in both, then so is the next one: it is made from the same words, for the same class of readers, over the same "
    "encodings, in the same order, at the same positions.",
    "once alike": "Whether one encoding of a reader's own message serves both the reader and others is the same in two "
    "workflows that look the same to that reader, if this holds for all earlier messages.",
    "made once": "Where one encoding serves both, separate ones for the author and for the audience would have been "
    "made over the same encodings, at the same positions.",
    "repaired fit": "What a caller repairs for itself is made only from messages that it may read.",
    "repaired alike": "Whether the first message of a prompt is repaired is the same in two workflows that look the "
    "same to its reader.",
    "guarded": "A guard passes a call exactly if everyone for whom the call is made may read everything in its cone.",
    "denied": "Under `deny`, a call that is not refused reads only encodings whose whole cone the caller may read.",
    "salted": "Whoever sends a request with a cache salt may read all messages that others send with this salt.",
}
"""The steps of the proof (`tests/leaks/proof/theorems.py`) in words, by name."""
ARMS = ("reuse", "enforce", "plain")
GIVEN = ("leaks.json", "leaks-natural.json", "leaks-earlier.json")
"""What a public sentence gives away: alone, and after others from which some ways of reading learn."""
BENCHES = ("leakage-bench.json", "leakage-bench-words.json")


def page(results: Path) -> str:
    """The text of the page, from the files in `results`. Parts without a result file are left out."""
    benches = [found for file in BENCHES if (found := _read(results / file))]
    mutants = _read(results / "mutants.json")
    return render(
        "leakage",
        audits=list(_audits(results)),
        tuned=list(_tuned(results)),
        rules=RULES.values(),
        sights=_merged(SIGHTS),
        meanings=MEANING,
        named=_named,
        benches=benches,
        attacked=[read_leaks(results / file) for file in GIVEN if (results / file).is_file()],
        slower=slower(results),
        steps=STEPS,
        small=_small,
        mutants=mutants and mutants["mutants"],
        broken_at=mutants and mutants["commit"],
        interference=_read(results / "interference.json"),
        proof=_read(results / "proof.json"),
        neighbours=_read(results / "neighbours.json"),
        number=_number,
        percent=_percent,
        best=_best,
        ms=_milliseconds,
        ratio=_ratio,
        median=median,
    )


def _audits(results: Path) -> Iterator[tuple[str, str, AuditReport]]:
    for file, title, command in AUDITS:
        if (results / file).is_file():
            yield title, command, AuditReport.model_validate_json((results / file).read_bytes())


def _merged(sights: Iterable[CodeRead]) -> list[CodeRead]:
    """The table of reads, with errors of one kind in one row."""
    found: dict[tuple[str, str], list[CodeRead]] = {}
    for sight in sights:
        found.setdefault(("error" if sight.names == ("raised",) else sight.of, sight.why), []).append(sight)
    return [replace(same[0], of=", ".join(sight.of for sight in same)) for same in found.values()]


def _named(sight: CodeRead) -> str:
    """What is read, as a table cell."""
    if sight.of == "Cancelled":
        return "that a verb is cancelled"
    if sight.names == ("raised",):
        return f"an error that a verb raises: `{sight.of.replace(', ', '`, `')}`"
    return ", ".join(f"`{sight.of}.{name}`" for name in sight.names)


class Compared(NamedTuple):
    """One effect or probe before and after training."""

    leakage: str
    what: str
    before: str
    after: str


def _tuned(results: Path) -> Iterator[Compared]:
    """The findings of audits of the trained model next to those of the untrained one: same-length swaps, and the best
    layer of each probe."""
    for files in TUNED:
        if not all((results / file).is_file() for file in files):
            continue
        before, after = (AuditReport.model_validate_json((results / file).read_bytes()) for file in files)
        leakage = "enforce" if before.subject.leakage == "enforce" else "audit"
        yield Compared(leakage, "conclusion", *map(_concluded, (before, after)))
        assert before.measurement is not None
        assert after.measurement is not None
        later = {(e.reader, e.owner, e.swap, e.arm): e for e in after.measurement.effects}
        for e in before.measurement.effects:
            if e.carried and e.swap == "same-length" and e.arm in ARMS and (e.reader, e.owner, e.swap, e.arm) in later:
                pair = (e, later[e.reader, e.owner, e.swap, e.arm])
                yield Compared(leakage, f"{e.reader}, secret of {e.owner}, {e.arm}", *map(_effect, pair))
        probes = {(p.owner, p.source): p for p in _best(after.measurement.probes)}
        for p in _best(before.measurement.probes):
            if (p.owner, p.source) in probes:
                pair_ = (p, probes[p.owner, p.source])
                yield Compared(leakage, f"probe: secret of {p.owner}, {p.source}", *map(_probe, pair_))


def _concluded(report: AuditReport) -> str:
    """The conclusion, and the number of leaks. If inconclusive, also the number of controls that did not fire."""
    errors = sum(finding.level == "error" for finding in report.findings)
    silent = sum(not control.fired for control in report.controls)
    why = f", {silent} of {len(report.controls)} controls did not fire" if report.conclusion == "inconclusive" else ""
    return f"{report.conclusion}: {errors} leaks{why}"


def _effect(effect: Effect) -> str:
    """Mean total variation with its interval, and the maximum."""
    return f"{_number(effect.tv_mean)} ({effect.tv_interval.shown(_number)}), at most {_number(effect.tv_max)}"


def _probe(probe: Probe) -> str:
    """Accuracy with its interval."""
    return f"{_percent(probe.accuracy)} ({probe.interval.shown(_percent)})"


def _read(file: Path) -> Any:
    return json.loads(file.read_bytes()) if file.is_file() else None


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"


def _small(value: float) -> str:
    """A p-value."""
    return "< 1e-9" if value < 1e-9 else f"{value:.2g}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%"


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{1000 * median(seconds):.0f} ms"


def _ratio(these: Sequence[float], those: Sequence[float]) -> str:
    """Median, minimum and maximum of the ratios within a repeat."""
    return ratios(these, those).shown()


def _best(probes: Sequence[Probe]) -> list[Probe]:
    """The most accurate layer of each owner and source: the worst case."""
    kinds = dict.fromkeys((p.owner, p.source) for p in probes)
    return [max((p for p in probes if (p.owner, p.source) == kind), key=lambda p: p.accuracy) for kind in kinds]


if __name__ == "__main__":
    write(page, "leaks")
