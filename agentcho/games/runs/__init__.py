"""Runs of games: what is asked for, which models play, how games are recorded, resumed and replayed."""
