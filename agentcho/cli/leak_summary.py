"""The last line of a run: what leaked in it, and the command that shows how.

Its wording is that of the audit, and nothing is softened here.
"""

from __future__ import annotations

from pathlib import Path

from agentcho.config import again
from agentcho.display.safe import inline
from agentcho.errors import AgentchoError
from agentcho.records.record import SavedRun


def leak_summary(record: Path) -> str:
    """Return the result of an audit of the record as one line."""
    from agentcho.audit import audit_run
    from agentcho.audit.wording import headline

    try:
        said = str(headline(audit_run(SavedRun(record))))
    except AgentchoError as error:
        said = f"NOT JUDGED: {' '.join(str(error).split())}"
    return inline(f"{said} · {again(('agentcho', 'audit', str(record)))}")
