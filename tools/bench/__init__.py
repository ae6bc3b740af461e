"""Benchmarks of single aspects, for developers of the engine: `python -m tools.bench`."""

PROGRAM = "python -m tools.bench"
"""The command line."""
GPU_DAY = "gpu-day"
"""The command that measures a GPU."""
