"""What the parts have in common. Independent of what runs them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from tools.bench.gpu_day.asked import Asked, Sizes


class Impossible(Exception):
    """A part cannot run here; the text says why."""


class Day:
    """What parts have in common: the options, the engine, and `keep`, to which they report what they find."""

    def __init__(self, asked: Asked, keep: Callable[[str, Any], None]) -> None:
        self.asked, self.keep = asked, keep

    @property
    def sizes(self) -> Sizes:
        """The sizes of what is measured."""
        return self.asked.sizes

    @cached_property
    def engine(self) -> Any:
        """The engine, loaded on first use."""
        from tools.bench.gpu_day.engine import loaded

        return loaded(self.asked)

    @cached_property
    def rates(self) -> Any:
        """Bytes and operations per second of this device, measured on first use."""
        from tools.bench.rates import rates

        return rates(self.engine.network, size=self.sizes.streamed)
