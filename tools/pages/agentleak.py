"""The page on AgentLeak's recorded workflows, from a result file.

`python -m tools.pages.agentleak docs/results docs/agentleak.md` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from agentcho.audit.report import Verdict
from tools.bench.agentleak.result import WAYS, AgentLeakResult, Distance, Office, Swap, Way
from tools.pages.render import render, write

CHANNELS = ("final", "between_agents")
"""The channels of AgentLeak's detectors that contain text."""


class Pooled(NamedTuple):
    """Distances of several workflows taken together: nats per token over all rows, the largest row, the share of rows
    with the same likeliest token."""

    rows: int
    kl: float
    kl_max: float
    likeliest: float


class Swapped(NamedTuple):
    """All swaps of one owner's vault for one reader in one way. `same`: the number of swaps in which not a single bit
    changed. `share`: the share of the attended bits that differ."""

    owner: str
    reader: str
    way: Way
    swaps: int
    same: int
    bits: int
    share: float
    moved: Pooled


class Wait(NamedTuple):
    """The median seconds to the first token of one message, by way, and how many times sooner than in the baseline it
    comes: the median over workflows of the ratio within each."""

    message: str
    seconds: dict[Way, float]
    sooner: dict[Way, float]


class Group(NamedTuple):
    """Workflows that have something in common: in how many of them AgentLeak's detectors found a leak in text, by
    channel, and in how many an audit found one in what was attended to, by way."""

    name: str
    workflows: int
    told: dict[str, int]
    leaking: dict[Way, int]


def page(results: Path) -> str:
    """The text of the page, from the file `agentleak.json` in `results`."""
    return text(AgentLeakResult.model_validate_json((results / "agentleak.json").read_bytes()))


def text(found: AgentLeakResult) -> str:
    """The text of the page from the content of that file."""
    offices = found.workflows
    readers = sorted({reader for office in offices for reader in office.verdicts["audit"]})
    return render(
        "agentleak",
        found=found,
        offices=offices,
        ways=WAYS,
        readers=[(reader, [counted_verdicts(offices, way, reader) for way in WAYS]) for reader in readers],
        whole=group("all", offices),
        models=grouped(offices, "model"),
        fields=grouped(offices, "vertical"),
        silent=group("silent", [o for o in offices if not any(o.told.get(channel) for channel in CHANNELS)]),
        swaps=list(swaps(offices)),
        reuse={way: pooled([office.reuse[way] for office in offices]) for way in WAYS if way != "baseline"},
        waits=[wait(offices, id) for id in offices[0].waits["baseline"]],
        tokens=(min(o.tokens for o in offices), median(o.tokens for o in offices), max(o.tokens for o in offices)),
    )


def grouped(offices: Sequence[Office], by: Literal["model", "vertical"]) -> list[Group]:
    """The workflows by the model that spoke or by their field, sorted by name."""
    names = sorted({getattr(office, by) for office in offices})
    return [group(name, [office for office in offices if getattr(office, by) == name]) for name in names]


def leaks(office: Office, way: Way) -> bool:
    """Whether an audit found that any agent attended to what was not for it."""
    return any(verdict != "clean" for verdict in office.verdicts[way].values())


def group(name: str, offices: Sequence[Office]) -> Group:
    """Count these workflows."""
    told = {channel: sum(bool(office.told.get(channel)) for office in offices) for channel in CHANNELS}
    return Group(name, len(offices), told, {way: sum(leaks(office, way) for office in offices) for way in WAYS})


def counted_verdicts(offices: Iterable[Office], way: Way, reader: str) -> dict[Verdict, int]:
    """How often each verdict was one reader's worst."""
    found: dict[Verdict, int] = {}
    for office in offices:
        if reader in office.verdicts[way]:
            verdict = office.verdicts[way][reader]
            found[verdict] = found.get(verdict, 0) + 1
    return found


def swaps(offices: Iterable[Office]) -> Iterable[Swapped]:
    """All swaps by owner, reader and way. The ways of one pair are adjacent."""
    found: dict[tuple[str, str, Way], list[Swap]] = {}
    for office in offices:
        for swap in office.swaps:
            found.setdefault((swap.owner, swap.reader, swap.way), []).append(swap)
    pairs = list(dict.fromkeys(key[:2] for key in found))
    for key in sorted(found, key=lambda key: (pairs.index(key[:2]), WAYS.index(key[2]))):
        own = found[key]
        bits, differing = sum(swap.bits for swap in own), sum(swap.differing for swap in own)
        same = sum(swap.same for swap in own)
        yield Swapped(*key, len(own), same, bits, differing / bits, pooled([swap.moved for swap in own]))


def pooled(distances: Sequence[Distance]) -> Pooled:
    """Pool distances, with equal weight for each row of every workflow."""
    rows = sum(one.rows for one in distances)
    kl = sum(one.kl * one.rows for one in distances) / rows
    return Pooled(rows, kl, max(one.kl_max for one in distances), sum(one.likeliest for one in distances) / rows)


def wait(offices: Sequence[Office], message: str) -> Wait:
    """The first token of one message over all workflows."""
    own = [office.waits for office in offices if message in office.waits["baseline"]]
    seconds: dict[Way, float] = {way: median(each[way][message] for each in own) for way in WAYS}
    sooner: dict[Way, float] = {
        way: median(each["baseline"][message] / each[way][message] for each in own) for way in WAYS if way != "baseline"
    }
    return Wait(message, seconds, sooner)


if __name__ == "__main__":
    write(page, "AgentLeak's workflows")
