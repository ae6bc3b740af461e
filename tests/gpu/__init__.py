"""Checks about GPUs that run without one: fake tensors, compiled kernels, and arithmetic."""
