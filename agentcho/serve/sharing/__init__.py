"""Decides which requests share encodings: societies, and prompts without a society."""
