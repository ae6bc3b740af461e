"""What `agentcho bench fidelity` and `agentcho bench decisions` found, as versioned formats.

Does not know: how anything is measured or shown.
"""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from agentcho.audit.measurement import Interval
from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.records.frozen import Frozen

F = TypeVar("F", bound=Frozen)
MOST = 700.0
"""Log-odds beyond which a probability is 0."""


class Read(Frozen):
    """One conversation of one set in one column, as sums over its rows: nats of KL(baseline || column), rows with the
    baseline's likeliest token, nats of what was said. `encoded`: tokens fed in all. `left_out`: why it could not be
    read so."""

    subject: str
    id: str
    column: str
    rows: int = 0
    kl: float = 0.0
    same: int = 0
    nats: float = 0.0
    encoded: int = 0
    left_out: str | None = None


class Share(Frozen):
    """A mean over rows or games, and its interval: the bootstrap by conversation."""

    value: float
    span: Interval


class Row(Frozen):
    """One column on one set: a row's KL(baseline || column), the share of rows with the same likeliest token, nats a
    token of what was said (`nats`) and by how many more than the baseline's (`more`). `encoded` tokens in all
    conversations, and the median of each one's ratio to the baseline's. `left_out`: conversations that could not be
    read so."""

    subject: str
    column: str
    games: int
    rows: int
    kl: Share
    same: Share
    nats: Share
    more: Share
    encoded: int
    ratio: float
    left_out: int = 0


class Step(Frozen):
    """By how many nats a row `second` is nearer the baseline than `first`, and in how many of `games` conversations it
    is."""

    subject: str
    first: str
    second: str
    nearer: Share
    share: int
    games: int


class Measured(Frozen):
    """Where and by which command something was measured."""

    model: str
    dtype: str
    device: str
    machine: dict[str, str]
    command: str
    seed: int


class FidelityResult(Measured):
    """All of `agentcho bench fidelity`, with every conversation's own sums."""

    format: Literal["agentcho-bench-fidelity/1"] = "agentcho-bench-fidelity/1"
    rows: tuple[Row, ...]
    steps: tuple[Step, ...]
    reads: tuple[Read, ...]


class Answer(Frozen):
    """One reader's answer in one conversation, read one way.

    `told`: the kind of what the owner hides in it; `own`: whether these are its own words, or those of another
    conversation. `odds`: the log-odds of the first choice against all others, in nats, each said whole; `mass`: the
    probability of saying any of them."""

    subject: str
    id: str
    question: str
    way: str
    told: str
    own: bool
    odds: float
    mass: float

    @property
    def p(self) -> float:
        """The probability of the first choice among all choices."""
        return 1 / (1 + exp(-self.odds)) if self.odds > -MOST else 0.0


class Effect(Frozen):
    """The first choice in one way, by what the owner was really told, beside the baseline: its probability (`mean`),
    by how much that is changed, and by how much its log-odds are, in nats. `turned`: in how many conversations another
    choice is the likelier one."""

    subject: str
    question: str
    told: str
    way: str
    games: int
    mean: Share
    change: Share
    odds: Share
    turned: int


class Moved(Frozen):
    """The same words in the open, with what the owner hides exchanged: by how much the first choice's probability, and
    its log-odds in nats, are higher where the owner was told `first` than where it was told `second`; `size`: the mean
    of the log-odds' difference without its sign."""

    subject: str
    question: str
    way: str
    first: str
    second: str
    games: int
    change: Share
    odds: Share
    size: Share


class DecisionsResult(Measured):
    """All of `agentcho bench decisions`, with every answer. `choice` is the one whose probabilities these are."""

    format: Literal["agentcho-bench-decisions/1"] = "agentcho-bench-decisions/1"
    reader: str
    owner: str
    choice: str
    effects: tuple[Effect, ...]
    moved: tuple[Moved, ...]
    answers: tuple[Answer, ...]
    left_out: dict[str, int]


def read_fidelity(file: Path) -> FidelityResult:
    """A result from its file. `RecordNotFound`, `RecordBroken`."""
    return _from(file, FidelityResult, "agentcho bench fidelity")


def read_decisions(file: Path) -> DecisionsResult:
    """A result from its file. `RecordNotFound`, `RecordBroken`."""
    return _from(file, DecisionsResult, "agentcho bench decisions")


def _from(file: Path, what: type[F], command: str) -> F:
    if not file.is_file():
        raise RecordNotFound(file.name, file.parent)
    try:
        return what.model_validate_json(file.read_bytes())
    except ValidationError:
        raise RecordBroken(f"{file}:1", f"is no result of `{command}` of this version") from None
