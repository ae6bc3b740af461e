"""Runs of games: the request, the models, and how games are played, recorded, resumed and replayed."""
