"""What was found of recorded office workflows, as a versioned format. Words of messages are never in it.

Does not know: how anything is measured.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentcho.audit.report import Verdict
from agentcho.records.frozen import Frozen

Way = Literal["baseline", "audit", "enforce"]
"""How messages are read: in the caller's own prompt, through what their authors had encoded, or through what their
audiences may know."""
WAYS: tuple[Way, ...] = ("baseline", "audit", "enforce")


class Distance(Frozen):
    """How far next-token distributions are from others over the same forced words: the mean Kullback-Leibler divergence
    in nats a token over `rows` rows, the largest one, and in how many rows the likeliest token is the same."""

    rows: int
    kl: float
    kl_max: float
    likeliest: int


class Swap(Frozen):
    """The vault of `owner` was swapped, and `reader`, who does not read it, spoke the same words as before. `bits`: of
    all keys and values that its calls attend to; `differing`: those of them that changed. `same_rows`: not one bit of
    its next-token distributions changed."""

    owner: str
    reader: str
    way: Way
    bits: int
    differing: int
    same_rows: bool
    moved: Distance

    @property
    def same(self) -> bool:
        """Whether not one bit changed of what it attends to and of what its words are chosen from."""
        return not self.differing and self.same_rows


class Office(Frozen):
    """One workflow. `told` is what AgentLeak's own detectors found in its words, by channel. `verdicts`: of each way
    and reader the worst verdict of an audit on what was attended to. `reuse`: of each way but the baseline how far the
    last speaker's next tokens are from the baseline's. `waits`: of each way and message the seconds to its first token,
    the median of the repeats."""

    workflow: str
    model: str
    vertical: str
    attack: str | None
    told: dict[str, bool]
    tokens: int
    verdicts: dict[Way, dict[str, Verdict]]
    swaps: tuple[Swap, ...]
    reuse: dict[Way, Distance]
    waits: dict[Way, dict[str, float]]


class AgentLeakResult(Frozen):
    """All of it. `digest` is that of the file. `skipped`: workflows that this model cannot encode, and why. `seconds`:
    how long measuring took, all stretches together."""

    format: Literal["agentcho-agentleak/1"] = "agentcho-agentleak/1"
    command: str
    source: str
    digest: str
    model: str
    seed: int
    repeats: int
    threads: int
    seconds: float
    environment: dict[str, str]
    workflows: tuple[Office, ...]
    skipped: dict[str, str] = Field(default_factory=dict)
