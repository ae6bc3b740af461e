"""Adds spans to commands that play games, if requested."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentcho.config import RunConfig
from agentcho.errors import AgentchoError
from agentcho.events import Sink
from agentcho.extras import require
from agentcho.records.record import SavedRun

if TYPE_CHECKING:
    from agentcho.integrations.opentelemetry.spans import Telemetry

Spans = Literal["spans", "content"]
NOWHERE = (
    "note: --telemetry finds no OpenTelemetry SDK for its spans; install one and prefix the "
    "command with `opentelemetry-instrument`"
)


class Traced:
    """The spans of one run, or none if `telemetry` is None."""

    def __init__(self, telemetry: Telemetry | None) -> None:
        self._telemetry = telemetry

    def sink(self, sink: Sink | None) -> Sink | None:
        """A sink that also reports the run's events as spans."""
        return sink if self._telemetry is None else self._telemetry.heard(sink)

    def audited(self, record: Path | None) -> None:
        """Count the findings of an audit of the record. A record that cannot be audited is not counted."""
        if self._telemetry is None or record is None:
            return
        from agentcho.audit import audit_run

        try:
            self._telemetry.audited(audit_run(SavedRun(record)))
        except AgentchoError:
            return


@contextmanager
def traced(asked: Spans | None, scenario: str, config: RunConfig, told: bool = False) -> Iterator[Traced]:
    """A context in which a run has spans, if requested. `told`: print a line on standard error if the spans go nowhere.
    `ExtraMissing`: OpenTelemetry's API is not installed."""
    if asked is None:
        yield Traced(None)
        return
    require("for spans and metrics of a run", "otel")
    from agentcho.integrations.opentelemetry.spans import Telemetry, kept

    if told and not kept():
        print(NOWHERE, file=sys.stderr)
    with Telemetry(scenario, config, asked == "content") as telemetry:
        yield Traced(telemetry)
