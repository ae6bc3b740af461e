"""Fixtures and hooks for all tests."""

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
"""If set, torch reports no bfloat16 support on this processor."""


MEMORY, ENOUGH = "/dev/shm", 4 << 30


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Make Ctrl-C work even in a run started in the background, which ignores it, and limit torch to one thread.
    Garbage collection is off during imports: scanning the imported modules took as long as importing them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # with tiny matrices threads only slow each other down
    gc.disable()
    if _in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    if os.environ.get(PLAIN):
        _answer_no()


def _in_memory() -> bool:
    """Whether tests can keep temporary folders in memory: a disk takes milliseconds for each file that is synced or
    removed, and tests make thousands. Some of the files are executed, so the mount must allow that."""
    if not os.access(MEMORY, os.R_OK | os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(MEMORY).free >= ENOUGH and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC


def pytest_collection_finish() -> None:
    """Freeze all imported objects. Hypothesis is imported first: it looks for references to random generators and would
    not find them among frozen objects."""
    import hypothesis  # noqa: F401

    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start each test with the same random state, so that failures by chance repeat in any order of tests."""
    _same_coins()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Reset again, so that fixtures made earlier make no difference."""
    _same_coins()


def _same_coins() -> None:
    """Seed torch's default generators. `torch.manual_seed` would record its caller for every unused kind of device."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(0)


def _answer_no() -> None:
    import torch

    setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)  # noqa: B010


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """Every network that tests need, loaded once; call it for a separate engine on one of them."""
    from .engines import Engines  # imports torch only for tests that use it

    registry = Engines()
    yield registry
    registry.close()


@pytest.fixture(scope="session")
def one_command_line() -> Iterator[None]:
    """Build Typer's command line once instead of for each command."""
    import typer.main

    from agentcho.cli import app

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "app", cache(app.app))
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def llama(engines: Engines) -> Iterator[Engine]:
    """A small llama in the Llama-3 style, with BOS and an empty store, closed at once: leaving it to the garbage
    collector would hold hundreds of megabytes."""
    with engines() as engine:
        yield engine
