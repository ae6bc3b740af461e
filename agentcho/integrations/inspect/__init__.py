"""Recorded runs as logs of Inspect (inspect.aisi.org.uk)."""
