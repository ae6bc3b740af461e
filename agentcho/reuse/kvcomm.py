"""KVCOMM (arXiv 2510.12872): adds offsets from anchors to reused keys and values.

In a reader's own prompt the keys and values of a message differ by an offset from the reused ones. The offsets of
earlier messages with similar token embeddings (anchors) approximate that of a new one. `runner.reuse.kvcomm` adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Self

from agentcho.reuse.anchors import Anchor
from agentcho.reuse.method import ByAnchors, Source
from agentcho.reuse.parameters import share, share_in

THRESHOLD = 0.3
"""As in the paper's experiments."""
FEWEST = 2
"""Smallest number of anchors. The entropy of a single anchor is 0 at any distance, so it says nothing."""


@dataclass(frozen=True)
class KVComm(ByAnchors):
    """For `Repair`: offsets from anchors are added to the reused keys and values, or all tokens are recomputed.

    An anchor counts if its `real` encoding has no fewer tokens than the message and was itself computed in full. Its
    weight is the softmax of its negative distance: the L2 norm between the input embeddings of the message's tokens and
    of equally many first tokens of the anchor. Offsets are used if there are two anchors or more, and the entropy of
    their weights is at most `threshold` times its maximum, the logarithm of their number. The message then gets the
    keys and values of its base plus the weighted offsets, and no token is computed.

    Args:
        threshold: Above 0, at most 1.
        anchors: The reader's anchors.
    """

    threshold: float = THRESHOLD
    anchors: tuple[Anchor, ...] = ()

    name = usual = "kvcomm"
    attacked = "kvcomm:1"  # at this threshold any two anchors suffice
    formerly = "Anchored"
    form = "kvcomm[:THRESHOLD]"
    limits = "THRESHOLD is above 0, at most 1"
    examples = ("kvcomm", "kvcomm:0.3")
    about = "none where the offsets of near messages are known, else all of them: see [anchors](#anchors)"
    source = Source("KVCOMM", "2510.12872")

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`. Without parameters the threshold is the paper's."""
        found = THRESHOLD if value is None else share_in(value)
        return None if found is None else cls(found)

    @classmethod
    def checked(cls, given: Self) -> Self:
        """See `Method.checked`. The anchors are left out; the validation of calls checks them."""
        return cls(share(given.threshold, "the threshold of KVComm"))

    def with_anchors(self, anchors: tuple[Anchor, ...]) -> Self:
        """See `ByAnchors.with_anchors`."""
        return replace(self, anchors=anchors)

    def weights(self, distances: Sequence[float]) -> tuple[float, ...]:
        """The softmax of the negative distances. Empty if there are too few, or if its entropy is above the threshold
        times the highest possible entropy of that many weights."""
        if len(distances) < FEWEST:
            return ()
        least = min(distances)
        parts = [exp(least - each) for each in distances]
        shares = [part / sum(parts) for part in parts]
        highest = log(len(shares))
        entropy = min(highest, -sum(share * log(share) for share in shares if share))
        return tuple(shares) if entropy <= self.threshold * highest else ()

    @property
    def tag(self) -> str:
        """See `Selection.tag`. The anchors enter the key separately."""
        return f"Anchored(threshold={self.threshold!r}, anchors=())"
