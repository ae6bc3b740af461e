"""Shows a plan as a table."""

from __future__ import annotations

from agentcho.display.text_table import TextTable
from agentcho.lab.plan.planning import Plan

COLUMNS = (
    "workflow",
    "mode",
    "first token, ms",
    "end to end, s",
    "tokens/s",
    "tokens fed",
    "weights, GB",
    "keys and values, GB",
    "agents that fit",
)


def table(found: Plan) -> TextTable:
    """One row for each workflow and mode."""
    machines = found.hardware.name if found.gpus == 1 else f"{found.gpus} x {found.hardware.name}"
    rows = tuple(
        (
            each.subject,
            each.mode,
            f"{each.ttft * 1e3:.1f}",
            f"{each.seconds:.2f}",
            f"{each.rate:,.0f}",
            f"{each.encoded:,}",
            f"{each.weights / 1e9:.1f}",
            f"{each.keys / 1e9:.2f}",
            f"{each.fit:,}",
        )
        for each in found.predicted
    )
    return TextTable(f"predicted, not measured: {found.shape} on {machines}", COLUMNS, rows, words=2)
