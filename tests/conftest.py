"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C works even where the run was started in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
