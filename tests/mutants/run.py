"""Applies each mutant to a copy of the package and checks that the tests named for it fail.

`python -m tests.mutants.run` prints a table, writes `docs/results/mutants.json`, and exits 1 if a mutant survives;
given names of mutants, it runs only these and writes nothing. Only copies are changed, one per processor.
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
    """A test that failed, and the first line of its error."""

    test: str
    said: str


class Fate(NamedTuple):
    """The outcome of a mutant: the test that killed it (None: it survived), with its error, and the seconds it took."""

    mutant: Mutant
    killer: Killer | None
    seconds: float


def once(mutant: Mutant, root: Path = ROOT) -> bool:
    """Whether the code that a mutant replaces occurs exactly once."""
    return (root / mutant.file).read_text().count(mutant.old) == 1


@contextmanager
def copy() -> Iterator[Path]:
    """A temporary copy of what the tests need."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy(source, target)
        yield Path(folder)


def fate(mutant: Mutant, folder: Path) -> Fate:
    """Apply a mutant to the copy, run its tests one after another until one fails, and restore the file."""
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
    """Runs tests in the copy with `workers` processes of pytest-xdist and returns the first failure; None if all pass.

    RuntimeError: the tests could not be run, or not to their end, which kills nothing.
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
    """First checks that the tests pass without a mutant, then yields the fate of each mutant (or of those named)."""
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
    """The results in the form that is committed; determine `where` before the run, because it names the commit."""
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
    """Run the named mutants, or all of them, and print the results; write them if all were run."""
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
