"""One play, and many: who plays, what was said, how a run of games begins and ends."""
