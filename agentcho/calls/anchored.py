"""What a repair by anchors is asked with: what a caller has encoded anew before, and how alike a message has to be.

KVCOMM (arXiv 2510.12872): of a message that a caller reads, the keys and values in its prompt differ by an offset from
those that are reused; offsets that were seen of messages with near token embeddings are added to those of a new one.
Does not know: embeddings, how an offset is added, which anchors a caller has.
"""

from __future__ import annotations

from typing import NamedTuple

from agentcho.calls.ids import Encoded

THRESHOLD = 0.3
"""As in the paper's experiments."""


class Anchor(NamedTuple):
    """A message that a caller has in two encodings, each an id or the call that makes it: `real`, in the caller's own
    prompt, and `base`, as it is reused."""

    real: int | Encoded
    base: int | Encoded


class Anchored(NamedTuple):
    """For `Repair`: what offsets the `anchors` say, or all tokens encoded anew (KVCOMM, arXiv 2510.12872).

    Anchors are compared whose `real` has no fewer tokens than the message, and was encoded anew in full itself. Each is
    weighed by the softmax of minus its distance: the L2 norm between the input embeddings of the message's tokens and
    of as many first ones of the anchor. Of two anchors or more, if the entropy of their weights is at most `threshold`
    (above 0, at most 1) times its maximum, the logarithm of their number, the message keeps the keys and values of its
    base with the anchors' weighted offsets added, and no token is encoded; else all are, over the parents.
    """

    threshold: float = THRESHOLD
    anchors: tuple[Anchor, ...] = ()

    @property
    def tag(self) -> str:
        """What names it in the keys of stored encodings. It never changes, whatever the class is called; which anchors
        there were is a part of a key by itself."""
        return f"Anchored(threshold={self.threshold!r}, anchors=())"
