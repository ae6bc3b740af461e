"""One game: its agents, their turns, its messages, and the limits that end it."""
