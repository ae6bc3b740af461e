"""Breaks copies of the package, a mutant in each at a time, and sees whether the tests that are named for it fail.

`python -m tests.mutants.run` prints a table, writes `docs/results/mutants.json`, and exits 1 where one survives; with
names of mutants it runs these alone, and writes nothing.
The copies alone are changed: there are as many as processors. Does not know: what a mutant means.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from agentcho.records.environment import digest_list, digest_unit, machine_info, tree_digest, versions

from .mutant import Mutant
from .table import MUTANTS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "mutants.json"
COPIED = ("agentcho", "agents", "scenarios", "tests", "tools", "docs", "README.md", "pyproject.toml")
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0")
SECONDS = 900


class Killer(NamedTuple):
    """A test that failed, and the first line of why."""

    test: str
    said: str


class Fate(NamedTuple):
    """What became of a mutant: the test that killed it (None: it lives), what that said, and the seconds it took."""

    mutant: Mutant
    killer: Killer | None
    seconds: float


def once(mutant: Mutant, root: Path = ROOT) -> bool:
    """Whether what it replaces is there exactly once."""
    return (root / mutant.file).read_text().count(mutant.old) == 1


@contextmanager
def copy() -> Iterator[Path]:
    """A copy of what the tests need, thrown away at the end."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy(source, target)
        yield Path(folder)


def fate(mutant: Mutant, folder: Path) -> Fate:
    """Apply a mutant to the copy, run its tests one after another until one fails, and take it back."""
    file = folder / mutant.file
    sound = file.read_text()
    assert once(mutant, folder), mutant.name
    began = perf_counter()
    file.write_text(sound.replace(mutant.old, mutant.new))
    try:
        killers = (failing(folder, [tests]) for tests in mutant.killed_by)
        killer = next((name for name in killers if name is not None), None)
    finally:
        file.write_text(sound)
    return Fate(mutant, killer, perf_counter() - began)


def failing(folder: Path, tests: Iterable[str], workers: int = 0) -> Killer | None:
    """The first test that fails in the copy, in so many processes of pytest-xdist; None where all pass.

    RuntimeError: they could not be run at all, or not to their end, which kills nothing.
    """
    plain = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"}
    env = os.environ | {"PYTHONPATH": str(folder)} | plain
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-n", str(workers), "--dist", "loadfile", *tests]
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ran.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - (.*))?$", ran.stdout, re.MULTILINE)
    if ran.returncode != 1 or failed is None:
        raise RuntimeError(
            f"{' '.join(tests)}: pytest exited {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"
        )
    return Killer(failed[1], failed[2] or "")


def run_all(names: Iterable[str] = ()) -> Iterator[Fate]:
    """The fate of each mutant (or of those named); before, that the tests pass where nothing is broken."""
    wanted, jobs = [mutant for mutant in MUTANTS if not names or mutant.name in names], os.cpu_count() or 1
    with ExitStack() as copies, ThreadPoolExecutor(jobs) as pool:
        folders = Queue[Path]()
        for _ in range(jobs):
            folders.put(folder := copies.enter_context(copy()))
        sound = failing(folder, sorted({tests.split("::")[0] for each in wanted for tests in each.killed_by}), jobs)
        if sound is not None:
            raise RuntimeError(f"{sound.test} fails with nothing broken: {sound.said}")

        def broken(mutant: Mutant) -> Fate:
            folder = folders.get()
            try:
                return fate(mutant, folder)
            finally:
                folders.put(folder)

        yield from pool.map(broken, wanted)


def report(fates: Iterable[Fate], where: dict[str, str]) -> dict[str, object]:
    """The results as they are kept; `where` they were found is asked before, for it names the commit."""
    rows, broken = [], set[str]()
    for fate in fates:
        broken.add(digest_unit(Path(fate.mutant.file)))
        rows.append(
            {
                "name": fate.mutant.name,
                "why": fate.mutant.why,
                "file": fate.mutant.file,
                "killed_by": fate.killer and fate.killer.test,
                "said": fate.killer and fate.killer.said[:160],
                "seconds": round(fate.seconds, 1),
            }
        )
    trees = digest_list((name, tree_digest(ROOT, name)) for name in sorted(broken))
    return {"format": "agentcho-mutants/1", **where, "versions": versions(), "trees": trees, "mutants": rows}


def main(names: list[str]) -> int:
    """Run those of these names, or all, print, and write the results of all."""
    if unknown := set(names) - {mutant.name for mutant in MUTANTS}:
        print(f"no mutant is called {', '.join(sorted(unknown))}; see tests/mutants/table.py", file=sys.stderr)
        return 2
    fates, where = [], machine_info()
    for each in run_all(names):
        fates.append(each)
        print(
            f"{each.mutant.name:<52}{each.seconds:6.1f} s  {each.killer.test if each.killer else 'SURVIVED'}",
            flush=True,
        )
    if not names:
        RESULTS.write_text(json.dumps(report(fates, where), indent=2) + "\n")
    alive = [each for each in fates if each.killer is None]
    print(f"{len(fates) - len(alive)} of {len(fates)} killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
