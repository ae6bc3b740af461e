"""A black-box check of a chat server: does it reuse for one caller what it computed for another?

Source: arXiv 2502.07776, which distinguishes hits from misses of a prompt cache by the time to the first token. Assumes
nothing about a server's internals.
"""

from agentcho.lab.probe.findings import ProbeReport
from agentcho.lab.probe.judgement import judged
from agentcho.lab.probe.trials import Plan, measure

__all__ = ["Plan", "ProbeReport", "judged", "measure"]
