"""Distills the baseline into the choreography: traces of baseline games, and adapters trained on them."""
