"""The result of a probe: frozen values, and their JSON in a versioned schema. Every output is made from it.

Must not contain keys, or words of prompts and answers.
"""

from __future__ import annotations

from typing import Literal

from agentcho.audit.measurement import Interval
from agentcho.lab.stats import Spread
from agentcho.records.frozen import Frozen

Question = Literal["control", "keys", "salts", "beyond"]
"""The callers between which reuse is looked for. "control": a caller repeats its own prompt; "keys": another key
repeats it; "salts": another `cache_salt` does; "beyond": the same caller sends its message again after another system
prompt."""
Verdict = Literal["shared", "seen", "not seen", "inconclusive"]
"""Reuse between callers is "shared"; any other that is found is "seen"."""
Conclusion = Literal["shared", "not seen", "inconclusive"]
BOUNDARIES: tuple[Question, ...] = ("keys", "salts")
"""The boundaries across which nothing may be reused."""
EXIT: dict[Conclusion, int] = {"not seen": 0, "shared": 1, "inconclusive": 3}


class Comparison(Frozen):
    """First-token times of prompts that the server may have cached (hits) and of fresh ones of equal length (misses),
    in seconds.

    `ks_p`, `mann_whitney_p`: one-sided, of "hits are not sooner"; `adjusted_p` is the smaller one after Holm's
    correction over all tests of all questions except the control's. `reported`: the number of trials in which the
    server itself reports more reuse than for any miss. `power`: how often these tests would have found hits as fast as
    the control's; for the control itself, how often they would find it again. `least`: the smallest gain in seconds
    that they would have found 9 times of 10. None: it could not be computed.
    """

    question: Question
    verdict: Verdict
    reason: str
    trials: int
    hit: Spread | None = None
    miss: Spread | None = None
    ks_p: float | None = None
    mann_whitney_p: float | None = None
    adjusted_p: float | None = None
    reported: int = 0
    power: float | None = None
    least: float | None = None


class Words(Frozen):
    """Greedy answers to a fresh prompt, and to the same twice more. `changed`: the second differs from the first (miss,
    then hit); `unsteady`: the third differs from the second (two hits). `p`: exact McNemar; `interval` is that of the
    share that changed."""

    verdict: Verdict
    reason: str
    prompts: int
    changed: int
    unsteady: int
    p: float
    interval: Interval


class Spent(Frozen):
    """The resources that the probe used. `discarded`: trials for which the server was too busy."""

    requests: int
    seconds: float
    prompt_tokens: int
    discarded: int


class ProbeReport(Frozen):
    """A whole probe. Each prompt has `prompt_words` random words, about `prompt_tokens` tokens by the server's count.
    `alpha`: an adjusted p below it is a finding. `ended`: why it ended before all trials were done."""

    format: Literal["agentcho-probe/1"] = "agentcho-probe/1"
    version: str
    url: str
    model: str
    prompt_words: int
    prompt_tokens: int | None
    alpha: float
    comparisons: tuple[Comparison, ...]
    words: Words
    spent: Spent
    ended: str | None = None

    @property
    def conclusion(self) -> Conclusion:
        """Shared if any boundary is; not seen if at least one boundary was tested and none was shared or
        inconclusive."""
        found = [one.verdict for one in self.comparisons if one.question in BOUNDARIES]
        if "shared" in found:
            return "shared"
        return "not seen" if found and set(found) == {"not seen"} else "inconclusive"

    @property
    def exit_code(self) -> int:
        """0, 1 or 3."""
        return EXIT[self.conclusion]
