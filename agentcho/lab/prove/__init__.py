"""A demonstration of the claim: one agent's secrets are swapped, all other words are forced, and the logits of the
other agents are hashed before and after.

Does not know: receipts, cones, findings; only what an engine computes.
"""

from agentcho.lab.prove.proof import Proof
from agentcho.lab.prove.prove import prove

__all__ = ["Proof", "prove"]
