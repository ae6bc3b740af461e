"""Experiments: the arithmetic of what was measured. Does not know: engines, agents, how anything was measured.

`ExtraMissing` where the libraries of `agentcho[lab]` are not installed.
"""

from agentcho.extras import require

require("to compare and to measure", "lab")
