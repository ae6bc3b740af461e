"""The same games played in several ways, and compared.

`ExtraMissing` where the libraries of `agentcho[lab]` are not installed.
"""

from agentcho.extras import require

require("to compare and to measure", "lab")
