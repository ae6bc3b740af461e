"""Measures recorded office workflows with private vaults (AgentLeak, arXiv 2602.11510): what their keys and values
would carry.

The recordings are not part of this repository and are read in place.
"""

from tools.bench.agentleak.asked import Asked, begin, lines, measured

__all__ = ["Asked", "begin", "lines", "measured"]
