"""Workflows that were measured so far, so that a measurement that was stopped goes on.

Does not know: what is measured.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentcho.lab.partial import PartialData, PartialResult
from tools.bench.agentleak.result import Office


class OfficesPart(PartialData):
    """The file. `skipped`: why there is nothing of a workflow; `seconds`: how long it took to measure."""

    format: Literal["agentcho-agentleak-part/1"] = "agentcho-agentleak-part/1"
    seconds: float = 0.0
    skipped: dict[str, str] = Field(default_factory=dict)
    workflows: list[Office] = Field(default_factory=list)


class PartialOffices(PartialResult[OfficesPart]):
    """What was measured of each workflow."""

    data_type = OfficesPart
    by = "this benchmark"

    @property
    def offices(self) -> dict[str, Office]:
        """Those that were measured, by workflow."""
        return {one.workflow: one for one in self.data.workflows}

    @property
    def skipped(self) -> dict[str, str]:
        """Why there is nothing of the others."""
        return self.data.skipped

    @property
    def seconds(self) -> float:
        """How long all of it took."""
        return self.data.seconds

    def __contains__(self, workflow: str) -> bool:
        return workflow in self.offices or workflow in self.skipped

    def add(self, workflow: str, found: Office | str, seconds: float) -> None:
        """One workflow more, or why there is nothing of it; on disk when this returns."""
        if isinstance(found, str):
            self.data.skipped[workflow] = found
        else:
            self.data.workflows.append(found)
        self.data.seconds += seconds
        self.save()
