"""Real chat templates and tokenizers that Python packages carry, against stock transformers: `python -m
tools.templates`."""
