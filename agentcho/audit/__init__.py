"""Audits: who read what through which encodings, from transcripts alone.

The verdict imports no engine; `audit_traces`, which plays traces on a symbolic one, is imported when it is asked
for. Does not know: the terminal.
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
