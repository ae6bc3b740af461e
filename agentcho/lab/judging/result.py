"""The result of `agentcho bench judge` in a versioned format, `agentcho-bench-judge/1`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from agentcho.audit.measurement import Interval
from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.records.frozen import Frozen

AGREE, ANEW = 0.99, 0.30
"""The targets of a policy: the share of choices equal to the baseline's, and the share of tokens encoded anew."""


class Block(Frozen):
    """Some choices of one task in one mode: the index of the picked candidate in the judge's order, and its margin in
    nats over the next one; the tokens encoded anew in all of them, and those that their judges read of others."""

    picks: tuple[int, ...]
    margins: tuple[float, ...]
    anew: int = 0
    read: int = 0


class Agreement(Frozen):
    """How often the pick is the baseline's; the interval is Clopper-Pearson."""

    choices: int
    agreed: int
    share: float
    span: Interval


class Failing(Frozen):
    """Changed picks in one quarter of all choices, by the baseline's margin: those with a margin of at most `below`
    nats (None: all that are left)."""

    below: float | None
    choices: int
    changed: int


class Row(Frozen):
    """One reading mode on one task. `chosen` is on the half on which the policy is selected, `held` on the other, `all`
    on both; `anew`: the share of what judges read of others that was encoded anew; `failing`: where it fails; `places`:
    for each place of the baseline's pick, the number of choices and of those that changed."""

    task: str
    way: str
    all: Agreement
    chosen: Agreement
    held: Agreement
    anew: float
    failing: tuple[Failing, ...]
    places: tuple[tuple[int, int], ...]


class Target(Frozen):
    """The cheapest `way` that keeps enough choices (None: none does), and whether it meets the targets on held-out
    choices; `misses`: where it does not. `hard`: tasks in which plain reuse keeps at most 80% of choices. `cheap`: of
    the modes that encode few enough tokens, the one that keeps most choices, and what it keeps."""

    way: str | None
    hard: tuple[str, ...]
    reached: bool
    misses: tuple[str, ...]
    cheap: str | None
    cheap_keeps: tuple[str, ...]


class Look(Frozen):
    """One task with a second look: the share of choices that are looked at `again`, the share `kept`, and the share of
    tokens that both looks encode anew; all on choices held out from selecting the margin."""

    task: str
    again: float
    kept: Agreement
    anew: float


class Second(Frozen):
    """A second look, with everything encoded anew, at choices of which the `first` mode is not sure: its margin is
    below `below` nats, the smallest threshold that keeps enough choices of every task (None: none does)."""

    first: str
    below: float | None
    looks: tuple[Look, ...]

    @property
    def reached(self) -> bool:
        """Whether it keeps enough choices for few enough tokens, on every task."""
        enough = all(each.kept.share >= AGREE and each.anew <= ANEW for each in self.looks)
        return self.below is not None and enough

    @property
    def cost(self) -> float:
        """The largest share of tokens that it encodes anew on any task."""
        return max((each.anew for each in self.looks), default=1.0)


class JudgeResult(Frozen):
    """The whole result, with the machine and the command."""

    format: Literal["agentcho-bench-judge/1"] = "agentcho-bench-judge/1"
    model: str
    dtype: str
    device: str
    digest: str
    machine: dict[str, str]
    command: str
    seed: int
    leakage: str
    n: int
    rows: tuple[Row, ...]
    target: Target
    second: tuple[Second, ...] = ()


def read_judge(file: Path) -> JudgeResult:
    """Read a result. `RecordNotFound`: there is no such file; `RecordBroken`: it is not a result."""
    if not file.is_file():
        raise RecordNotFound(
            file.name, file.parent, what="results", remedy="`agentcho bench judge --json FILE` writes one"
        )
    try:
        return JudgeResult.model_validate_json(file.read_bytes())
    except ValidationError:
        raise RecordBroken(f"{file}:1", "is not a result of `agentcho bench judge`") from None
