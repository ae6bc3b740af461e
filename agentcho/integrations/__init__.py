"""Other systems, each in a folder with an extra of its own: clusters, games, logs, traces and servers of others."""
