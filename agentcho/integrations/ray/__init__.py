"""Plays one run on many machines: a driver deals games to workers and writes their results into one record."""
