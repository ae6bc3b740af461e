"""What was played, in hand: games, messages, tables. See `played`."""
