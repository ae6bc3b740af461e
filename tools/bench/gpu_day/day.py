"""What a part works with. Does not know: who runs parts, what becomes of what they find."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from tools.bench.gpu_day.asked import Asked, Sizes


class Impossible(Exception):
    """A part cannot run here; the text says why."""


class Day:
    """What parts work with: what was asked for, the engine, and `keep`, to which they tell what they find."""

    def __init__(self, asked: Asked, keep: Callable[[str, Any], None]) -> None:
        self.asked, self.keep = asked, keep

    @property
    def sizes(self) -> Sizes:
        """How much is measured."""
        return self.asked.sizes

    @cached_property
    def engine(self) -> Any:
        """The engine, loaded when it is first asked for."""
        from tools.bench.gpu_day.engine import loaded

        return loaded(self.asked)

    @cached_property
    def rates(self) -> Any:
        """Bytes and operations a second of this device, measured when they are first asked for."""
        from tools.bench.rates import rates

        return rates(self.engine.network, size=self.sizes.streamed)
