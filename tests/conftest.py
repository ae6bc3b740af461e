"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest

from .device import settle

if TYPE_CHECKING:
    from agentcho import Engine

    from .engines import Engines

settle()
PLAIN = "AGENTCHO_TEST_PLAIN_PROCESSOR"
"""Set: torch answers that the processor has nothing for bfloat16."""


MEMORY, ENOUGH = "/dev/shm", 4 << 30


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Ctrl-C works even where the run was started in the background, which ignores it; and torch has one thread. What
    is imported stays: nothing of it is looked through for garbage, which took as long as importing it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny matrices: threads would only get in each other's way
    gc.disable()
    if _in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    if os.environ.get(PLAIN):
        _answer_no()


def _in_memory() -> bool:
    """Whether temporary folders of tests fit into memory: a disk takes milliseconds for each file that is synchronised
    or removed, and tests make thousands. Some are programs, which have to be allowed there."""
    if not os.access(MEMORY, os.R_OK | os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(MEMORY).free >= ENOUGH and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC


def pytest_collection_finish() -> None:
    """All is imported, hypothesis too, whatever is run: it looks for what refers to a generator of random numbers, and
    would not find it among what is frozen."""
    import hypothesis  # noqa: F401

    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What fails by torch's coins fails again, in any order of tests: each begins with the same ones."""
    _same_coins()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """The same whether fixtures had been made before or not."""
    _same_coins()


def _same_coins() -> None:
    """`torch.manual_seed` would write down who called it, for every kind of device that is not in use."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(0)


def _answer_no() -> None:
    import torch

    setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)  # noqa: B010


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """Every network that tests need, loaded once; call it for an engine of one's own on one."""
    from .engines import Engines  # torch, for those that take it

    registry = Engines()
    yield registry
    registry.close()


@pytest.fixture(scope="session")
def one_command_line() -> Iterator[None]:
    """Typer puts the command line together once, and not for each command that is tried."""
    import typer.main

    from agentcho.cli import app

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "app", cache(app.app))
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def llama(engines: Engines) -> Iterator[Engine]:
    """A small llama in the Llama-3 style, with BOS, and an empty store, which is given back at once: who waits for the
    collector holds hundreds of megabytes."""
    with engines() as engine:
        yield engine
