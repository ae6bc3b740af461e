"""Benchmarks of one thing each, of the engine's makers: `python -m tools.bench`."""

PROGRAM = "python -m tools.bench"
"""What one types."""
