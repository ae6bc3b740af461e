"""Compares answers as mathematics, by math-verify: 1/2 is 0.5, and \\frac{1}{2}. Does not know: tasks."""

from __future__ import annotations

from agentcho.errors import ExtraMissing


def equal(said: str, answer: str) -> bool:
    """Whether what was said ends on `answer`, however it is written. `ExtraMissing`: math-verify is not there."""
    try:
        from math_verify import parse, verify
    except ImportError:
        raise ExtraMissing("math-verify", "math", "to check answers that are mathematics") from None
    wanted = parse(answer if "$" in answer or "\\boxed" in answer else f"${answer}$")
    return bool(verify(wanted, parse(said)) or verify(wanted, parse(f"${said}$")))
