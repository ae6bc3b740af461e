"""Compares real chat templates from Python packages with stock transformers: `python -m tools.templates`."""
