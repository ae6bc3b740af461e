"""The results of `agentcho bench fidelity` and `agentcho bench decisions` in versioned formats."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError

from agentcho.audit.measurement import Interval
from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.records.frozen import Frozen

F = TypeVar("F", bound=Frozen)
MOST = 700.0
"""Log-odds beyond which a probability is 0."""


class ConversationScore(Frozen):
    """One conversation read in one column: sums over its tokens.

    Attributes:
        subject: Name of the trace file, without its ending.
        rows: Number of tokens: those of all sampled texts, and the first closing token of each.
        kl: KL(baseline || column), in nats.
        same: Number of tokens at which the likeliest token is the baseline's.
        nats: Negative log-likelihood of the recorded tokens, in nats.
        encoded: Tokens fed to the model in all.
        partitions: For the baseline, the tokens that a cache in parts would encode, by kind of partition.
        left_out: Why the conversation could not be read in this column. None: it could.
    """

    subject: str
    id: str
    column: str
    rows: int = 0
    kl: float = 0.0
    same: int = 0
    nats: float = 0.0
    encoded: int = 0
    partitions: dict[str, int] = Field(default_factory=dict)
    left_out: str | None = None


class Estimate(Frozen):
    """A mean and its 95% bootstrap interval; whole conversations are resampled."""

    value: float
    span: Interval


class Row(Frozen):
    """One column on one trace file, in means per token.

    Attributes:
        kl: KL(baseline || column), in nats.
        same: Share of tokens at which the likeliest token is the baseline's.
        nats: Negative log-likelihood of the recorded tokens, in nats.
        more: How much larger that is than the baseline's.
        encoded: Tokens fed to the model in all conversations.
        ratio: Median over conversations of the tokens fed, divided by the baseline's.
        left_out: Number of conversations that could not be read in this column.
    """

    subject: str
    column: str
    games: int
    rows: int
    kl: Estimate
    same: Estimate
    nats: Estimate
    more: Estimate
    encoded: int
    ratio: float
    left_out: int = 0


class NearerBaseline(Frozen):
    """By how many nats per token `second` is nearer to the baseline than `first`, and in how many conversations
    (`share` of `games`) it is."""

    subject: str
    first: str
    second: str
    nearer: Estimate
    share: int
    games: int


class Measured(Frozen):
    """The model, the machine and the command of a measurement."""

    model: str
    dtype: str
    device: str
    machine: dict[str, str]
    command: str
    seed: int


class FidelityResult(Measured):
    """The whole result of `agentcho bench fidelity`, with the sums of every conversation."""

    format: Literal["agentcho-bench-fidelity/1"] = "agentcho-bench-fidelity/1"
    rows: tuple[Row, ...]
    steps: tuple[NearerBaseline, ...]
    reads: tuple[ConversationScore, ...]


class Answer(Frozen):
    """One reader's answer to one question in one conversation, read in one way.

    Attributes:
        told: Strategy that the owner was given in the private messages that are used here.
        own: Whether these private messages are the conversation's own, or those of another one.
        odds: Log-odds of the first choice against all others, in nats; each choice is scored as a whole text.
        mass: Probability that the model gives any of the choices.
        likeliest: Place of the likeliest choice among all choices. None in results of earlier versions.
    """

    subject: str
    id: str
    question: str
    way: str
    told: str
    own: bool
    odds: float
    mass: float
    likeliest: int | None = None

    @property
    def p(self) -> float:
        """The probability of the first choice among all choices."""
        return 1 / (1 + exp(-self.odds)) if self.odds > -MOST else 0.0


class Effect(Frozen):
    """The first choice in one way of reading, compared with the baseline, where the owner had one strategy.

    Attributes:
        mean: Probability of the first choice.
        change: That probability minus the baseline's.
        odds: Log-odds minus the baseline's, in nats.
        turned: Number of conversations in which another choice becomes the likelier one.
    """

    subject: str
    question: str
    told: str
    way: str
    games: int
    mean: Estimate
    change: Estimate
    odds: Estimate
    turned: int


class Exchange(Frozen):
    """The owner's private messages exchanged for those of another strategy, with all public words unchanged.

    Attributes:
        first, second: The two strategies that are compared.
        change: Probability of the first choice under `first` minus that under `second`.
        odds: The same difference of log-odds, in nats.
        size: Mean absolute value of that difference.
    """

    subject: str
    question: str
    way: str
    first: str
    second: str
    games: int
    change: Estimate
    odds: Estimate
    size: Estimate


class DecisionsResult(Measured):
    """The whole result of `agentcho bench decisions`, with every answer. `choice` is the one that probabilities refer
    to."""

    format: Literal["agentcho-bench-decisions/1"] = "agentcho-bench-decisions/1"
    reader: str
    owner: str
    choice: str
    effects: tuple[Effect, ...]
    moved: tuple[Exchange, ...]
    answers: tuple[Answer, ...]
    left_out: dict[str, int]


def read_fidelity(file: Path) -> FidelityResult:
    """Read a result from its file. `RecordNotFound`, `RecordBroken`."""
    return _from(file, FidelityResult, "agentcho bench fidelity")


def read_decisions(file: Path) -> DecisionsResult:
    """Read a result from its file. `RecordNotFound`, `RecordBroken`."""
    return _from(file, DecisionsResult, "agentcho bench decisions")


def _from(file: Path, what: type[F], command: str) -> F:
    if not file.is_file():
        raise RecordNotFound(file.name, file.parent, what="results", remedy=f"`{command} --json FILE` writes one")
    try:
        return what.model_validate_json(file.read_bytes())
    except ValidationError:
        raise RecordBroken(f"{file}:1", f"is not a result of `{command}` of this version") from None
