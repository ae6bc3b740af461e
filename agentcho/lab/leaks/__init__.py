"""Measures what a public sentence reveals of a private prompt: attacks on keys and values, by reading mode."""
