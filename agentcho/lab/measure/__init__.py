"""Measurements over finished games: differential test, probe and ablation. They need an engine and the libraries of
`agentcho[lab]`; verdicts need neither."""
