"""What a benchmark of workflows has measured so far, so that one that was killed goes on.

A repeat is kept when all arms have had their turn in it, so that ratios are made within one process. Does not know:
what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.result import Figures
from agentcho.lab.partial import PartialData, PartialResult
from agentcho.protocol.forward_costs import ForwardCosts

Repeat = dict[str, dict[str, float]]
"""What one repeat took, by arm and by what was measured."""


class Subject(BaseModel):
    """What was measured of one subject: whole repeats, why arms are not there, and how near words are."""

    model_config = ConfigDict(extra="forbid")
    repeats: list[Repeat] = []
    unavailable: dict[str, str] = {}
    figures: list[Figures] | None = None


class WorkflowsPart(PartialData):
    """The file. `costs`: what forwards take, by which guesses are weighed."""

    format: Literal["agentcho-bench-part/1"] = "agentcho-bench-part/1"
    costs: ForwardCosts | None = None
    subjects: dict[str, Subject] = Field(default_factory=dict)


class PartialWorkflows(PartialResult[WorkflowsPart]):
    """What was measured of each subject."""

    data_type = WorkflowsPart
    by = "a benchmark"

    def costs(self, engine: Any) -> None:
        """Weigh guesses on this engine by what forwards took when the first of it was measured."""
        self.data.costs = engine.speculate(self.data.costs)

    def subject(self, name: str) -> Subject:
        """What is there of a subject, to be added to."""
        return self.data.subjects.setdefault(name, Subject())


def digest(subjects: Iterable[Workload]) -> str:
    """Of the names and all words of these workflows."""
    found = sha256()
    for each in subjects:
        found.update(json.dumps([each.name, each.workflow.to_json(), each.warm.to_json()], sort_keys=True).encode())
    return f"sha256 {found.hexdigest()[:16]}"


def figures(subject: str, arms: Collection[str], known: Subject) -> list[Figures]:
    """Of each arm what all repeats took; none of one that was not there in all of them."""
    return [Figures.of(subject, arm, list(_taken(arm, known)), known.unavailable.get(arm)) for arm in arms]


def _taken(arm: str, known: Subject) -> Iterator[Mapping[str, float]]:
    return (repeat[arm] for repeat in known.repeats if arm not in known.unavailable)
