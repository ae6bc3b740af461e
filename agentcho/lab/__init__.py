"""What measures, compares and trains: an addition to what a game needs."""
