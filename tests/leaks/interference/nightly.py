"""Plays thousands of pairs, more than a change can wait for: `python -m tests.leaks.interference.nightly` (`make
nightly`).

Workflows are played on the engine of sets and on the fake, and others on a tiny model, where they are compared bit by
bit; each worker plays its share. Writes `docs/results/interference.json`, to be committed; exits with 1 if a reader
could tell, or if fewer pairs were compared than asked for. Independent of what a pair is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from agentcho.records.environment import machine_info, source_digests, versions

from ...engines import Engines
from .engines import Models, fake, sets
from .pairs import Result, Room, compared

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "interference.json"
WORKFLOWS, BITWISE = 10_000, 1_000
ROOMS: tuple[Room, ...] = ("roomy", "short")
STRIDE = 1_000_000_000
"""The distance between the first seeds of consecutive workers."""


class Share(NamedTuple):
    """The part of one worker: the engine, the number of pairs, the first seed."""

    engine: str
    pairs: int
    seed: int


class Done(NamedTuple):
    """The result of a share, and its duration in seconds."""

    share: Share
    result: Result
    seconds: float


def done(share: Share) -> Done:
    """Play a share, in a separate process."""
    torch.set_num_threads(1)
    began, seeds = perf_counter(), count(share.seed)
    if share.engine == "model":
        engines = Engines()
        result = compared(share.pairs, seeds, Models(engines), Models.ROOMS, exact=True)
        engines.close()
    else:
        result = compared(share.pairs, seeds, sets if share.engine == "sets" else fake, ROOMS)
    return Done(share, result, perf_counter() - began)


def shares(workflows: int, bitwise: int, workers: int, seed: int) -> Iterator[Share]:
    """All shares, of similar size, the longest first. The fake and sets play the same workflows."""
    for engine, pairs in (("model", bitwise), ("fake", workflows), ("sets", workflows)):
        for worker in range(workers):
            if part := pairs // workers + (worker < pairs % workers):
                yield Share(engine, part, seed + STRIDE * (worker + (workers if engine == "model" else 0)))


def report(parts: list[Done], seed: int, seconds: float, where: dict[str, str]) -> dict[str, object]:
    """The committed result: how many pairs were compared, what they covered, and which were told apart. Determine
    `where` before playing, because it names the commit."""
    engines = {}
    for engine in ("sets", "fake", "model"):
        mine = [part for part in parts if part.share.engine == engine]
        covered = sum((Counter(part.result.covered) for part in mine), Counter[str]())
        engines[engine] = {
            "asked": sum(part.share.pairs for part in mine),
            "compared": sum(part.result.compared for part in mine),
            "parted": sum(part.result.parted for part in mine),
            "entries": sum(part.result.entries for part in mine),
            "covered": dict(sorted(covered.items())),
            "told": [told for part in mine for told in part.result.told],
            "processor_seconds": round(sum(part.seconds for part in mine), 1),
        }
    return {
        "format": "agentcho-interference/1",
        **where,
        "versions": versions(),
        **source_digests(),
        "seed": seed,
        "seconds": round(seconds, 1),
        "engines": engines,
    }


def played(workflows: int, bitwise: int, workers: int, seed: int) -> dict[str, object]:
    """Play everything; prints each share when it is done."""
    began, parts, where = perf_counter(), list[Done](), machine_info()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting: list[Future[Done]] = [pool.submit(done, share) for share in shares(workflows, bitwise, workers, seed)]
        for future in waiting:
            part = future.result()
            parts.append(part)
            print(
                f"{part.share.engine}: {part.result.compared} pairs in {part.seconds:.0f} s, "
                f"{part.result.parted} parted, {len(part.result.told)} told apart",
                flush=True,
            )
            for told in part.result.told:
                print(f"  {told}", flush=True)
    return report(parts, seed, perf_counter() - began, where)


def sound(found: dict[str, object]) -> bool:
    """Whether as many pairs were compared as asked for, and none was told apart."""
    engines = found["engines"]
    assert isinstance(engines, dict)
    return all(each["compared"] == each["asked"] and not each["told"] for each in engines.values())


def main(words: list[str]) -> int:
    """Play, print the result and write it."""
    parser = argparse.ArgumentParser(description="Pairs of workflows that differ in what one reader may not read.")
    parser.add_argument("--workflows", type=int, default=WORKFLOWS, help="each on sets and on the fake")
    parser.add_argument("--bitwise", type=int, default=BITWISE, help="on a tiny model")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the result goes")
    asked = parser.parse_args(words)
    found = played(asked.workflows, asked.bitwise, asked.workers, asked.seed)
    asked.json.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{found['seconds']} s, written to {asked.json}")
    return 0 if sound(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
