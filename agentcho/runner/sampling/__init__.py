"""From logits to tokens: sampling, and constraints on what may be said."""
