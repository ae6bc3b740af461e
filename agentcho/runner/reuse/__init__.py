"""Kernels of reuse methods, one module each, and a registry of them by method name."""
