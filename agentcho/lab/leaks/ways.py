"""Ways in which Bob reads Alice's public sentence, by their names: what an attack gets to see.

A way is a reuse policy: whatever repair policies learn to name is a way here too, as `reuse+REPAIR`. Does not know: how
anything is encoded, attacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentcho.config import ReusePolicy
from agentcho.errors import ConfigError
from agentcho.reuse.in_place import InPlace
from agentcho.reuse.method import ByAnchors
from agentcho.reuse.registry import attacked_repairs, parsed_repair

AUTHOR = "author"
REUSE = "reuse"
IN_PLACE = InPlace.name
AUDIENCE = "audience"
TEXT = "text"
_REUSE = ReusePolicy("choreographed", "audit", "never", deterministic=True)
PLAIN = {
    AUTHOR: _REUSE,
    REUSE: _REUSE,
    IN_PLACE: _REUSE._replace(in_place=True),
    AUDIENCE: _REUSE._replace(leakage="enforce"),
    TEXT: _REUSE._replace(mode="baseline"),
}
MEANING = {
    AUTHOR: "the author's encoding as it is stored",
    REUSE: "the author's encoding with its keys turned to the reader's positions, and nothing else: the paper's way",
    IN_PLACE: "the author's encoding where everything stays at the positions at which it was made (no repositioning)",
    AUDIENCE: "the encoding for the audience, made from what it may read (enforce)",
    TEXT: "what an adversary with the text alone encodes itself",
}
REPAIRED = tuple(f"{REUSE}+{repair}" for repair in attacked_repairs())
USUAL = (AUTHOR, REUSE, *REPAIRED, AUDIENCE, TEXT)
"""What is measured where no way is named."""


class Way(NamedTuple):
    """One way of reading. What is made by its policy is seen at Bob's positions, if it is `turned` there."""

    name: str
    policy: ReusePolicy
    turned: bool = True

    @property
    def learns(self) -> bool:
        """Whether what was read before decides how this is read: without any, all is encoded anew."""
        return isinstance(self.policy.repairs, ByAnchors)

    @property
    def meaning(self) -> str:
        """What it is, in words."""
        plain, _, repair = self.name.partition("+")
        return f"{MEANING[plain]}, repaired by {repair}" if repair else MEANING[plain]


def way(name: str) -> Way:
    """A way by its name; `reuse+top-k:0.15` and `audience+first-k:16` repair. `ConfigError`: there is none."""
    plain, repairs, repair = name.partition("+")
    if plain not in PLAIN or (repairs and plain not in (REUSE, AUDIENCE)):
        raise ConfigError(
            f"unknown way {name!r}; give one of {', '.join(PLAIN)}, or {REUSE}+REPAIR, such as {REPAIRED[0]}"
        )
    try:
        policy = PLAIN[plain]._replace(repair=parsed_repair(repair) if repairs else None)
    except ValueError as error:
        raise ConfigError(f"unknown way {name!r}: {error}") from None
    return Way(name, policy, turned=plain not in (AUTHOR, IN_PLACE))


def usual(earlier: int) -> tuple[str, ...]:
    """What is measured where no way is named, after so many earlier sentences."""
    return tuple(name for name in USUAL if earlier or not way(name).learns)


def ways(names: Sequence[str]) -> list[Way]:
    """Ways by their names, each once."""
    return [way(name) for name in dict.fromkeys(names)]
