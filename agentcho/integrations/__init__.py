"""Integrations with other systems, each with its own folder and extra: clusters, games, logs, traces and servers."""
