"""The versioned format of results on recorded office workflows. It never contains words of messages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentcho.audit.report import Verdict
from agentcho.records.frozen import Frozen

Way = Literal["baseline", "audit", "enforce"]
"""How messages are read: in the caller's own prompt, through what their authors encoded, or through what their
audiences may know."""
WAYS: tuple[Way, ...] = ("baseline", "audit", "enforce")


class Distance(Frozen):
    """The distance between next-token distributions over the same forced words: the mean Kullback-Leibler divergence in
    nats per token over `rows` rows, the maximum, and the number of rows with the same likeliest token."""

    rows: int
    kl: float
    kl_max: float
    likeliest: int


class Swap(Frozen):
    """The vault of `owner` was swapped, and `reader`, who does not read it, spoke the same words as before. `bits`: the
    bits of all keys and values that its calls attend to; `differing`: how many of them changed. `same_rows`: not a
    single bit of its next-token distributions changed."""

    owner: str
    reader: str
    way: Way
    bits: int
    differing: int
    same_rows: bool
    moved: Distance

    @property
    def same(self) -> bool:
        """Whether not a single bit changed in what it attends to and in what its words are chosen from."""
        return not self.differing and self.same_rows


class Office(Frozen):
    """One workflow. `told` is what AgentLeak's own detectors found in its words, by channel. `verdicts`: for each way
    and reader, the worst verdict of an audit on what was attended to. `reuse`: for each way except the baseline, the
    distance of the last speaker's next tokens from the baseline's. `waits`: for each way and message, the seconds to
    its first token, as the median of the repeats."""

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
    """The complete result. `digest` is that of the file. `skipped`: workflows that this model cannot encode, and why.
    `seconds`: how long measuring took, over all sessions."""

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
