"""Measurements: differential test, probe and ablation over finished games. They need an engine; verdicts do not."""

from agentcho.lab.measure.controls import controls
from agentcho.lab.measure.whole import PARTS, Part, measure

__all__ = ["PARTS", "Part", "controls", "measure"]
