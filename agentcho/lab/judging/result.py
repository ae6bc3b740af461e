"""What `agentcho bench judge` found, as a versioned format, `agentcho-bench-judge/1`.

Does not know: how choices are made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from agentcho.audit.measurement import Interval
from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.records.frozen import Frozen

AGREE, ANEW = 0.99, 0.30
"""What a policy has to reach: the share of choices that stay as they are in baseline, and of tokens encoded anew."""


class Block(Frozen):
    """Some choices of one task in one way: the place of the candidate that is picked, from 0 in the order before the
    judge, and by how many nats it is likelier than the next one; tokens that were encoded anew in all of them, and that
    their judges read of others."""

    picks: tuple[int, ...]
    margins: tuple[float, ...]
    anew: int = 0
    read: int = 0


class Agreement(Frozen):
    """How often the same candidate is picked as in baseline mode; the interval is Clopper and Pearson's."""

    choices: int
    agreed: int
    share: float
    span: Interval


class Failing(Frozen):
    """Choices whose pick changed, by how sure the baseline was: those with a margin of at most `below` nats (None: all
    that are left), a quarter of all choices each; and `places`: how many that were picked at each place are not any
    more."""

    below: float | None
    choices: int
    changed: int


class Row(Frozen):
    """One way of reading on one task. `chosen` is on the half by which the policy was chosen, `held` on the other,
    `all` on both; `anew`: the share of what judges read of others that was encoded anew. `failing`: where it fails."""

    task: str
    way: str
    all: Agreement
    chosen: Agreement
    held: Agreement
    anew: float
    failing: tuple[Failing, ...]
    places: tuple[tuple[int, int], ...]


class Target(Frozen):
    """The cheapest `way` that keeps enough choices (None: none does), and whether it reaches all that it has to on
    choices that it was not chosen by; `misses`: where not. `hard`: tasks of which plain reuse keeps at most 80% of
    choices. `cheap`: of the ways that encode few enough tokens the one that keeps most choices, and what it keeps."""

    way: str | None
    hard: tuple[str, ...]
    reached: bool
    misses: tuple[str, ...]
    cheap: str | None
    cheap_keeps: tuple[str, ...]


class Look(Frozen):
    """One task with a second look: the share of choices that are looked at `again`, what is `kept`, and the share of
    tokens that both looks encode anew; all of choices that the margin was not chosen by."""

    task: str
    again: float
    kept: Agreement
    anew: float


class Second(Frozen):
    """A second look, with everything encoded anew, at choices of which the `first` way is not sure: it prefers its pick
    by less than `below` nats, the least margin that keeps enough choices of every task (None: none does)."""

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
    """The whole: where it was measured, and by which command."""

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
    """`RecordNotFound`: there is no such file; `RecordBroken`: it holds something else."""
    if not file.is_file():
        raise RecordNotFound(file.name, file.parent)
    try:
        return JudgeResult.model_validate_json(file.read_bytes())
    except ValidationError:
        raise RecordBroken(f"{file}:1", "is not a result of `agentcho bench judge`") from None
