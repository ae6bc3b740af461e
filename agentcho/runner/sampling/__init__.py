"""From logits to tokens: sampling, and constraints on answers."""
