"""What a call needs before it can run: the encodings that it lacks, what it attends to, and where that stands.

Does not know: by which policy it is read.
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
    """An encoding that a call lacks: of which message, by which recipe, at which path (baseline). `also` are other
    messages that it is of too, and `tokens` its ids, where they are not those of the one message in its own frame."""

    message: str
    recipe: Recipe
    path: tuple[str, ...]
    call: Prefill | Repair
    also: tuple[str, ...] = ()
    tokens: tuple[int, ...] | None = None

    @property
    def key(self) -> Key:
        """What names it before it is made."""
        return self.recipe, self.path or (self.message,)


Lacking = dict[Key, MissingEncoding]


class PlannedContext(NamedTuple):
    """What one call attends to, and where it stands: see `Prefill`."""

    parents: tuple[Parent, ...]
    offsets: Offsets = None
    new_offset: int | None = None


class ResolvedContext(NamedTuple):
    """What a call attends to: ids, or calls in `missing` (to be submitted before it, in order), and positions.
    `opening`: the ids that open its answer (None: those of the assistant's frame). `apart`: the template could not
    write its prompt as a whole."""

    missing: tuple[MissingEncoding, ...]
    parents: tuple[Parent, ...]
    offsets: Offsets
    new_offset: int | None
    opening: tuple[int, ...] | None = None
    apart: bool = False


class DecodePlan(NamedTuple):
    """The calls that say one message: what is missing, the decode, and its shadow, if it has one. `recipe`: that of the
    decode's own encoding, "audience" where it is what others read, too. `apart`: see `ResolvedContext`; `opened`: see
    `EncodingRecord`."""

    missing: tuple[MissingEncoding, ...]
    calls: tuple[Call, ...]
    recipe: Recipe
    apart: bool = False
    opened: bool = False
