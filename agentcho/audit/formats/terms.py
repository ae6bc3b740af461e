"""The glossary of a report: each term with a self-contained definition of one or two sentences."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TERMS: Mapping[str, str] = MappingProxyType(
    {
        "encoding": "The keys and values that a model computed of one message, in one context. It carries that "
        "context: whoever attends to it can be influenced by all that it was made over.",
        "cone": "Of an encoding: every message whose tokens could have influenced it, that is its own message and the "
        "cones of all encodings that it attended to.",
        "reading": "One message, read by one call: an agent, while it spoke, attended to one encoding.",
        "reader": "The agent that attends to an encoding while it speaks.",
        "owner": "The agent whose private message it is that a reader may not read.",
        "carrier": "The agent whose encoded message brought the secret to the reader.",
        "hop": "A step from one encoding to another that it was made over; a way of 0 hops is a direct leak.",
        "direct": "A direct leak: the reader attends to a message that is not for it.",
        "transitive": "A transitive leak: the reader attends to a message that is for it, in an encoding whose cone "
        "holds one that is not.",
        "positional": "A positional leak: no words reach the reader, but a position that it can feel depends on what "
        "is not for it, as on how long that is.",
        "unlabelled": "Nobody can say what the encoding was made from. It never counts as clean.",
        "clean": "All that the reader attended to, with all that stands behind it, was for it.",
        "release": "An author speaks before a wider audience after reading what that audience may not read. Its words "
        "are its own act: they are listed, and count as no leak.",
        "typed release": "A release whose words could be no more than one of so many choices or values; what it can "
        "tell is bounded by log2 of how many.",
        "blockage": "The opposite of a leak: a message stands in a prompt, and a later one was encoded without it.",
        "suppressed": "Somebody answers for this finding, for a reason and until a date. It is still there.",
        "control": "A check that the audit could have seen something, had it been there.",
        "fingerprint": "Names a finding through edits of the code and from run to run; suppressions name it.",
    }
)
