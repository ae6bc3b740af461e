"""Workflows for unfolding, and the engine's own scores of their words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agentcho.config import Leakage, Mode
from agentcho.games.runs.replay import Replayed, replay
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, Decode, EncodingId, Prefill, SchedulingPriority, StepResult
from agentcho.records.trace import Workflow, workflow
from agentcho.runner.engine import Engine

Message = dict[str, Any]


def prefill(id: str, author: str | None, audience: Any, *parents: str, **more: Any) -> Message:
    message: Message = {"id": id, "kind": "prefill", "role": "user", "author": author, "audience": audience}
    return message | {"parents": list(parents), "text": f"the words of {id}"} | more


def decode(id: str, author: str, audience: Any, *parents: str, **more: Any) -> Message:
    spoken = {"kind": "decode", "role": "assistant", "header": "So: ", "name": author}
    return prefill(id, author, audience, *parents) | spoken | more


def trace(*messages: Message, id: str = "w0", workflow_: str = "talk") -> Workflow:
    head = {"format": "agentcho-trace/1", "workflow": workflow_, "id": id, "agents": ["alice", "bob", "carol"]}
    return workflow(head | {"messages": list(messages)})


def talk() -> Workflow:
    """Private prompts, messages read by several agents in other orders and positions, and one that nobody reads."""
    everyone = "everyone"
    return trace(
        prefill("s", None, everyone, role="system"),
        prefill("pa", "alice", ["alice"], "s"),
        prefill("pb", "bob", ["bob"]),
        decode("a", "alice", everyone, "s", "pa"),
        decode("b", "bob", everyone, "pb", "s", offsets=[1, 30], new_offset=45),
        prefill("idle", "carol", everyone),
        decode("c", "carol", everyone, "b", "a", header=""),
        decode("w", "alice", ["alice", "bob"], "pa", "c", "a", offsets=[None, 20, 60]),
        decode("d", "bob", everyone, "w", "pb", "c", "b", new_offset=90),
        decode("e", "carol", everyone, "d", text=""),
    )


class Scored:
    """Wraps an engine; collects the log-probabilities `[tokens + 1]` that its `score` gives each decode's words."""

    def __init__(self, engine: Engine) -> None:
        self.scores: list[tuple[EncodingId, Tensor]] = []
        self._engine = engine
        self._decodes: dict[EncodingId, tuple[Decode, list[EncodingId]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        ids = self._engine.submit(calls, turn)
        known = {id(call): number for call, number in zip(calls, ids, strict=True)}
        for call, number in zip(calls, ids, strict=True):
            if isinstance(call, Decode):
                parents = [known[id(each)] if isinstance(each, Prefill) else each for each in call.parents]
                self._decodes[number] = (call, parents)  # type: ignore[assignment]
        return ids

    def step(self, deterministic: bool = False) -> StepResult:
        result = self._engine.step(deterministic)
        self.scores += [(id, self._score(*self._decodes[id])) for id in result.finished if id in self._decodes]
        return result

    def _score(self, call: Decode, parents: list[EncodingId]) -> Tensor:
        assert call.forced is not None
        rows = self._engine.score(
            "", call.header, parents, call.offsets, call.new_offset, name=call.name, tokens=call.forced
        )
        said = [*call.forced, self._engine.framing.closing("assistant")[0]]
        return rows[torch.arange(len(said)), torch.tensor(said)]


def scored(flow: Workflow, engine: Engine, mode: Mode, leakage: Leakage) -> tuple[Tensor, Replayed]:
    """The engine's log-probabilities of all decoded words, in order of submission, and the replay."""
    port: Any = Scored(engine)
    replayed = replay(flow, port, mode=mode, leakage=leakage, shadow="never", logits=False)
    return torch.cat([score for _, score in sorted(port.scores, key=lambda each: each[0])]), replayed
