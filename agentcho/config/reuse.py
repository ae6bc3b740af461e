"""The reuse policy: through which encodings messages are read.

Runs, replays and audits share it. Independent of models, runs and the command line.
"""

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
"""A method that selects the tokens to compute again, or a text that names one, such as "full"."""
JUDGE = Full()
"""What `reuse="judge"` of a view computes again of each message of others that the call reads: all of it. No smaller
selection that was measured preserves the choices of judges (`agentcho bench judge`)."""


class ReusePolicy(NamedTuple):
    """Through which encodings calls read messages: see `Resolver`.

    Attributes:
        mode: "choreographed" reuses encodings of messages, "baseline" encodes each prompt separately.
        leakage: How choreographed mode handles leaks: "enforce" prevents them, "audit" records them, "deny" refuses the
            call.
        shadow: Whether to encode a message for its audience while its author is still speaking: "auto", "always" or
            "never".
        deterministic: Whether every result is independent, bit for bit, of what its reader may not read.
        in_place: Whether reused encodings stay at the positions where they were made (no repositioning; the paper's
            footnote 5). Places that a view asks for are then ignored.
        repair: Which tokens of reused encodings each caller computes again, in its own prompt. None for none.
        speculate: Whether to guess tokens from what an author may read, where that pays and the profile is not
            deterministic. Generated text stays the same.
        ape: How to weigh encodings that were made side by side, in place. None leaves them alone.
        judge: Which tokens of others' messages a caller computes again if its view has `reuse="judge"`, instead of
            `repair`, and not in place.
    """

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
        """`repair` as a method. Raises ValueError for a text that names none."""
        return parsed_repair(self.repair) if isinstance(self.repair, str) else self.repair

    @property
    def judges(self) -> Selection:
        """`judge` as a method. Raises ValueError for a text that names none."""
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
"""How messages are read by default."""


def by_position(reuse: ReusePolicy | Mode, others: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a policy that were given by position in its place, in the order of `names`.

    Warns the caller's caller with a `DeprecationWarning`. Empty if the policy was given whole. Raises `ArgumentError`
    if anything follows a whole policy.
    """
    if not isinstance(reuse, ReusePolicy):
        told = "give a ReusePolicy, or its fields by name; fields by position are removed in 0.6"
        warnings.warn(told, DeprecationWarning, stacklevel=3)
        return dict(zip(names, (reuse, *others), strict=False))
    if others:
        raise ArgumentError("give the arguments after a ReusePolicy by name")
    return {}
