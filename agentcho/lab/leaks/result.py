"""The result of `agentcho bench leaks` in a versioned format, `agentcho-bench-leaks/1`."""

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
    """The outcome of one attack for each tested secret in one reading mode. `right`: the number of correct symbols;
    `logq`: the base-2 logarithm of the probability given to the secret. `entropy` and `chance` are those of an
    adversary that knows all but the encoding; `where`: the selected layer, question or the like.
    `symbols_chance`: that of one symbol, if all were guessed at once; None: each was guessed by itself.
    `unavailable`: why nothing was tried."""

    kind: str
    way: str
    attack: str
    right: tuple[int, ...] = ()
    logq: tuple[float, ...] = ()
    entropy: float = 0.0
    chance: float = 0.0
    where: str = ""
    symbols_chance: float | None = None
    unavailable: str | None = None


class Against(Frozen):
    """An attack on keys and values compared with the same attack on an encoding made from the text alone, on the same
    secrets. Differences are of the shares of correct secrets, and of correct symbols; `p_same`: the larger p of these
    being 3 points apart or more; `p_more`: the adjusted p of the encoding giving more symbols than the text by
    chance."""

    secrets: float
    symbols: float
    p_same: float
    p_more: float


class Row(Frozen):
    """One attack in one reading mode on one kind of secret.

    `exact`: how many of `tested` secrets were guessed whole, `share` with its Clopper-Pearson interval; `symbols`: how
    many of `symbols_tested`. p-values are exact and one-sided; `p` is the smaller of both, adjusted by Holm over all
    rows and both tests. If symbols are not guessed independently, only whole secrets are tested, and `p_symbols` is 1.
    `bits` of `entropy` with a bootstrap interval.
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
    """Mean seconds to the first token of `workflow`, one figure per repeat."""

    way: str
    workflow: str
    seconds: tuple[float, ...]
    spread: Spread


class Claim(Frozen):
    """The claim on one reading mode: no more than what was shown."""

    way: str
    verdict: Verdict
    sentence: str


class Secrets(Frozen):
    """One kind of secret: their number and entropy, the number of symbols and of options of each; `lengths`: the number
    of different lengths of Alice's prompt in tokens, which positions can reveal."""

    kind: str
    size: int
    entropy: float
    symbols: int
    options: int
    lengths: int
    sentences: int


class LeaksResult(Frozen):
    """One run. `sentence`: whether the public words were forced or natural. `n`: secrets per kind, of which the last
    quarter is tested. `digest`: of the source files that it ran."""

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
    """Read a result from its file. `RecordNotFound`, `RecordBroken`."""
    if not file.is_file():
        raise RecordNotFound(
            file.name, file.parent, what="results", remedy="`agentcho bench leaks --json FILE` writes one"
        )
    try:
        return LeaksResult.model_validate_json(file.read_bytes())
    except ValidationError:
        raise RecordBroken(f"{file}:1", "is not a result of `agentcho bench leaks` (agentcho-bench-leaks/1)") from None
