"""Adaptive parallel encoding (APE, arXiv 2502.05431): what was encoded side by side is weighed by a temperature and a
scale. Does not know: which tokens these are, how they are weighed (`runner.reuse.ape`)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Self

from agentcho.reuse.method import Source, Weighing
from agentcho.reuse.parameters import positive


@dataclass(frozen=True)
class Ape(Weighing):
    """Adaptive parallel encoding: how a call weighs what it attends to of parents that were encoded side by side, each
    without the others. With s the scores of their keys, those of all such parents together, each weight exp(s) becomes
    exp(s / `temperature`) times (the sum of all exp(s / `temperature`)) to the power of `scale` - 1, beside exp(s) of
    every other key. Both are above 0; the paper has them at 1 or less, and 1 and 1 change nothing.

    What all of them share, because they were encoded over it where it stands, is no part of them (the paper's shared
    prefix); nor is what was encoded over all of them, nor the call's own tokens.
    """

    temperature: float = 0.9
    scale: float = 0.9

    name = usual = "ape"
    form = "ape[:TEMPERATURE,SCALE]"
    limits = "TEMPERATURE and SCALE are above 0"
    examples = ("ape", "ape:0.9,0.9")
    about = "in place, and what was encoded side by side weighed so"
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
