"""Adaptive parallel encoding (APE, arXiv 2502.05431): weighs messages that were encoded side by side by a temperature
and a scale. The kernel is in `runner.reuse.ape`."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Self

from agentcho.reuse.method import Source, Weighing
from agentcho.reuse.parameters import positive


@dataclass(frozen=True)
class Ape(Weighing):
    """Adaptive parallel encoding: how a call weighs parents that were encoded side by side, each without the others.

    Let s be the scores of the keys of all such parents together. Each weight exp(s) becomes exp(s / `temperature`)
    times (the sum of all exp(s / `temperature`)) to the power of `scale` - 1, beside exp(s) of every other key.

    A prefix that all of these parents were encoded over, at its own position, is not one of them. Nor is a message that
    was encoded over all of them, nor are the call's own tokens.

    Args:
        temperature: Above 0. The paper uses 1 or less.
        scale: Above 0. The paper uses 1 or less. With both at 1 nothing changes.
    """

    temperature: float = 0.9
    scale: float = 0.9

    name = usual = "ape"
    form = "ape[:TEMPERATURE,SCALE]"
    limits = "TEMPERATURE and SCALE are above 0"
    examples = ("ape", "ape:0.9,0.9")
    about = "in place, and attention to what was encoded separately scaled"
    source = Source("APE", "2502.05431")

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`. Without parameters both are 0.9."""
        if value is None:
            return cls()
        found = re.fullmatch(r"([0-9]*\.?[0-9]+),([0-9]*\.?[0-9]+)", value)
        temperature, scale = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
        return cls(temperature, scale) if temperature > 0 and scale > 0 else None

    @classmethod
    def checked(cls, given: Self) -> Self:
        """See `Method.checked`."""
        return cls(positive(given.temperature, "the temperature of Ape"), positive(given.scale, "the scale of Ape"))

    @property
    def key(self) -> bytes:
        """See `Weighing.key`."""
        return b"ape" + struct.pack("<dd", self.temperature, self.scale)
