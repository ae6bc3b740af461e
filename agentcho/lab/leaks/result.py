"""What `agentcho bench leaks` found, as a versioned format, `agentcho-bench-leaks/1`.

Does not know: how anything is measured or judged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from agentcho.audit.measurement import Interval
from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.lab.stats import Spread
from agentcho.records.frozen import Frozen

Verdict = Literal["leaks", "no more than the text", "inconclusive"]


class Outcome(Frozen):
    """What one attack made of each tested secret through one way. `right`: how many of its symbols; `logq`: the base-2
    logarithm of the probability that it was given. `entropy` and `chance` are those of an adversary that knows all but
    the encoding; `where`: the layer, question or the like that was chosen. `unavailable`: why nothing was tried."""

    kind: str
    way: str
    attack: str
    right: tuple[int, ...] = ()
    logq: tuple[float, ...] = ()
    entropy: float = 0.0
    chance: float = 0.0
    where: str = ""
    unavailable: str | None = None


class Against(Frozen):
    """An attack on keys and values beside the same attack on what is encoded from the text alone, on the same secrets.
    Differences are of the shares of secrets, and of symbols, that are right; `p_same`: of these being 3 points apart or
    more, the larger of both; `p_more`: of the encoding telling more symbols than the text as often by chance,
    adjusted."""

    secrets: float
    symbols: float
    p_same: float
    p_more: float


class Row(Frozen):
    """One attack through one way on one kind of secret.

    `exact`: how many of `tested` secrets were guessed whole, `share` with its Clopper-Pearson interval; `symbols`: how
    many of `symbols_tested`. p-values are exact and one-sided; `p` is the less of both, adjusted by Holm over all rows
    and both tests. `bits` of `entropy` with a bootstrap interval.
    """

    kind: str
    way: str
    attack: str
    tested: int
    exact: int
    share: Interval
    chance: float
    p_exact: float
    symbols: int
    symbols_tested: int
    symbols_chance: float
    p_symbols: float
    p: float
    entropy: float
    bits: float
    bits_interval: Interval
    where: str
    text: Against | None = None
    verdict: Verdict
    why: str
    unavailable: str | None = None


class Cost(Frozen):
    """Mean seconds to a first token of `workflow`, one figure a repeat."""

    way: str
    workflow: str
    seconds: tuple[float, ...]
    spread: Spread


class Claim(Frozen):
    """What is claimed of one way: of a class of weakness no more than what was shown."""

    way: str
    verdict: Verdict
    sentence: str


class Secrets(Frozen):
    """One kind of secret: how many there are, of which entropy, with how many symbols of how many options; `lengths`:
    how many different lengths Alice's prompt had in tokens, which a position can tell."""

    kind: str
    size: int
    entropy: float
    symbols: int
    options: int
    lengths: int
    sentences: int


class LeaksResult(Frozen):
    """One run. `sentence`: the public words forced, or natural. `n` secrets a kind, of which the last quarter is
    tested. `digest`: of the source files that it ran."""

    format: Literal["agentcho-bench-leaks/1"] = "agentcho-bench-leaks/1"
    model: str
    dtype: str
    device: str
    seed: int
    n: int
    sentence: Literal["forced", "natural"]
    earlier: int
    candidates: int
    templates: int
    command: str
    machine: dict[str, str]
    digest: str
    secrets: tuple[Secrets, ...]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    costs: tuple[Cost, ...]


def read_leaks(file: Path) -> LeaksResult:
    """A result from its file. `RecordNotFound`, `RecordBroken`."""
    if not file.is_file():
        raise RecordNotFound(file.name, file.parent)
    try:
        return LeaksResult.model_validate_json(file.read_bytes())
    except ValidationError:
        raise RecordBroken(f"{file}:1", "is not a result of `agentcho bench leaks` (agentcho-bench-leaks/1)") from None
