"""A proof of the claim: one agent's secrets are swapped, all other words are forced, and the logits of the other agents
are hashed before and after. Must not use receipts, cones or findings; only what an engine computes.
"""

from agentcho.lab.prove.proof import Proof
from agentcho.lab.prove.prove import prove

__all__ = ["Proof", "prove"]
