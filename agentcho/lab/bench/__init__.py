"""Benchmarks of what users do. They are not tests: nothing here is asserted."""
