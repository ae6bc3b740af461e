"""Reuse methods, one module each, and the registry that lists them. No torch: kernels are in `runner/reuse/`."""
