"""The bundled model: its corpus, its training, its card."""
