"""The results of an audit's measurements: the size of a leak, never whether there is one.

Frozen values that reports contain. Independent of how they are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from agentcho.records.frozen import Frozen

Arm = Literal["reuse", "floor", "enforce", "plain", "stale"]
Swap = Literal["same-length", "other-length"]
Swapped = Literal[Swap, "absent"]
ProbeSource = Literal["author", "audience", "text"]


class Interval(Frozen):
    """A two-sided interval at `level`; `method` names its method ("clopper-pearson", "bootstrap clustered by game")."""

    low: float
    high: float
    level: float = 0.95
    method: str

    def shown(self, say: Callable[[float], str]) -> str:
        """Return both ends in words, each formatted by `say`."""
        return f"{say(self.low)} to {say(self.high)}"


class Effect(Frozen):
    """The effect of swapping `owner`'s secrets on the next-token distributions of `reader`, in one arm.

    Arms: "reuse": through reused encodings; "floor": the same secret twice; "enforce": through audience encodings;
    "plain": the secret in the reader's own prompt (ceiling); "stale": public words encoded again without the secret,
    compared with the secret unswapped (not leakage). Total variation in [0, 1], KL in nats, both the largest over all
    rows and games, and the mean with its interval. `flips` of `decisions` changed their greedy choice: McNemar's exact
    p over discordant directions, Holm-adjusted over pairs. `carried`: in the graph of messages, the secrets are in the
    cones of what the reader reads, so that reuse should have an effect; otherwise it must not.
    """

    reader: str
    owner: str
    swap: Swap
    arm: Arm
    carried: bool = True
    games: int
    rows: int
    tv_max: float
    tv_mean: float
    tv_interval: Interval
    kl_max: float
    kl_mean: float
    kl_interval: Interval
    decisions: int
    flips: int
    flip_interval: Interval
    mcnemar_p: float
    holm_p: float

    @property
    def flip_rate(self) -> float:
        """The share of decisions that changed; 0 if there were none."""
        return self.flips / max(self.decisions, 1)


class Probe(Frozen):
    """How well a linear reader tells which secret was in the cone of a public utterance, from one layer of one source.

    `layer` None: the text alone. Tested on held-out games and secrets. A lower bound on the channel. `control` is the
    same with permuted labels. `bits` is the mutual information that the accuracy proves, at the interval's low end.
    """

    owner: str
    source: ProbeSource
    layer: int | None
    classes: int
    trained: int
    tested: int
    accuracy: float
    interval: Interval
    chance: float
    control: float
    bits: float


class Ablation(Frozen):
    """The paper's Figure 8 and Table 7: what readers do if public words are encoded again so that they see less.

    `seen` is what the owner's public words could see: "all" (reused), "system" alone, "plan" alone, or "public"
    (enforced). `outcome` is "decision" or "prediction"; `rate` is the share of games in which `choice` was the greedy
    choice.
    """

    reader: str
    owner: str
    seen: Literal["all", "system", "plan", "public"]
    outcome: Literal["decision", "prediction"]
    choice: str
    games: int
    count: int
    rate: float
    interval: Interval
    flips: int
    mcnemar_p: float
    holm_p: float


class Measurement(Frozen):
    """All measurements of an audit. `deterministic` is the profile of the arms; `noise` is the floor's largest total
    variation."""

    deterministic: bool
    model: str
    seed: int
    games: int
    noise: float
    effects: tuple[Effect, ...]
    probes: tuple[Probe, ...] = ()
    ablations: tuple[Ablation, ...] = ()
    notes: tuple[str, ...] = ()


Plot = Callable[[Sequence[Effect], Measurement], str]
"""Draws the effects of one pair of reader and owner as SVG."""
