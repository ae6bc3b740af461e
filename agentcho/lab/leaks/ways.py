"""The modes in which Bob reads Alice's public sentence, by name: what an attack gets to see.

A mode is a reuse policy: every repair that policies support is available here as `reuse+REPAIR`.
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
    REUSE: "the author's encoding with its keys turned to the reader's positions (the paper's method)",
    IN_PLACE: "the author's encoding where everything stays at the positions at which it was made (no repositioning)",
    AUDIENCE: "the encoding for the audience, made from what it may read (enforce)",
    TEXT: "what an adversary with the text alone encodes itself",
}
REPAIRED = tuple(f"{REUSE}+{repair}" for repair in attacked_repairs())
USUAL = (AUTHOR, REUSE, *REPAIRED, AUDIENCE, TEXT)
"""The modes that are measured if none is named."""


class Way(NamedTuple):
    """One reading mode. If `turned`, the encodings made by its policy are repositioned to Bob's positions."""

    name: str
    policy: ReusePolicy
    turned: bool = True

    @property
    def learns(self) -> bool:
        """Whether it learns from earlier reads: without any, it encodes everything anew."""
        return isinstance(self.policy.repairs, ByAnchors)

    @property
    def meaning(self) -> str:
        """A description in words."""
        plain, _, repair = self.name.partition("+")
        return f"{MEANING[plain]}, repaired by {repair}" if repair else MEANING[plain]


def way(name: str) -> Way:
    """A mode by its name; `reuse+top-k:0.15` and `audience+first-k:16` repair. `ConfigError`: unknown mode."""
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
    """The modes that are measured if none is named, by the number of earlier sentences."""
    return tuple(name for name in USUAL if earlier or not way(name).learns)


def ways(names: Sequence[str]) -> list[Way]:
    """Modes by name, each once."""
    return [way(name) for name in dict.fromkeys(names)]
