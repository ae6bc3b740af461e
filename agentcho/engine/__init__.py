"""The engine: prefill, decode and score over a store of encodings. See `engine.Engine`."""

from agentcho.engine.doctor import DoctorReport, doctor
from agentcho.engine.engine import Engine

__all__ = ["DoctorReport", "Engine", "doctor"]
