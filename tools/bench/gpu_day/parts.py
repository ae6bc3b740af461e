"""The parts of the program in execution order, with their requirements and time limits.

Must not import the parts: each is imported where it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

HERE = "tools.bench.gpu_day"


class Part(NamedTuple):
    """A part: its name, its title, the place of its function ("module:function"), the Python packages that it needs
    besides torch, its time limit in seconds, and whether it needs a GPU."""

    name: str
    title: str
    place: str
    needs: tuple[str, ...] = ()
    limit: float = 120.0
    gpu_only: bool = False


AGENTCHO = (
    "accelerate",
    "anyio",
    "jinja2",
    "llguidance",
    "numpy",
    "pydantic",
    "safetensors",
    "tokenizers",
    "transformers",
    "yaml",
)
"""The modules that the engine imports."""
TESTS = (*AGENTCHO, "hypothesis", "pytest", "rich", "typer")
PARTS = (
    Part("machine", "versions, the GPU, its clocks", f"{HERE}.machine:machine"),
    Part("kernel tests", "the kernel's own tests, compiled", f"{HERE}.suites:kernel", (*TESTS, "triton"), 90),
    Part("engine tests", "tests of the engine on the device", f"{HERE}.suites:engine", TESTS, 120),
    Part("load", "the model is drawn, proved and warmed up", f"{HERE}.engine:load", AGENTCHO, 180),
    Part("doctor", "what doctor says of it", f"{HERE}.engine:doctor", AGENTCHO, 90),
    Part(
        "rates",
        "bytes and operations a second, and the least that a step can take",
        f"{HERE}.steps:rates",
        AGENTCHO,
        60,
    ),
    Part("steps", "decode steps, replayed and eager", f"{HERE}.steps:steps", AGENTCHO, 150),
    Part("first tokens", "first tokens over messages that are there", f"{HERE}.first:first", AGENTCHO, 60),
    Part("profile", "kernels of a step, and gaps between them", f"{HERE}.traced:profile", AGENTCHO, 60),
    Part(
        "synchronisation",
        "where a step waits for the device",
        f"{HERE}.traced:synchronisation",
        AGENTCHO,
        60,
        gpu_only=True,
    ),
    Part("kernel", "the kernel's bytes a second, beside a copy", f"{HERE}.kernel:kernel", (*AGENTCHO, "triton"), 60),
    Part(
        "attention",
        "torch's attention over new lengths, fused and by cuDNN",
        f"{HERE}.attention:attention",
        AGENTCHO,
        60,
        gpu_only=True,
    ),
    Part("crowd", "many agents at once, with and without shadows", f"{HERE}.crowd:crowd", AGENTCHO, 120),
    Part(
        "workflows",
        "the paper's workflows, one repeat",
        f"{HERE}.workflows:workflows",
        (*AGENTCHO, "rich", "typer"),
        150,
    ),
    Part("peers", "the same steps by transformers", f"{HERE}.steps:peers", AGENTCHO, 120),
)


def chosen(names: Iterable[str] | None) -> tuple[Part, ...]:
    """The parts with these names, in order. None: all. `ValueError`: there is no such part."""
    wanted = None if names is None else set(names)
    if unknown := (wanted or set()) - {part.name for part in PARTS}:
        raise ValueError(f"no part {sorted(unknown)[0]!r}; give one of {', '.join(part.name for part in PARTS)}")
    return tuple(part for part in PARTS if wanted is None or part.name in wanted)
