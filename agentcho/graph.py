"""The shape of a workflow whose texts are known: what a message waits for, and which encodings calls share.

Does not know: engines, encodings, time.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentcho.config import Way
from agentcho.resolver import Key, Resolver, Utterance
from agentcho.trace import TraceMessage, Workflow


class Graph:
    """Decodes, what each waits for, and the encodings that more than one of them would make at the same time."""

    def __init__(self, workflow: Workflow, way: Way, utterances: Mapping[str, Utterance]) -> None:
        self.messages: dict[str, TraceMessage] = {m.id: m for m in workflow.messages}
        self.decodes = [m for m in workflow.messages if m.kind == "decode"]
        self._plan = _planned(way, utterances)
        self._needs: dict[str, frozenset[str]] = {}
        self._ancestors: dict[str, frozenset[str]] = {}
        for message in workflow.messages:
            self._enter(message)
        self.shared = self._shared()

    def needs(self, decode: str) -> frozenset[str]:
        """The decodes that must be finished before this one can be submitted: nearest ones only."""
        return self._needs[decode]

    def _enter(self, message: TraceMessage) -> None:
        near = frozenset[str]()
        for parent in message.parents:
            near |= {parent} if self.messages[parent].kind == "decode" else self._needs[parent]
        self._needs[message.id] = near
        self._ancestors[message.id] = near.union(*(self._ancestors[id] for id in near))

    def _shared(self) -> frozenset[Key]:
        """Encodings with two first readers: decodes that need one, with no ancestor that needs it too."""
        readers: dict[Key, set[str]] = {}
        for decode in self.decodes:
            for key in self._lacks(decode):
                readers.setdefault(key, set()).add(decode.id)
        return frozenset(key for key, ids in readers.items() if self._first(ids) > 1)

    def _first(self, ids: set[str]) -> int:
        return sum(not self._ancestors[id] & ids for id in ids)

    def _lacks(self, decode: TraceMessage) -> set[Key]:
        """What it would have to encode if it came first."""
        return {lack.key for lack in self._plan.speak(self._plan.utterances[decode.id]).missing}


def _planned(way: Way, utterances: Mapping[str, Utterance]) -> Resolver:
    """A resolver that takes every decode for said, with what is made while it is said, and nothing else."""
    plan = Resolver(way)
    plan.utterances.update(utterances)
    for number, (id, utterance) in enumerate(utterances.items()):
        if utterance.metadata.kind == "decode" and way.mode != "baseline":
            plan.enter(id, "author", (), number)
            if plan.shadowed(utterance):
                plan.enter(id, "audience", (), number)
    return plan
