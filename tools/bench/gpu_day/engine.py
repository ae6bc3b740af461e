"""Loads, proves and warms up the model, and reports doctor's findings on it."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from agentcho.runner.doctor import report_of
from agentcho.runner.engine import Engine
from agentcho.runner.model.device import gpu_name
from tools.bench.gpu_day.asked import Asked
from tools.bench.gpu_day.day import Day


def loaded(asked: Asked) -> Any:
    """Load the requested engine."""
    return Engine.load(asked.model, asked.device, host_tokens=0, template_differs="accept")


def load(day: Day) -> None:
    """Load the engine, and report how long that took and how large its store is."""
    began = perf_counter()
    engine = day.engine
    day.keep("seconds", perf_counter() - began)
    weights = sum(weight.nbytes for weight in engine.network.parameters())
    day.keep("weights", weights)
    day.keep("model", day.asked.model)
    day.keep("dtype", str(next(engine.network.parameters()).dtype).removeprefix("torch."))
    day.keep("device", gpu_name(engine.network.device).get("gpu", str(engine.network.device)))
    day.keep("store", {"tokens": engine.room[0], "positions": engine.context})
    day.keep("attention", {each.name: each.missing or "used" for each in engine.backends.report()})


def doctor(day: Day) -> None:
    """The rows of doctor's report, except those of single layers."""
    report = report_of(day.asked.model, day.engine)
    rows = [row for row in report.rows if row.check != "layer"]
    day.keep("rows", [f"{row.check}: {row.result}: {row.detail}" for row in rows])
    if report.layers is not None:
        day.keep("layers", report.layers.detail)
    day.keep("notes", list(report.notes))
