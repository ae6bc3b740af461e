"""Games of many agents who all leak, for testing the report of a large audit.

The verdict is a real one, computed from traces. Independent of how a report is rendered.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from agentcho.audit import AuditReport, audit_traces
from agentcho.records.trace import TraceMessage, Workflow, write_traces

from .talks import message


def talk(agents: int, rounds: int = 2) -> Workflow:
    """Each agent has private rules and makes a private plan; then all speak publicly, round by round. The second agent
    also reads the first one's plan."""
    names = tuple(f"agent{number}" for number in range(agents))
    said: list[TraceMessage] = []
    for name in names:
        said += [
            message(f"{name}.rules", name, f"{name}, tell nobody of your jewel.", role="system"),
            message(f"{name}.plan", name, "I will hide it.", [f"{name}.rules"], header=""),
        ]
    open_: list[str] = []
    for turn in range(rounds):
        for name in names:
            own = [f"{name}.rules", f"{name}.plan", *([f"{names[0]}.plan"] if name == names[1] else [])]
            said.append(message(f"{name}.{turn}", name, "Nothing to see.", [*own, *open_], "everyone", f"{name}: "))
            open_.append(f"{name}.{turn}")
    return Workflow(format="agentcho-trace/1", workflow="crowd", id="crowd-0", agents=names, messages=tuple(said))


@cache
def audited(agents: int, rounds: int = 2) -> AuditReport:
    """The audit of such a game under leakage=audit."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "crowd.jsonl"
        write_traces(file, [talk(agents, rounds)])
        return audit_traces(file, leakage="audit", key=b"k" * 32)
