"""Audits: which agent read what through which encodings, computed from transcripts alone.

Importing this package imports no engine: `audit_traces`, which replays traces on a symbolic engine, is imported on
first use. Must not depend on the terminal.
"""

from typing import TYPE_CHECKING, Any

from agentcho.audit.audit import audit_entries, audit_run
from agentcho.audit.judgement import against, measured, read_report, read_suppressions, suppress
from agentcho.audit.report import AuditReport
from agentcho.audit.rules import RULES

if TYPE_CHECKING:
    from agentcho.audit.planned import audit_traces

__all__ = [
    "RULES",
    "AuditReport",
    "against",
    "audit_entries",
    "audit_run",
    "audit_traces",
    "measured",
    "read_report",
    "read_suppressions",
    "suppress",
]


def __getattr__(name: str) -> Any:
    if name != "audit_traces":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agentcho.audit.planned import audit_traces

    return audit_traces
