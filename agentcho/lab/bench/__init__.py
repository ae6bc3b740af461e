"""Benchmarks: what a machine takes for things that users do. Not tests; nothing here is asserted."""
