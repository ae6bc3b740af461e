"""Recorded conversations read in other ways than they were: how far each way is from the baseline, and what moves."""
