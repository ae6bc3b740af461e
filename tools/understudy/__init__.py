"""The embedded model: its corpus, its training, its card."""
