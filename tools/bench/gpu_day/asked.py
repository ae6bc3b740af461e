"""The options of a run, and the sizes of everything in it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Sizes(NamedTuple):
    """How much is measured: rows and cached tokens of steps, and steps that are timed; cached tokens, messages and
    tails of first tokens; agents, steps and mean tokens of a crowd; the scale of workflows; bytes of matrices with
    which rates are measured; rows of the kernel, and the tokens that each reads."""

    rows: tuple[int, ...]
    contexts: tuple[int, ...]
    steps: int
    cached: int
    messages: int
    tails: tuple[int, ...]
    agents: tuple[int, ...]
    crowd_steps: int
    mean: int
    scale: float
    streamed: int
    kernel_rows: tuple[int, ...]
    kernel_tokens: int


LARGE = Sizes(
    rows=(1, 8, 32, 64),
    contexts=(512, 8192),
    steps=20,
    cached=8192,
    messages=8,
    tails=(33, 47, 58, 64, 71, 90, 101, 118, 130, 149),
    agents=(1, 16, 64),
    crowd_steps=300,
    mean=120,
    scale=0.1,
    streamed=1 << 28,
    kernel_rows=(1, 16, 64),
    kernel_tokens=8192,
)
"""For a GPU, with the shape of Llama-3.1-8B."""
SMALL = Sizes(
    rows=(1, 4),
    contexts=(48, 200),
    steps=4,
    cached=240,
    messages=4,
    tails=(5, 9, 14),
    agents=(2, 5),
    crowd_steps=30,
    mean=10,
    scale=0.02,
    streamed=1 << 24,
    kernel_rows=(1, 2),
    kernel_tokens=64,
)
"""For a CPU, only to show that the program works."""


class Asked(NamedTuple):
    """The options of a run. `model`: as for `Engine.load`. `suites`: the arguments for pytest; None: everything
    suitable for the device."""

    device: str
    model: str
    seed: int
    suites: tuple[str, ...] | None = None

    @property
    def sizes(self) -> Sizes:
        """The sizes for the device."""
        return SMALL if self.device == "cpu" else LARGE

    @classmethod
    def read(cls, given: dict[str, Any]) -> Asked:
        """Read options from JSON."""
        suites = given.pop("suites")
        return cls(**given, suites=None if suites is None else tuple(suites))
