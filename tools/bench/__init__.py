"""Benchmarks of one thing each, for the engine's makers: `python -m tools.bench`."""

PROGRAM = "python -m tools.bench"
"""The command line."""
GPU_DAY = "gpu-day"
"""The command that measures a GPU."""
