"""Measurements: differential test, probe and ablation over finished games. They need an engine and the libraries of
`agentcho[lab]`; verdicts need neither."""
