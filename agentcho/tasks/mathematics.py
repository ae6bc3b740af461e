"""Compares answers as mathematics, with math-verify: 1/2 equals 0.5 and \\frac{1}{2}."""

from __future__ import annotations

import threading
from functools import partial

from agentcho.extras import require


def require_verifier() -> None:
    """Raise `ExtraMissing` if math-verify is not installed; nothing is imported."""
    require("to check answers that are mathematics", "math")


def equal(said: str, answer: str) -> bool:
    """Whether a text ends with `answer`, however it is written. Raises `ExtraMissing` without math-verify."""
    require_verifier()
    from math_verify import parse, verify

    # The library's time limits are alarm signals, which only the main thread may set.
    main = threading.current_thread() is threading.main_thread()
    read = parse if main else partial(parse, parsing_timeout=None)
    same = verify if main else partial(verify, timeout_seconds=None)
    wanted = read(answer if "$" in answer or "\\boxed" in answer else f"${answer}$")
    return any(same(wanted, read(each)) for each in (said, f"${said}$"))
