"""The result of a benchmark in a versioned format, `agentcho-bench/1`: one JSON file per run of `agentcho bench`.

Figures are kept as measured, one per repeat, so that ratios can be taken within a repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from agentcho.config import QuantizationOptions
from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.lab.stats import FEW, Spread, spread
from agentcho.lab.yardstick import Words, near
from agentcho.records.frozen import Frozen

Kind = Literal[
    "workflows",
    "step",
    "overhead",
    "growth",
    "stall",
    "roofline",
    "cost",
    "serve",
    "talk",
    "stream",
    "room",
    "peers",
    "vllm",
]

Sweep = Literal["branches", "agents", "readers"]


class Figures(Frozen):
    """The figures of one arm on one subject: by quantity, one value per repeat. `unavailable`: why there are none."""

    subject: str
    arm: str
    values: dict[str, tuple[float, ...]]
    unavailable: str | None = None

    @classmethod
    def of(cls, subject: str, arm: str, taken: Sequence[Mapping[str, float]], why: str | None = None) -> Figures:
        """Build figures from the values of each repeat; `why`: why there are none."""
        values = {what: tuple(one[what] for one in taken) for what in (taken[0] if taken else ())}
        return cls(subject=subject, arm=arm, values=values, unavailable=why)


class Target(Frozen):
    """A target beside the reached figure. `bound` is the minimum that meets it, or with `most` the maximum. `words`:
    whether the reading mode that it measures keeps the baseline's words; None: the target is not about a reading
    mode."""

    what: str
    bound: float
    most: bool = False
    reached: Spread
    note: str = ""
    words: Words | None = None

    @property
    def met(self) -> bool:
        """Whether the median meets the target, whatever the words."""
        return self.reached.middle <= self.bound if self.most else self.reached.middle >= self.bound

    @property
    def verdict(self) -> str:
        """ "met", or by how much of the bound it was missed. A mode that is fast but says something else has not met
        it."""
        short = abs(self.reached.middle / self.bound - 1)
        if not self.met:
            return f"missed by {f'{short:.0%}' if short >= 0.01 else 'less than 1%'}"
        return {"changed": "fast, but changed", "unknown": "fast; words not judged"}.get(self.words or "", "met")


class Measured(Frozen):
    """The kind of benchmark and the model."""

    format: Literal["agentcho-bench/1"] = "agentcho-bench/1"
    bench: Kind
    model: str
    dtype: str


class Result(QuantizationOptions, Measured):
    """One run. `scale` is relative to the texts' usual lengths; `stepwise`: whether texts were fed token by token
    (False: only first tokens were timed); `sweep`: what was swept, if anything."""

    device: str
    seed: int
    repeats: int
    scale: float = 1.0
    stepwise: bool = True
    sweep: Sweep | None = None
    command: str
    machine: dict[str, str]
    figures: tuple[Figures, ...]
    targets: tuple[Target, ...] = ()

    @property
    def numbers(self) -> str:
        """The number formats of the model: its dtype, and the bits of its linear layers and of its KV cache, if
        quantized."""
        return self.numbers_of(self.dtype)

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects in the order in which they were measured."""
        return tuple(dict.fromkeys(each.subject for each in self.figures))

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms in the order in which they were named."""
        return tuple(dict.fromkeys(each.arm for each in self.figures))

    def values(self, subject: str, arm: str, what: str) -> tuple[float, ...]:
        """One value per repeat; none if the arm was not available."""
        found = (f.values.get(what, ()) for f in self.figures if f.subject == subject and f.arm == arm)
        return next(found, ())

    def has(self, subject: str, *arms: str) -> bool:
        """Whether all these arms were measured on the subject."""
        return all(any(f.subject == subject and f.arm == arm and f.values for f in self.figures) for arm in arms)

    def spread(self, subject: str, arm: str, what: str) -> Spread:
        """Median and interval over the repeats."""
        return spread(self.values(subject, arm, what), self.seed)

    def ratio(self, subjects: Iterable[str], arm: str, to: str, what: str) -> Spread:
        """The ratio of one arm's sum over subjects to another's, taken within each repeat."""
        named = list(subjects)
        above, below = self._sums(named, arm, what), self._sums(named, to, what)
        return spread([a / b for a, b in zip(above, below, strict=True)], self.seed)

    def _sums(self, subjects: list[str], arm: str, what: str) -> list[float]:
        columns = (self.values(subject, arm, what) for subject in subjects)
        return [sum(repeat) for repeat in zip(*columns, strict=True)]

    def words(self, subject: str, arm: str) -> Words:
        """Whether an arm keeps the baseline's words, judged by the divergence alone: nothing is scored here."""
        found = self.values(subject, arm, "kl")
        return near(found[0] if found else None)

    def verdict(self, target: Target) -> str:
        """The verdict on a target of this result; with fewer than `FEW` repeats nothing is called met."""
        few = target.verdict == "met" and self.repeats < FEW
        return (
            f"reached, but with {self.repeats} repeat{'' if self.repeats == 1 else 's'} instead of {FEW}"
            if few
            else target.verdict
        )

    def why_not(self, subject: str, arm: str) -> str:
        """Why an arm has no figures."""
        found = (f.unavailable for f in self.figures if f.subject == subject and f.arm == arm)
        return f"not available here: {next(found, 'not measured')}"

    def chosen(self, *arms: str) -> list[str]:
        """The subjects that have all these arms."""
        return [subject for subject in self.subjects if self.has(subject, *arms)]


def read_result(file: Path) -> Result:
    """Read a result from its file. `RecordNotFound`, `RecordBroken`."""
    if not file.is_file():
        raise RecordNotFound(
            file.name, file.parent, what="results", remedy="`agentcho bench ... --json FILE` writes one"
        )
    try:
        return Result.model_validate_json(file.read_bytes())
    except ValidationError:
        raise RecordBroken(f"{file}:1", "is not a result of `agentcho bench` (agentcho-bench/1)") from None
