"""Proves theorems about a model of the resolver, compares the model with the code in random workflows, and checks the
code in every workflow of small scopes: `python -m tests.leaks.proof` (`make nightly`).

The result is written to `docs/results/proof.json`, to be committed; exits with 1 if something is wrong. `--kept FILE`
stores finished shares, one per line, so that an interrupted run can be resumed on the same commit; after `--seconds` no
share is started, and it exits with 3 if some are left. Independent of what is proved.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from agentcho.records.environment import machine_info, source_digests, versions

from .shares import Done, Share, done, report, shares, sound, steps

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "proof.json"


class Kept:
    """Finished shares of one commit and seed, kept in a file if there is one; `seconds` is the time spent on them."""

    def __init__(self, file: Path | None, commit: str, seed: int) -> None:
        self._file, self._whose = file, {"commit": commit, "seed": seed}
        self.parts: dict[str, Done] = {}
        self.seconds = 0.0
        for line in file.read_text().splitlines() if file is not None and file.exists() else ():
            found = json.loads(line)
            if {name: found[name] for name in self._whose} == self._whose:
                self._take(found)

    def _take(self, found: dict[str, Any]) -> None:
        if "ran" in found:
            self.seconds += found["ran"]
        else:
            part = Done(Share(*found["share"]), found["counts"], tuple(found["told"]), found["seconds"])
            self.parts[part.share.name] = part

    def add(self, part: Done) -> None:
        """Add a finished share."""
        self.parts[part.share.name] = part
        self._write(part._asdict())

    def ran(self, seconds: float) -> None:
        """Add to the time spent."""
        self.seconds += seconds
        self._write({"ran": seconds})

    def _write(self, found: dict[str, Any]) -> None:
        if self._file is not None:
            with self._file.open("a") as lines:
                lines.write(json.dumps({**self._whose, **found}) + "\n")


def played(left: list[Share], seed: int, workers: int, seconds: float) -> Iterator[Done]:
    """Yields these shares as they finish; none is started after `seconds`."""
    began, waiting = perf_counter(), set[Future[Done]]()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        while waiting or (left and perf_counter() - began < seconds):
            while left and len(waiting) < workers and perf_counter() - began < seconds:
                waiting.add(pool.submit(done, left.pop(0), seed))
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in ended)


def told(part: Done) -> str:
    """The result of a share, as text."""
    counts = ", ".join(f"{count:,} {name}" for name, count in part.counts.items())
    return "\n  ".join((f"{part.share.name}: {counts} in {part.seconds:.0f} s", *part.told))


def main(words: list[str]) -> int:
    """Prove, play, print the result and write it."""
    parser = argparse.ArgumentParser(description="What is proved of the resolver, and what is checked exhaustively.")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, default=0, help="of the random workflows")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the result goes")
    parser.add_argument("--kept", type=Path, help="where shares that are done are kept, and looked for")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no share after that time")
    asked = parser.parse_args(words)
    began, where = perf_counter(), machine_info()
    kept, every = Kept(asked.kept, where["commit"], asked.seed), list(shares())
    proved = steps()
    print(f"{len(proved['steps'])} steps, {len(proved['broken'])} of them again without a rule", flush=True)
    left = [share for share in every if share.name not in kept.parts]
    for part in played(left, asked.seed, asked.workers, asked.seconds):
        kept.add(part)
        print(told(part), flush=True)
    kept.ran(perf_counter() - began)
    if len(kept.parts) < len(every):
        print(f"{len(kept.parts)} of {len(every)} shares are done; the same --kept goes on")
        return 3
    taken = {"seed": asked.seed, "workers": asked.workers, "seconds": round(kept.seconds, 1)}
    with_solver = {**versions(), "z3-solver": version("z3-solver")}
    found = {"format": "agentcho-proof/1", **where, "versions": with_solver, **source_digests(), **taken, **proved}
    found |= report(kept.parts[share.name] for share in every)
    asked.json.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{found['seconds']} s, written to {asked.json}")
    return 0 if sound(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
