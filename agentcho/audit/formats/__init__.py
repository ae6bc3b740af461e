"""The file formats of a report. Each format has one writer, which uses only the report and the table of rules.

Text for a terminal is written by `display/audit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agentcho.audit.measurement import Plot
from agentcho.audit.report import AuditReport, FailOn


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """The options of all writers; each uses those that concern it.

    Args:
        fail_on: The level from which findings are failures in JUnit and in SARIF's exit code.
        plot: Draws the measured effects of the HTML page. None: no plots.
        ascii: Whether JSON is ASCII only, as some terminals require.
    """

    fail_on: FailOn = "error"
    plot: Plot | None = None
    ascii: bool = False


Writer = Callable[[AuditReport, WriteOptions], str]


def _json(report: AuditReport, options: WriteOptions) -> str:
    from agentcho.audit.formats.json import json_text

    return json_text(report, ascii=options.ascii)


def _sarif(report: AuditReport, options: WriteOptions) -> str:
    from agentcho.audit.formats.sarif import sarif

    return sarif(report, options.fail_on)


def _junit(report: AuditReport, options: WriteOptions) -> str:
    from agentcho.audit.formats.junit import junit

    return junit(report, options.fail_on)


def _html(report: AuditReport, options: WriteOptions) -> str:
    from agentcho.audit.formats.html import html

    return html(report, options.plot)


def _csv(report: AuditReport, options: WriteOptions) -> str:
    from agentcho.audit.formats.csv import sheet

    return sheet(report)


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {"json": _json, "sarif": _sarif, "junit": _junit, "html": _html, "csv": _csv}
)
"""Writers by name of the format, which is also the command-line option. A writer is imported on first use."""
