"""What holds for all tests."""

from __future__ import annotations

import os
import signal

PLAIN = "AGENTCHO_TEST_PLAIN_PROCESSOR"
"""Set: torch answers that the processor has nothing for bfloat16."""


def pytest_configure() -> None:
    """Ctrl-C works even where the run was started in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get(PLAIN):
        _answer_no()


def _answer_no() -> None:
    import torch

    setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)  # noqa: B010
