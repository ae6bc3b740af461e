"""Plays the same games under every combination of some options, and compares them."""
