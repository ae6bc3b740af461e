"""Kernels of reuse methods, one module each, and what lists them by the names of the methods."""
