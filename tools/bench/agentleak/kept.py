"""Keeps the workflows measured so far, so that an interrupted measurement can continue."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentcho.lab.partial import PartialData, PartialResult
from tools.bench.agentleak.result import Office


class OfficesPart(PartialData):
    """The file. `skipped`: why a workflow has no result. `seconds`: how long measuring took."""

    format: Literal["agentcho-agentleak-part/1"] = "agentcho-agentleak-part/1"
    seconds: float = 0.0
    skipped: dict[str, str] = Field(default_factory=dict)
    workflows: list[Office] = Field(default_factory=list)


class PartialOffices(PartialResult[OfficesPart]):
    """The measurements of each workflow."""

    data_type = OfficesPart
    by = "this benchmark"

    @property
    def offices(self) -> dict[str, Office]:
        """The measured ones, by workflow."""
        return {one.workflow: one for one in self.data.workflows}

    @property
    def skipped(self) -> dict[str, str]:
        """Why the others have no result."""
        return self.data.skipped

    @property
    def seconds(self) -> float:
        """The total time of measuring."""
        return self.data.seconds

    def __contains__(self, workflow: str) -> bool:
        return workflow in self.offices or workflow in self.skipped

    def add(self, workflow: str, found: Office | str, seconds: float) -> None:
        """Add a workflow, or why it has no result. It is on disk when this returns."""
        if isinstance(found, str):
            self.data.skipped[workflow] = found
        else:
            self.data.workflows.append(found)
        self.data.seconds += seconds
        self.save()
