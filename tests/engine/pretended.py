"""A pytest plugin (`-p tests.engine.pretended`) that runs tests on a simulated GPU: with `AGENTCHO_TEST_DEVICE=cuda`,
every engine is on it, and an operation that mixes its tensors with the CPU's fails.

Kernels, graphs and copies for several devices are refused, so the slower fallbacks run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

import pytest
import torch

from agentcho.runner import engine as engines
from agentcho.runner.attention import flex, triton_paged
from agentcho.runner.kv import gather
from agentcho.runner.model.device import DevicePlacement
from agentcho.runner.model.model import Model

from .pretend import Pretend, put

GPU = torch.device("cuda", 0)
ANSWERS: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "synchronize": lambda *_: None,
    "empty_cache": lambda: None,
    "mem_get_info": lambda *_: (5 << 28, 80 << 30),
    "get_device_name": lambda *_: "pretended",
}
"""Replacements for functions of `torch.cuda`. Free memory is small, because reserved memory is really written here."""
load = Model.load


class Inline:
    """Replaces the loading thread: simulated devices work in one thread only."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Inline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def submit(self, work: Callable[..., Any], *given: Any) -> Inline:
        self.result = lambda: work(*given)
        return self


def loaded(source: Any, place: DevicePlacement, *more: Any) -> Model:
    """Load a model as if onto a GPU."""
    if place.where().type != "cuda":
        return load(source, place, *more)
    dtype = "float32" if place.dtype == "auto" else place.dtype
    model = load(source, place._replace(device="cpu", dtype=dtype), *more)
    with Pretend():
        put(model.network, GPU)
        return Model(model.source, model.network, model.tokenizer)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    with pytest.MonkeyPatch.context() as patch, Pretend():
        for name, answer in ANSWERS.items():
            patch.setattr(torch.cuda, name, answer)
        patch.setattr(engines, "ThreadPoolExecutor", Inline)
        patch.setattr(Model, "load", loaded)
        patch.setattr(flex, "why_not_flex", lambda device: "pretended")
        patch.setattr(triton_paged, "why_not_triton", lambda device: "pretended")
        patch.setattr(gather, "serves", lambda device: False)
        return (yield)
