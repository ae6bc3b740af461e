"""KVCOMM (arXiv 2510.12872): of a message that a reader has in its prompt, keys and values differ by an offset from
those that are reused; offsets that were seen of messages with near token embeddings are added to those of a new one.

Does not know: embeddings, how an offset is added (`runner.reuse.kvcomm`), which anchors a reader has.
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
"""The entropy of a single anchor is 0 however far away it is, so it tells nothing."""


@dataclass(frozen=True)
class KVComm(ByAnchors):
    """For `Repair`: offsets from anchors are added to the reused keys and values, or all tokens are computed again.

    An anchor counts if its `real` encoding has no fewer tokens than the message and was itself computed in full. Its
    weight is the softmax of its negative distance: the L2 norm between the input embeddings of the message's tokens and
    of the anchor's first tokens, as many. Offsets are used if there are two anchors or more, and the entropy of their
    weights is at most `threshold` times its maximum, the logarithm of their number. The message then keeps the keys and
    values of its base plus the weighted offsets, and no token is computed.

    Args:
        threshold: Above 0, at most 1.
        anchors: The reader's anchors.
    """

    threshold: float = THRESHOLD
    anchors: tuple[Anchor, ...] = ()

    name = usual = "kvcomm"
    attacked = "kvcomm:1"  # at this threshold it takes what anchors there are
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
        """See `Method.checked`. The anchors are left out: who knows calls checks them."""
        return cls(share(given.threshold, "the threshold of KVComm"))

    def with_anchors(self, anchors: tuple[Anchor, ...]) -> Self:
        """See `ByAnchors.with_anchors`."""
        return replace(self, anchors=anchors)

    def weights(self, distances: Sequence[float]) -> tuple[float, ...]:
        """The softmax of minus these distances; empty where there are too few, or where its entropy is more than the
        threshold times the highest that so many weights can have."""
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
        """See `Selection.tag`; which anchors there were is a part of a key by itself."""
        return f"Anchored(threshold={self.threshold!r}, anchors=())"
