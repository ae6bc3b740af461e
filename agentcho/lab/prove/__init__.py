"""The claim as a demonstration: secrets are swapped, words are forced, and what others see is hashed before and after.

Does not know: receipts, cones, findings; only what an engine computes.
"""

from agentcho.lab.prove.proof import Proof
from agentcho.lab.prove.prove import prove

__all__ = ["Proof", "prove"]
