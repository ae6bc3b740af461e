"""Distilling the baseline into the choreography: traces of what the baseline says, and adapters that say it too."""
