"""Plays the same games in several ways and compares them."""
