"""The shape of a workflow whose texts are known: what a message waits for.

Does not know: engines, encodings, time.
"""

from __future__ import annotations

from agentcho.records.trace import TraceMessage, Workflow


class Graph:
    """Decodes, and what each waits for."""

    def __init__(self, workflow: Workflow) -> None:
        self.messages: dict[str, TraceMessage] = {m.id: m for m in workflow.messages}
        self.decodes = [m for m in workflow.messages if m.kind == "decode"]
        self._needs: dict[str, frozenset[str]] = {}
        for message in workflow.messages:
            near = frozenset[str]()
            for parent in message.parents:
                near |= {parent} if self.messages[parent].kind == "decode" else self._needs[parent]
            self._needs[message.id] = near

    @property
    def known(self) -> list[str]:
        """Messages of known text over nothing, in order."""
        return [id for id, message in self.messages.items() if message.kind == "prefill" and not message.parents]

    def needs(self, decode: str) -> frozenset[str]:
        """The decodes that must be finished before this one can be submitted: nearest ones only."""
        return self._needs[decode]
