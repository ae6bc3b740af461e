"""The page on AgentDojo, from a result file: `python -m tools.pages.agentdojo docs/results docs/agentdojo.md`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.dojo.labels import labels
from tools.pages.render import render, write


def page(results: Path) -> str:
    """The text of the page, from the file `agentdojo.json` in `results`."""
    return text(json.loads((results / "agentdojo.json").read_bytes()))


def text(found: Mapping[str, Any]) -> str:
    """The text of the page from the content of that file."""
    first, *others = found["benchmarks"]
    pairs = [arm for arm in first["arms"] if arm.get("typed")]
    arms = {(arm["leakage"], arm["guarded"]): arm for arm in first["arms"] if arm not in pairs}
    told: dict[str, Any] = {
        "strict": arms["enforce", True],
        "calls": arms["enforce", False],
        "audited": arms["audit", False],
    }
    told |= {"pairs": pairs, "median": median}
    return render("agentdojo", found=found, first=first, others=others, labels=labels(), total=total, **told)


def total(counts: Mapping[str, int]) -> int:
    """The sum over suites."""
    return sum(counts.values())


if __name__ == "__main__":
    write(page, "AgentDojo")
