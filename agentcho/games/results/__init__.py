"""Results in Python: games, messages and tables. See `played`."""
