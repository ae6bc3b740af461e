"""Generates the documentation pages that are made from result files: `python -m tools.pages.speed` and others."""
