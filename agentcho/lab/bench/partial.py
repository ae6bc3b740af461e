"""Keeps the partial results of a workflow benchmark, so that a killed one can be resumed.

A repeat is kept once every arm has run in it, so that ratios are taken within one process.
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
"""The figures of one repeat, by arm and by measured quantity."""


class Subject(BaseModel):
    """The results of one subject: complete repeats, why arms are unavailable, and the final figures."""

    model_config = ConfigDict(extra="forbid")
    repeats: list[Repeat] = []
    unavailable: dict[str, str] = {}
    figures: list[Figures] | None = None


class WorkflowsPart(PartialData):
    """The content of the file. `costs`: the measured costs of forwards, which decide when to speculate."""

    format: Literal["agentcho-bench-part/1"] = "agentcho-bench-part/1"
    costs: ForwardCosts | None = None
    subjects: dict[str, Subject] = Field(default_factory=dict)


class PartialWorkflows(PartialResult[WorkflowsPart]):
    """The partial results of each subject."""

    data_type = WorkflowsPart
    by = "a benchmark"

    def costs(self, engine: Any) -> None:
        """Let this engine speculate by the costs of forwards measured first, so that a resumed run decides alike."""
        self.data.costs = engine.speculate(self.data.costs)

    def subject(self, name: str) -> Subject:
        """The partial results of a subject, to be added to."""
        return self.data.subjects.setdefault(name, Subject())


def digest(subjects: Iterable[Workload]) -> str:
    """A digest of the names and texts of these workloads."""
    found = sha256()
    for each in subjects:
        found.update(json.dumps([each.name, each.workflow.to_json(), each.warm.to_json()], sort_keys=True).encode())
    return f"sha256 {found.hexdigest()[:16]}"


def figures(subject: str, arms: Collection[str], known: Subject) -> list[Figures]:
    """The figures of each arm over all repeats; none for an arm that was unavailable in any of them."""
    return [Figures.of(subject, arm, list(_taken(arm, known)), known.unavailable.get(arm)) for arm in arms]


def _taken(arm: str, known: Subject) -> Iterator[Mapping[str, float]]:
    return (repeat[arm] for repeat in known.repeats if arm not in known.unavailable)
