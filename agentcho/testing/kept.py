"""One call of the fake engine, and where its context stands. Does not know: steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentcho.errors import BadOffsets, ContextOverflow
from agentcho.request import Call, Encoded, EncodingId, Receipt, Stopped


@dataclass(eq=False)
class Kept:
    """One id: its words and receipt, who holds it, and for a decode what it still has to say."""

    id: EncodingId
    call: Call
    receipt: Receipt
    parents: list[Kept]
    words: Encoded
    length: int
    holders: int = 1
    done: bool = False
    left: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    stopped: Stopped | None = None
    fed: int = 0


def places(call: Call, parents: Sequence[Kept], own: int, bos: bool, context: int) -> tuple[list[int], int]:
    """The positions of all parents and of the call's `own` tokens, or what is wrong with them."""
    asked = [None] * len(parents) if call.offsets is None else list(call.offsets)
    if len(asked) != len(parents):
        raise BadOffsets(f"{len(asked)} offsets for {len(parents)} parents")
    end, offsets, reach = int(bos), list[int](), 0
    for parent, offset in zip(parents, asked, strict=True):
        offsets.append(end if offset is None else _position(offset))
        end = offsets[-1] + parent.length
        reach = max(reach, end)
    start = end if call.new_offset is None else _position(call.new_offset)
    if max(reach, start + own) > context:
        raise ContextOverflow(max(reach, start + own), context)
    return offsets, start


def _position(offset: object) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise BadOffsets(f"offset {offset!r} is no position")
    return offset
