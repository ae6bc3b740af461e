"""Draws the log of a training: the loss of every step, and that of the traces held out. Does not know: training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def plot(log: Sequence[Mapping[str, Any]], title: str, file: Path) -> None:
    """Write a picture; its ending says of which kind."""
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axis = figure.subplots()
    steps = [line for line in log if "loss" in line]
    held = [line for line in log if "dev" in line]
    axis.plot([x["step"] for x in steps], [x["loss"] for x in steps], color="#b8c4d0", linewidth=1, label="step")
    axis.plot([x["step"] for x in held], [x["dev"] for x in held], "o-", color="#4477aa", label="held out")
    axis.set_xlabel("step")
    axis.set_ylabel("nats a word")
    axis.set_ylim(bottom=0)
    axis.set_title(title, fontsize=10)
    axis.legend(fontsize=8)
    figure.savefig(file, dpi=150)
