"""The engines that pairs are played on: sets, the fake, or a tiny model with random weights; each in a room.

Rooms: short, few positions, so that calls overflow; tight, a small store, so that much is evicted, reloaded from disk,
and made again; adapted, with a random adapter. Independent of workflows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from agentcho import Engine
from agentcho.engine.cache import DiskQuota
from agentcho.testing import FakeEngine
from tests.engine.families import Layer, llama_family
from tests.engines import Engines
from tests.leaks.sets import Sets

from .pairs import Room

Make = Callable[[Room], Any]
SHORT = 60
"""The context length of the fake and of sets: about four messages."""
LAYERS = 2


def sets(room: Room) -> Sets:
    """The engine of sets; it ignores guards, so that resolving alone has to be right."""
    return Sets(guarded=False, context=SHORT if room == "short" else 1 << 20)


def fake(room: Room) -> FakeEngine:
    """The fake engine."""
    return FakeEngine(context=SHORT if room == "short" else 4096)


class Models:
    """One engine per room, on one network, made on demand."""

    ROOMS: tuple[Room, ...] = ("roomy", "short", "tight", "adapted")

    def __init__(self, engines: Engines) -> None:
        self._all, self._engines = engines, dict[Room, Engine]()
        self._family = replace(llama_family(), layers=(Layer(),) * LAYERS)

    def __call__(self, room: Room) -> Engine:
        """The engine of a room; asserts that nothing is left in it."""
        if room not in self._engines:
            self._engines[room] = self._made(room)
        engine = self._engines[room]
        assert engine.idle
        assert not engine.rows
        return engine

    def _made(self, room: Room) -> Engine:
        if room == "adapted":
            return self._adapted()
        tight = {"store_tokens": 220, "host_tokens": 10, "disk": DiskQuota(80)}
        options: dict[Room, dict[str, Any]] = {"short": {"context": 130}, "tight": tight}
        return self._all(self._family, **options.get(room, {}))

    def _adapted(self) -> Engine:
        """It has a network of its own, because the adapter stays on it."""
        config = LoraConfig(r=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], init_lora_weights=False)
        torch.manual_seed(5)
        with TemporaryDirectory() as folder:
            get_peft_model(self._family.build(), config).save_pretrained(folder)
            return self._all.own(self._family).adapted(folder)
