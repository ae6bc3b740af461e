"""Writes all predictions of the documentation into one file: `python -m tools.bench.plan docs/results OUT.json`.

Predictions for GPUs, and for this machine's CPU compared with what was measured on it.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from agentcho.lab.bench import plans
from agentcho.lab.bench.recorded import KINDS, WORDS_A_TOKEN
from agentcho.lab.bench.result import Figures, Result
from agentcho.lab.plan.hardware import hardware
from agentcho.lab.plan.planning import MODES, plan, predict
from agentcho.lab.plan.shape import shape
from agentcho.lab.plan.subjects import PANELS, Subject, subjects
from agentcho.records.environment import machine_info, source_digests, versions
from tools.pages.render import arguments

JUDGED = {
    "bench-six": "cpu-float32",
    "bench-whole": "cpu",
    "bench-first": "cpu",
    "bench-agents": "cpu",
    "bench-branches": "cpu",
}
"""Results that are predicted, and the hardware for the prediction."""
CALIBRATED = {("bench-six", "multi-qa"), ("bench-six", "branch-solve-merge"), ("bench-whole", "multi-qa")}
"""Rows from which a number of the hardware description was taken."""
SHAPE = "llama-3.1-8b"
STRIDE = 16


def validated(results: Path, file: str) -> list[dict[str, Any]]:
    """Rows of one result: predictions next to measurements, as baseline divided by mode."""
    result = Result.model_validate_json((results / f"{file}.json").read_bytes())
    machine, model, scale = hardware(JUDGED[file]), shape(result.model), result.scale / WORDS_A_TOKEN
    match result.sweep:
        case "branches":
            loads = plans.branches(result.seed, scale)
        case "agents":
            loads = plans.agents(result.seed, scale)
        case _:
            loads = plans.paper(list(KINDS), result.seed, scale)
    measured = {(each.subject, each.arm): each for each in result.figures if each.values}
    rows: list[dict[str, Any]] = []
    for load in loads:
        if (load.name, MODES["baseline"]) not in measured:
            continue
        stride = 1 if result.stepwise else STRIDE
        found = {
            mode: predict(
                subject=load.name, workflow=load.workflow, mode=mode, machine=machine, model=model, stride=stride
            )
            for mode in MODES
        }
        for mode in ("audit", "enforce"):
            base, arm = measured[load.name, MODES["baseline"]], measured[load.name, MODES[mode]]
            row: dict[str, Any] = {
                "file": file,
                "subject": load.name,
                "mode": mode,
                "calibrated": (file, load.name) in CALIBRATED,
            }
            for what in ("ttft", "seconds") if result.stepwise else ("ttft",):
                predicted = getattr(found["baseline"], what) / getattr(found[mode], what)
                row[what] = {"predicted": predicted, **_measured(base, arm, what)}
            row["milliseconds"] = [1e3 * found[mode].ttft, 1e3 * median(arm.values["ttft"])]
            rows.append(row)
    return rows


def _measured(base: Figures, arm: Figures, what: str) -> dict[str, Any]:
    ours, theirs = arm.values[what], base.values[what]
    disjoint = max(ours) < min(theirs) or max(theirs) < min(ours)
    return {"measured": median(theirs) / median(ours), "disjoint": disjoint}


def main() -> None:
    """Compute all predictions, and write them."""
    results = arguments("plans").parse_args()
    folder: Path = results.results
    model = shape(SHAPE)
    six = [each for name in KINDS for each in subjects(name)]
    wide = subjects("tree-of-thoughts", counts=plans.BRANCHES)
    trees = [Subject(each.name, each.workflow) for each in plans.branches(1, 1 / WORDS_A_TOKEN)]
    society = subjects("parallel-debate", games=32)
    found: dict[str, Any] = {
        "format": "agentcho-plans/1",
        "machine": {**machine_info(), **versions()},
        "h100": plan(six, list(MODES), machine=hardware("h100"), model=model).model_dump(),
        "a100": plan(six, list(MODES), machine=hardware("a100"), model=model).model_dump(),
        "cpu": plan(six, list(MODES), machine=hardware("cpu"), model=shape("qwen3-0.6b")).model_dump(),
        "branches": plan(wide, list(MODES), machine=hardware("a100"), model=model).model_dump(),
        "trees": plan(trees, list(MODES), machine=hardware("a100"), model=model).model_dump(),
        "readers": plan(subjects(PANELS), list(MODES), machine=hardware("h100"), model=model).model_dump(),
        "society": plan(society, list(MODES), machine=hardware("h100"), model=model).model_dump(),
        "rows": [row for file in JUDGED for row in validated(folder, file)],
    }
    found["machine"] |= source_digests()
    results.page.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
