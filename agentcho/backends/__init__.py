"""Engines as the choreographer sees them: the one without a model."""
