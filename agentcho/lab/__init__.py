"""Measurement, comparison and training: optional tools that playing a game does not need."""
