"""Measures whether an agent that judges others' messages picks the same one when encodings are reused."""
