"""Measures recorded conversations in other reading modes: their divergence from the baseline, and changed decisions."""
