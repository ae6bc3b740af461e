"""Names of the arms and the subjects of the comparison with vLLM."""

from __future__ import annotations

from agentcho.lab.bench.arms import AUDIT, ENFORCE, GENERATE

PLAIN = "vllm"
"""vLLM alone, with its prefix cache."""
ON_VLLM = {f"{PLAIN}+audit": AUDIT, f"{PLAIN}+enforce": ENFORCE}
"""The arms on engine vllm, and their names on agentcho's own engine."""
OWN = {"agentcho+enforce": ENFORCE}
"""The arms on agentcho's own engine."""
ARMS = (PLAIN, *ON_VLLM, *OWN, GENERATE)
ROWS = (1, 8)
FIRST = "first token behind 2,000 reused"


def step_of(rows: int) -> str:
    """The subject for a decode step with this many rows."""
    return f"decode step, {rows} row{'s' if rows > 1 else ''}"
