"""Sits between the choreographer and an engine: forces the words of everybody except the reader, makes calls fail, and
records what the reader's own words were chosen from.

Independent of games and audiences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentcho import Engine
from agentcho.errors import CallFailed
from agentcho.protocol.call import (
    DEFAULT_PRIORITY,
    Call,
    CallFailure,
    Decode,
    EncodingId,
    SchedulingPriority,
    Shadow,
    StepResult,
)
from agentcho.testing import FakeEngine
from tests.leaks.sets import Sets

Journal = list[tuple[object, ...]]
Words = Mapping[str, tuple[int, ...]]
TOOL = "look"
"""The name of the tool, which has no arguments."""


class Port:
    """An `EnginePort` around `engine`. Decodes of others generate what `words` has for their header; those of `reader`
    in the first game are free, and what they were made from goes to the `journal`. A decode whose header is in `faulty`
    fails at its first token."""

    def __init__(self, engine: Any, reader: str, words: Words, faulty: frozenset[str], journal: Journal) -> None:
        self._engine, self._reader, self._words = engine, reader, words
        self._faulty, self._journal = faulty, journal
        self._own: dict[EncodingId, str] = {}
        self._failing = set[EncodingId]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """Submit the calls, with the decodes of others forced."""
        first = turn.workflow == "0"
        decodes = {id(call): self._changed(call, first) for call in calls if isinstance(call, Decode)}
        changed = [self._follow(call, decodes) for call in calls]
        ids: tuple[EncodingId, ...] = self._engine.submit(changed, turn)
        for number, call in zip(ids, calls, strict=True):
            if isinstance(call, Decode) and call.name == self._reader and first:
                self._own[number] = call.header
            if isinstance(call, Decode) and call.header in self._faulty:
                self._failing.add(number)
        return ids

    def _changed(self, call: Decode, first: bool) -> Decode:
        if call.name == self._reader and first:
            if isinstance(self._engine, Sets):
                well = tuple(self._engine.framing.content.encode(_obliging(call)))
                return replace(call, forced=self._called if call.forms else well)
            return replace(call, logits=True, thinks=False)
        return replace(call, forced=self._called if call.forms else self._words.get(call.header))

    @property
    def _called(self) -> tuple[int, ...]:
        """A call of the tool in the format of the engine's framing."""
        _, ids = self._engine.framing.tools.called(TOOL, "{}")
        return tuple(ids)

    def _follow(self, call: Call, decodes: Mapping[int, Decode]) -> Call:
        if isinstance(call, Shadow):
            return replace(call, of=decodes[id(call.of)])
        return decodes[id(call)] if isinstance(call, Decode) else call

    def step(self, *how: Any) -> StepResult:
        """Step the engine; then fail faulty calls, and record what the reader's words were made from."""
        result: StepResult = self._engine.step(*how)
        for id in result.finished:
            if id in self._own:
                self._journal.append(("made", self._own[id], proof(self._engine, id)))
        faults = {spoken.id for spoken in result.spoken} & self._failing - set(result.finished)
        if not faults:
            return result
        self._engine.cancel(faults)
        failed = tuple(CallFailure(id, CallFailed("nothing was left to say")) for id in sorted(faults))
        spoken = tuple(each for each in result.spoken if each.id not in faults)
        return result._replace(spoken=spoken, failed=(*result.failed, *failed))


def proof(engine: Any, id: EncodingId) -> object:
    """A fingerprint of everything that an encoding's words were chosen from: all bits of their logits on a model,
    otherwise the key of everything gathered."""
    if isinstance(engine, Sets):
        return engine.storage(id).key
    if isinstance(engine, FakeEngine):
        return engine.debug.entry(id).key
    assert isinstance(engine, Engine)
    return hashlib.sha256(engine.logits(id).numpy().tobytes()).hexdigest()


def _obliging(call: Decode) -> str:
    """A valid reply for an engine that generates nothing itself."""
    return call.sampling.choices[0] if call.sampling.choices else "well"
