"""A black-box check of a chat server: is what one caller made it compute reused for another?

Source: arXiv 2502.07776, which tells hits from misses of a prompt cache by the time to the first token. Does not know:
how any server works inside.
"""

from agentcho.lab.probe.findings import ProbeReport
from agentcho.lab.probe.judgement import judged
from agentcho.lab.probe.trials import Plan, measure

__all__ = ["Plan", "ProbeReport", "judged", "measure"]
