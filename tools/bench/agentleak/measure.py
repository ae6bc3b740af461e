"""Plays recorded office workflows with every word forced: verdicts, bits after a vault is swapped, next tokens, waits.

A coordinator and a worker each hold a vault, and a compiler without one speaks last. Independent of result files and
the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.audit.report import Verdict
from agentcho.audit.verdict import GameVerdict, worst
from agentcho.config import ReusePolicy
from agentcho.errors import RecordBroken
from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.measure.play import Play, of_workflow
from agentcho.lab.measure.stage import UNENCODABLE, Stage, why_not
from agentcho.lab.measure.swap import reworded
from agentcho.lab.stats import distance
from agentcho.protocol.progress import ProgressCallback, counted
from agentcho.records.trace import Workflow
from tools.bench.agentleak.kept import PartialOffices
from tools.bench.agentleak.result import WAYS, Distance, Office, Swap, Way

VAULTS = {"coordinator": "coordinator.0", "worker": "worker.0"}
"""The agents that hold a vault, and the message that tells it to them."""
READERS = {"coordinator": ("worker", "compiler"), "worker": ("compiler",)}
"""For each owner of a vault, the agents that speak after the owner spoke to them, and do not read that vault."""
LAST = "compiler"
REUSED: tuple[Way, ...] = ("audit", "enforce")
GIVE = "give workflows of a coordinator, a worker and a compiler, as recorded by AgentLeak"
STRIDE = 64
"""Number of forced words fed per step after a message's first token. None of it is timed."""
REUSE: Mapping[Way, ReusePolicy] = {
    "baseline": ReusePolicy("baseline", "audit"),
    "audit": ReusePolicy("choreographed", "audit"),
    "enforce": ReusePolicy("choreographed", "enforce"),
}
Rows = NDArray[np.float32]


class Seen(NamedTuple):
    """What one reader's calls attend to, as keys and values per layer and message, and what its words are chosen from,
    as log-probabilities `[rows, vocab]`."""

    keys: tuple[NDArray[np.float32], ...]
    rows: Rows


class Checked(NamedTuple):
    """Workflows, and their messages as ids of one model."""

    workflows: Sequence[Workflow]
    plays: Sequence[Play]


def checked(workflows: Sequence[Workflow], engine: Any) -> Checked:
    """Check that each workflow is an office. `RecordBroken` names the first that is not, and what it lacks."""
    for place, workflow in enumerate(workflows, 1):
        there = {message.id: message for message in workflow.messages}
        for owner, vault in VAULTS.items():
            if vault not in there or there[vault].author != owner or there[vault].audience != (owner,):
                lacks = f"{workflow.id} has no message {vault} that {owner} alone may read"
                raise RecordBroken(f"workflow {place}", lacks, GIVE)
        if not any(message.author == LAST and message.kind == "decode" for message in workflow.messages):
            raise RecordBroken(f"workflow {place}", f"in {workflow.id} no {LAST} says anything", GIVE)
    return Checked(workflows, [of_workflow(one, engine, game) for game, one in enumerate(workflows)])


def measure(
    offices: Checked, engine: Any, repeats: int, seed: int, kept: PartialOffices, tell: ProgressCallback
) -> None:
    """Measure each workflow that is not kept yet, one after another. `engine` is an `Engine` that nothing else uses
    meanwhile."""
    ids = [workflow.id for workflow in offices.workflows]
    told = counted(tell, "workflows", len(ids), sum(id in kept for id in ids))
    for game, workflow in enumerate(offices.workflows):
        if workflow.id in kept:
            continue
        began = perf_counter()
        try:
            found: Office | str = _office(offices, game, engine, repeats, seed)
        except UNENCODABLE as error:
            found = why_not(error)
        kept.add(workflow.id, found, perf_counter() - began)
        told(sum(id in kept for id in ids))


def _office(offices: Checked, game: int, engine: Any, repeats: int, seed: int) -> Office:
    workflow, play = offices.workflows[game], offices.plays[game]
    timed = [
        {way: replay(workflow, engine, REUSE[way], logits=False, stride=STRIDE) for way in WAYS} for _ in range(repeats)
    ]
    before = {way: seen(engine, play, way, ("worker", LAST)) for way in WAYS}
    meta = workflow.meta
    return Office(
        workflow=workflow.id,
        model=str(meta.get("model", "")),
        vertical=str(meta.get("vertical", "")),
        attack=meta.get("attack"),
        told={name: bool(found) for name, found in dict(meta.get("text_leaks") or {}).items()},
        tokens=sum(len(line.message.tokens) for line in play.lines),
        verdicts={way: verdicts(timed[0][way]) for way in WAYS},
        swaps=tuple(_swaps(offices, game, engine, before, seed)),
        reuse={way: apart(before["baseline"][LAST].rows, before[way][LAST].rows) for way in WAYS if way != "baseline"},
        waits={way: _waits([each[way] for each in timed]) for way in WAYS},
    )


def verdicts(played: Replayed) -> dict[str, Verdict]:
    """The worst verdict on each agent that attended to anything, from receipts and audiences alone."""
    found: dict[str, list[Verdict]] = {}
    for reading in GameVerdict(0, played.entries).readings():
        found.setdefault(reading.edge.reader, []).append(reading.edge.verdict)
    return {reader: worst(own) for reader, own in found.items()}


def _waits(repeats: Sequence[Replayed]) -> dict[str, float]:
    return {id: median(played[id].ttft for played in repeats) for id in repeats[0]}


def seen(engine: Any, play: Play, way: Way, readers: Iterable[str]) -> dict[str, Seen]:
    """What each of these agents attends to and chooses from, in the deterministic profile. In baseline mode without
    keys and values, because all of them belong to its own prompt."""
    found: dict[str, Seen] = {}
    with Stage(engine, play, REUSE[way]._replace(deterministic=True)) as stage:
        for reader in readers:
            said = play.decodes(reader)
            rows = np.concatenate([stage.rows(line.message.id) for line in said])
            read = [id for line in said for id in line.message.parents] if way != "baseline" else []
            pairs = [pair for id in read for pair in stage.cached(id, reader)]
            found[reader] = Seen(tuple(part for pair in pairs for part in pair), rows)
    return found


def _swaps(
    offices: Checked, game: int, engine: Any, before: Mapping[Way, Mapping[str, Seen]], seed: int
) -> Iterator[Swap]:
    """Swap each vault for one of the same length from another workflow."""
    for owner, readers in READERS.items():
        other = swapped(offices.plays, game, owner, seed)
        for way in REUSED:
            after = seen(engine, other, way, readers)
            for reader in readers:
                yield _compared(owner, reader, way, before[way][reader], after[reader])


def swapped(plays: Sequence[Play], game: int, owner: str, seed: int) -> Play:
    """The game with another vault of `owner`: the words of another game in its place, cut or repeated to the same
    number of ids. All other words stay."""
    vault = VAULTS[owner]
    words = reworded(plays, game, [plays[game].by_id[vault]], {vault}, "same-length", seed)
    return plays[game].saying(words)


def _compared(owner: str, reader: str, way: Way, before: Seen, after: Seen) -> Swap:
    bits = 8 * sum(part.nbytes for part in before.keys)
    differing = sum(differing_bits(one, two) for one, two in zip(before.keys, after.keys, strict=True))
    return Swap(
        owner=owner,
        reader=reader,
        way=way,
        bits=bits,
        differing=differing,
        same_rows=differing_bits(before.rows, after.rows) == 0,
        moved=apart(before.rows, after.rows),
    )


def differing_bits(one: NDArray[np.float32], other: NDArray[np.float32]) -> int:
    """The number of bits that differ between two arrays of the same shape. ValueError: their shapes differ."""
    if one.shape != other.shape:
        raise ValueError(f"arrays of one shape are compared, not {one.shape} with {other.shape}")
    ours, theirs = (np.ascontiguousarray(part, np.float32).view(np.uint32) for part in (one, other))
    return int(np.bitwise_count(ours ^ theirs).sum())


def apart(one: Rows, other: Rows) -> Distance:
    """The distance of `other` from `one`, row by row."""
    far = distance(one, other).kl
    same = int((one.argmax(axis=1) == other.argmax(axis=1)).sum())
    return Distance(rows=len(far), kl=float(far.mean()), kl_max=float(far.max()), likeliest=same)
