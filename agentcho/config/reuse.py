"""Through which encodings messages are read. Does not know: models, runs, the command line."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from agentcho.errors import ArgumentError
from agentcho.reuse.full import Full
from agentcho.reuse.method import Selection, Weighing
from agentcho.reuse.registry import parsed_repair

Mode = Literal["baseline", "choreographed"]
Leakage = Literal["audit", "enforce", "deny"]
Shadowing = Literal["auto", "always", "never"]
RepairBy = Selection | str
"""Which tokens are encoded anew, or a text that names it, such as "full"."""
JUDGE = Full()
"""What `reuse="judge"` of a view encodes anew of each message of others that the call reads: all of it. Nothing less
that was measured keeps the choices that judges make (`agentcho bench judge`)."""


class ReusePolicy(NamedTuple):
    """Through which encodings calls read messages: see `Resolver`. `in_place`: what is reused stays at the positions at
    which it was made (no repositioning; the paper's footnote 5); places that a view asks for are passed over. `repair`:
    which tokens of what is reused each caller encodes anew, in its own prompt. `speculate`: tokens are guessed from
    what an author may read, where that pays and the profile is not deterministic; what is said stays the same. `ape`:
    how what was encoded side by side is weighed, in place. `judge`: which tokens of others' messages a caller encodes
    anew whose view has `reuse="judge"`, instead of `repair`, and not in place."""

    mode: Mode = "choreographed"
    leakage: Leakage = "enforce"
    shadow: Shadowing = "auto"
    deterministic: bool = False
    in_place: bool = False
    repair: RepairBy | None = None
    speculate: bool = False
    ape: Weighing | None = None
    judge: RepairBy = JUDGE

    @property
    def repairs(self) -> Selection | None:
        """`repair` as a method. Raises ValueError where it is a text that names none."""
        return parsed_repair(self.repair) if isinstance(self.repair, str) else self.repair

    @property
    def judges(self) -> Selection:
        """`judge` as a method. Raises ValueError where it is a text that names none."""
        return parsed_repair(self.judge) if isinstance(self.judge, str) else self.judge


class ReuseOptions(TypedDict, total=False):
    """The fields of a `ReusePolicy`, by name."""

    mode: Mode
    leakage: Leakage
    shadow: Shadowing
    deterministic: bool
    in_place: bool
    repair: RepairBy | None
    speculate: bool
    ape: Weighing | None
    judge: RepairBy


DEFAULT_POLICY = ReusePolicy()
"""How messages are read where nothing is said of it."""


def by_position(reuse: ReusePolicy | Mode, others: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The fields of a policy that were given one after the other in its place, in the order of `names`, with a
    `DeprecationWarning` for the caller of the function that asks. Empty: the policy was given whole. `ArgumentError`:
    something stands after a whole policy."""
    if not isinstance(reuse, ReusePolicy):
        told = "give a ReusePolicy, or its fields by name; fields by position are removed in 0.6"
        warnings.warn(told, DeprecationWarning, stacklevel=3)
        return dict(zip(names, (reuse, *others), strict=False))
    if others:
        raise ArgumentError("give the arguments after a ReusePolicy by name")
    return {}
