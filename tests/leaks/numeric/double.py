"""A double around the real engine: forces what others say, poisons what a reader must not read, records what it reads.

It takes the place of the engine for the choreographer, and records each encoding in the step that makes it. Independent
of games and agents' code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho import Engine
from agentcho.message import Words
from agentcho.protocol.call import (
    DEFAULT_PRIORITY,
    Call,
    Decode,
    EncodingId,
    Prefill,
    Repair,
    SchedulingPriority,
    Shadow,
    StepResult,
)
from agentcho.provenance.resolver import EXACT
from tests.around import Around

Forced = Mapping[str, tuple[int, ...]]


class Key(NamedTuple):
    """Identifies an encoding across two plays of one workflow: its class, without the profile, and its known words."""

    salt: str
    words: str

    def open_to(self, reader: str) -> bool:
        """Whether the reader is in its class; without classes (audit), always True."""
        members = json.loads(self.salt) if self.salt else "everyone"
        return members == "everyone" or reader in members


class Kept(NamedTuple):
    """One encoding: its words, its context as (key, offset, length), its position, and its tensors."""

    words: Words
    context: tuple[tuple[Key, int, int], ...]
    start: int
    bos: int
    cached: list[tuple[Tensor, Tensor]]
    logits: Tensor | None


class Double(Around):
    """An `EnginePort` around `engine`. Decodes generate what `forced` has for their header; others are sampled.

    `poison` overwrites, after each step, every encoding of a class without `reader` with NaN. `kept` has all that are
    not poisoned, by key; if one is made again, `again` has the others. `own` are the reader's decodes.
    """

    def __init__(self, engine: Engine, reader: str, forced: Forced | None = None, poison: bool = False) -> None:
        super().__init__(engine)
        self.reader, self._forced, self._poison = reader, forced or {}, poison
        self.keys: dict[EncodingId, Key] = {}
        self.kept: dict[Key, Kept] = {}
        self.again: list[tuple[Key, Kept]] = []
        self.spoken: dict[str, tuple[int, ...]] = {}
        self.own: list[Key] = []
        self.encoded = 0

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """Submit the calls, forced if there are words for them, those of the reader with their logits."""
        decodes = {id(call): self._changed(call) for call in calls if isinstance(call, Decode)}
        changed = [self._follow(call, decodes) for call in calls]
        ids = self.engine.submit(changed, turn)
        self.keys.update((i, self._key(call)) for i, call in zip(ids, changed, strict=True))
        self.own += [self._key(call) for call in changed if isinstance(call, Decode) and call.name == self.reader]
        return ids

    def _key(self, call: Call) -> Key:
        salt = call.salt.removeprefix(EXACT)
        match call:
            case Shadow():
                return Key(salt, call.of.header)
            case Repair():
                base = self.keys[call.of] if isinstance(call.of, int) else self._key(call.of)
                return Key(salt, f"{base[1]}, repaired")
            case Prefill():
                return Key(salt, call.text)
            case Decode():
                return Key(salt, call.header)

    def _changed(self, call: Decode) -> Decode:
        own = call.name == self.reader
        return replace(call, logits=own, thinks=False, forced=self._forced.get(call.header))

    def _follow(self, call: Call, decodes: Mapping[int, Decode]) -> Call:
        if isinstance(call, Shadow):
            return replace(call, of=decodes[id(call.of)])
        return decodes[id(call)] if isinstance(call, Decode) else call

    def step(self, deterministic: bool = False) -> StepResult:
        """Step the engine; then record and poison."""
        result = self.engine.step(deterministic)
        self.encoded += result.encoded
        for id in result.finished:
            self._take(id)
        return result

    def _take(self, id: EncodingId) -> None:
        key, words = self.keys[id], self.engine.message(id)
        if words.sampled is not None:
            self.spoken[words.header] = words.tokens[slice(*words.sampled)]
        if self._poison and not key.open_to(self.reader):
            self._spoil(id)
            return
        kept = self._kept(id, key, words)
        if key in self.kept:
            self.again.append((key, kept))
        else:
            self.kept[key] = kept

    def _kept(self, id: EncodingId, key: Key, words: Words) -> Kept:
        receipt = self.engine.receipt(id)
        context = tuple((self.keys[entry.id], entry.offset, entry.length) for entry in receipt.context)
        logits = self.engine.logits(id) if key in self.own and key not in self.kept else None
        return Kept(words, context, receipt.start, receipt.bos, self.engine.cached(id), logits)

    def _spoil(self, id: EncodingId) -> None:
        block = self.engine.debug.entry(id).block
        for layer, (keys, values) in enumerate(self.engine.cached(id)):
            self.engine.store.write(block, layer, torch.full_like(keys, torch.nan), torch.full_like(values, torch.nan))

    def read(self) -> Iterator[Key]:
        """The keys of the reader's own decodes and of everything they were computed from."""
        left, seen = list(self.own), set[Key]()
        while left:
            key = left.pop()
            if key not in seen:
                seen.add(key)
                yield key
                left += [parent for parent, _, _ in self.kept[key].context]
