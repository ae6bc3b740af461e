"""Experiments: the arithmetic of what was measured. Does not know: engines, agents, how anything was measured."""
