"""Benchmarks of what users do. Not tests: nothing here is asserted."""
