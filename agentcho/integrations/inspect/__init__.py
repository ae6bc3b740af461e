"""Exports recorded runs as logs of Inspect (inspect.aisi.org.uk)."""
