"""The same games played under every combination of some options, and compared."""
