"""The result of a proof: frozen values, and their JSON in a versioned schema. Every output is made from it.

Must not contain words of messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from agentcho.audit.measurement import Swapped
from agentcho.records.frozen import Frozen

Conclusion = Literal["holds", "broken", "inconclusive"]
Arm = Literal["audit", "enforce"]
EXIT: dict[Conclusion, int] = {"holds": 0, "broken": 1, "inconclusive": 3}


class Digests(Frozen):
    """SHA-256 over all logits of one reader, float32, little-endian, message by message and row by row: of the
    unchanged workflow, and with the secrets swapped."""

    before: str
    after: str

    @property
    def same(self) -> bool:
        """Whether no bit changed."""
        return self.before == self.after


class Compared(Frozen):
    """One reader of one workflow, after one owner's messages `swapped` were replaced. `rows` of logits were hashed."""

    workflow: str
    owner: str
    reader: str
    swapped: tuple[str, ...]
    rows: int
    audit: Digests
    enforce: Digests

    @property
    def conclusion(self) -> Conclusion:
        """Equal digests under enforce only show something if the same swap changes the digest under audit."""
        if not self.enforce.same:
            return "broken"
        return "inconclusive" if self.audit.same else "holds"


class Skipped(Frozen):
    """What could not be compared, and why. `reader` None: no reader could be; `owner` None: nothing in the workflow
    could."""

    workflow: str
    owner: str | None
    reader: str | None
    why: str


class FreePlay(Frozen):
    """One game played again with a free schedule, after private messages of one owner were `swapped` for others of
    another length: the number of `plays` in which the reader could observe something else (`changed`). An observation
    is the messages that the reader may read, in the order in which they came out, with the words that it sampled
    itself."""

    game: int
    owner: str
    reader: str
    swapped: tuple[str, ...]
    plays: int
    changed: int


class Waits(Frozen):
    """Seconds to the first token, summed over all `decodes` of one unchanged workflow, by reading mode."""

    workflow: str
    decodes: int
    baseline: float
    audit: float
    enforce: float


class PairSummary(NamedTuple):
    """One owner and one reader over all workflows: the number compared, and the numbers in which the reader's logits
    moved under audit and under enforce."""

    owner: str
    reader: str
    compared: int
    moved: int
    broken: int


class Proof(Frozen):
    """A whole proof. `stride`: the number of forced tokens fed per step, after the first. `unfinished` are the
    workflows that did not finish: they are played as far as they went. `free` are plays with a free schedule (None: the
    schedule was fixed in all)."""

    format: Literal["agentcho-prove/1"] = "agentcho-prove/1"
    source: str
    model: str
    seed: int
    swap: Swapped
    stride: int
    workflows: int
    compared: tuple[Compared, ...]
    skipped: tuple[Skipped, ...]
    waits: tuple[Waits, ...]
    environment: dict[str, str]
    unfinished: tuple[str, ...] = ()
    free: tuple[FreePlay, ...] | None = None

    @property
    def conclusion(self) -> Conclusion:
        """Broken if any comparison is; otherwise it holds if any comparison could have shown a difference."""
        found = {one.conclusion for one in self.compared}
        return next((word for word in ("broken", "holds") if word in found), "inconclusive")

    @property
    def exit_code(self) -> int:
        """0, 1 or 3. It is also 1 if a free schedule reveals something, whatever the encodings do."""
        return 1 if self.told else EXIT[self.conclusion]

    @property
    def told(self) -> int:
        """The number of comparisons with a free schedule in which a reader observed something else."""
        return sum(one.changed > 0 for one in self.free or ())

    @property
    def pairs(self) -> tuple[PairSummary, ...]:
        """The comparisons counted by owner and reader, in the order of the workflows."""
        found: dict[tuple[str, str], list[Compared]] = {}
        for one in self.compared:
            found.setdefault((one.owner, one.reader), []).append(one)
        return tuple(
            PairSummary(*key, len(own), _count(own, "audit"), _count(own, "enforce")) for key, own in found.items()
        )

    @property
    def reasons(self) -> dict[tuple[str, str, str], int]:
        """The count of skipped comparisons by owner, reader and reason."""
        return dict(Counter((one.owner or "", one.reader or "", one.why) for one in self.skipped))

    def speedup(self, arm: Arm) -> float | None:
        """Baseline's seconds to the first token divided by this arm's, summed over all messages of all workflows."""
        took = sum(getattr(one, arm) for one in self.waits)
        return sum(one.baseline for one in self.waits) / took if took else None


def _count(compared: Iterable[Compared], arm: Arm) -> int:
    return sum(not getattr(one, arm).same for one in compared)
