"""Plans of calls: the encodings that a call lacks, those that it attends to, and their positions.

Independent of reuse policies.
"""

from __future__ import annotations

from typing import NamedTuple

from agentcho.protocol.call import Call, EncodingId, Offsets, Prefill, Repair
from agentcho.provenance.labels import Recipe

Parent = EncodingId | Prefill | Repair
Key = tuple[Recipe, tuple[str, ...]]
"""An encoding before it is made: its recipe and its message, or a path of messages (baseline), or its caller and a
path of messages with their positions (repaired)."""


class MissingEncoding(NamedTuple):
    """An encoding that a call lacks: its message, its recipe, and its path (baseline and repaired). `also` are further
    messages that it belongs to, and `tokens` its ids, if they are not those of the one message in its own frame."""

    message: str
    recipe: Recipe
    path: tuple[str, ...]
    call: Prefill | Repair
    also: tuple[str, ...] = ()
    tokens: tuple[int, ...] | None = None

    @property
    def key(self) -> Key:
        """Its key before it is made."""
        return self.recipe, self.path or (self.message,)


Lacking = dict[Key, MissingEncoding]


class PlannedContext(NamedTuple):
    """The parents of a call, and the positions: see `Prefill`."""

    parents: tuple[Parent, ...]
    offsets: Offsets = None
    new_offset: int | None = None


class ResolvedContext(NamedTuple):
    """The resolved context of a call. `parents` are ids, or calls in `missing`, to be submitted before it, in order.
    `opening`: the ids that open its answer (None: those of the assistant's frame). `apart`: the template could not
    write its prompt as a whole."""

    missing: tuple[MissingEncoding, ...]
    parents: tuple[Parent, ...]
    offsets: Offsets
    new_offset: int | None
    opening: tuple[int, ...] | None = None
    apart: bool = False


class DecodePlan(NamedTuple):
    """The calls that generate one message: the missing encodings, the decode, and its shadow, if it has one. `recipe`:
    that of the decode's own encoding, "audience" if others read it too. `apart`: see `ResolvedContext`; `opened`: see
    `EncodingRecord`."""

    missing: tuple[MissingEncoding, ...]
    calls: tuple[Call, ...]
    recipe: Recipe
    apart: bool = False
    opened: bool = False
