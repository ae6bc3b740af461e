"""Writes on each page how old its figures are: `python -m tools.pages.behind`, or `make pages`.

Every result file names the commit that it was made at and holds digests of the code that made it
(`agentcho.records.digests`). If these differ from the code of this checkout in what the result measures, the page that
shows it has to say so, and by at least how many commits, between `<!-- age -->` and `<!-- end of age -->`. With
`--check`, which `make lint` uses, nothing is written, and a page fails that lacks this, or says it about an up-to-date
result. A number is rounded down to one of 1, 2, 5, 10, 20, 50 and so on, and stays valid until there are four times as
many commits, so that not every commit changes every page.

Without git, or in a shallow clone, only digests count, and no number is checked. A difference does not mean that the
figures would be different today.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import accumulate, islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from agentcho.records.environment import BY_FILE, GONE, digest_unit, tree_digest
from tools.pages.marks import AGE, between, put
from tools.renaming import Table

ROOT = Path(__file__).parents[2]
CORE = (
    "agentcho/engine",
    "agentcho/runner",
    "agentcho/provenance/resolver.py",
    "agentcho/choreography/choreographer.py",
    "agentcho/games/runs/replay.py",
)
PLAYED = ("agentcho/runner/understudy/weights", "agentcho/tasks", "scenarios", "agents")
NEW = "this result has no digests"
FEW = 3
"""The largest number of older results that a page names before its text. More are folded away."""
OLDER = "Results shown here that are older than the code that they measure"


class Place(NamedTuple):
    """The pages that show a result, and the code that it measures. Paths of pages are relative to `docs`."""

    pages: tuple[str, ...]
    code: tuple[str, ...]


SPEED = ("speed.md", "speed-tables.md")
WINS = "where-it-wins.md"
REAL = "real-model.md"
TIMED = (*CORE, "agentcho/lab/bench")
PACED = (*TIMED, "agentcho/choreography/prefetch.py", "agentcho/choreography/quiescence.py")
MEASURED: Mapping[str, Place] = {
    "bench-serve": Place(SPEED, (*TIMED, "agentcho/serve")),
    "bench-talk": Place(SPEED, (*TIMED, "agentcho/serve")),
    "bench-readers": Place((*SPEED, WINS), PACED),
    "bench-trees": Place((*SPEED, WINS), PACED),
    "bench-": Place(SPEED, (*PACED, "tools/bench")),
    "compare-multi-qa-repair-parallel": Place(
        ("comparisons.md", "how-to/repair.md"), (*CORE, *PLAYED, "agentcho/lab/compare")
    ),
    "compare-branch-solve-merge-repair-parallel": Place(("comparisons.md",), (*CORE, *PLAYED, "agentcho/lab/compare")),
    "compare-branch-solve-merge-repair": Place(
        ("comparisons.md", "how-to/repair.md"), (*CORE, *PLAYED, "agentcho/lab/compare")
    ),
    "compare-": Place(("comparisons.md",), (*CORE, *PLAYED, "agentcho/lab/compare")),
    "adapter-": Place(("comparisons.md",), (*CORE, *PLAYED, "agentcho/lab/tune")),
    "leakage-": Place(("leakage.md",), (*CORE, *PLAYED, "agentcho/audit")),
    "mutants": Place(("leakage.md",), ("agentcho", "tests/mutants")),
    "interference": Place(("leakage.md",), ("agentcho", "tests/leaks")),
    "proof": Place(("leakage.md",), ("agentcho/provenance", "tests/leaks")),
    "neighbours": Place(("leakage.md", "serve.md"), (*CORE, "tests/leaks/numeric")),
    "leaks": Place(("leakage.md",), (*CORE, "agentcho/lab/leaks")),
    "gpu": Place(("gpu.md",), (*CORE, "tools/bench/gpu_day")),
    "plan": Place(("plan.md", WINS), (*CORE, "agentcho/lab/plan", "tools/bench/plan.py")),
    "paper": Place(("paper.md",), (*CORE, *PLAYED, "agentcho/lab/paper")),
    "agentleak": Place(("agentleak.md",), (*CORE, "agentcho/audit", "agentcho/lab/measure", "tools/bench/agentleak")),
    "agentdojo": Place(("agentdojo.md",), ("agentcho/provenance", "agentcho/audit", "tools/bench/dojo")),
    "delta": Place(("how-to/memory.md",), (*CORE, "tools/bench/delta.py")),
    "kv": Place(("how-to/memory.md",), (*CORE, "tools/bench/kv.py")),
    "stream": Place(("how-to/societies.md",), (*CORE, "tools/bench/stream.py")),
    "threads": Place(("how-to/own-model.md",), (*CORE, "tools/bench/threads.py")),
    "judge": Place(("how-to/repair.md",), (*CORE, "agentcho/lab/judging")),
    "textarena": Place(("how-to/textarena.md",), ("agentcho/integrations/textarena", "agents/player.py")),
    "templates": Place(("how-to/own-model.md",), ("agentcho/engine", "tools/templates")),
    "vllm": Place(("vllm.md",), (*CORE, "agentcho/integrations/vllm", "tools/bench/vllm")),
    "real-leaks": Place((REAL,), (*CORE, "agentcho/lab/measure", "agentcho/lab/leaks")),
    "real-task": Place((REAL,), (*CORE, *PLAYED, "agentcho/lab/compare")),
    "real-costs": Place((REAL,), (*CORE, *PLAYED, "agentcho/lab")),
    "real-": Place((REAL,), (*CORE, "agentcho/lab/reading", "agentcho/lab/measure")),
    "understudy": Place(("understudy.md",), ("agentcho/runner/understudy",)),
}
"""By the prefix of the result file's name. The first match counts."""
AWAITED = frozenset({"gpu"})
"""Those for which there may be no result yet."""
README = "../README.md"
IN_README = frozenset(
    {
        "agentleak",
        "compare-multi-qa",
        "compare-multi-qa-repair-parallel",
        "leaks",
        "leaks-earlier",
        "real-fidelity",
        "real-leaks-natural",
        "real-task-recall-serial",
        "real-task-recall-serial-long",
    }
)
"""The results whose figures the README shows, however old. It shows no speeds older than engine and runner
(`computes_as_today`)."""
COMPUTES = ("agentcho/engine", "agentcho/runner")


class Found(NamedTuple):
    """A result file: its name without the suffix, the commit that it names, the digests of the code that made it by
    file or folder, and its place."""

    name: str
    commit: str | None
    ran: Mapping[str, str]
    place: Place

    @property
    def pages(self) -> tuple[str, ...]:
        """All pages that show it."""
        return (*self.place.pages, README) if self.name in IN_README else self.place.pages

    @property
    def measured(self) -> dict[str, str]:
        """The digests of the code that it measures."""
        return {
            name: digest for name, digest in self.ran.items() if any(_covers(each, name) for each in self.place.code)
        }


class Age(NamedTuple):
    """What differs today in the code that a result measures, and how many commits have touched it since. `commits` is
    None if that is unknown, for the reason `why`."""

    differ: tuple[str, ...]
    commits: int | None
    why: str = ""


def place(name: str) -> Place:
    """The place of a result file of this name."""
    found = next((each for begins, each in MEASURED.items() if name.startswith(begins)), None)
    if found is None:
        raise SystemExit(f"{name}: say in MEASURED of {__name__} which page shows it, and what code it measures")
    return found


def results(docs: Path) -> Iterator[Found]:
    """All result files of a checkout, sorted by name.

    Args:
        docs: The folder `docs`.
    """
    return map(read, sorted((docs / "results").glob("*.json")))


def read(file: Path) -> Found:
    """Read a result file."""
    held = json.loads(file.read_bytes())
    commit = _first(held, "commit", r"[0-9a-f]{7,40}(-dirty)?")
    trees = _first(held, "trees", r"\S+:[0-9a-f]+( \S+:[0-9a-f]+)*")
    digests = (each.rsplit(":", 1) for each in trees.split()) if trees else ()
    ran = {today(name): digest for name, digest in digests}
    return Found(file.stem, commit and commit.removesuffix("-dirty"), ran, place(file.name))


def computes_as_today(file: Path) -> bool:
    """Whether engine and runner are the same today as when a result was made."""
    checkout = Checkout(whole=False)
    kept = read(file).ran.items()
    own = {name: digest for name, digest in kept if any(_covers(each, name) for each in COMPUTES)}
    return bool(own) and not checkout.age(Found(file.stem, None, own, Place((), COMPUTES))).differ


def _first(held: Any, name: str, shape: str) -> str | None:
    """The first text with this name and shape, at any depth."""
    if not isinstance(held, dict):
        return None
    own = held.get(name)
    if isinstance(own, str) and re.fullmatch(shape, own):
        return own
    return next(filter(None, (_first(each, name, shape) for each in held.values())), None)


def today(name: str) -> str:
    """The current name of a file or folder of the package, given its name at the time of a result or commit."""
    path = PurePosixPath(name)
    return f"{_renamed().module('.'.join(path.with_suffix('').parts)).replace('.', '/')}{path.suffix}"


@cache
def _renamed() -> Table:
    return Table.read(ROOT / "docs" / "renamed.json")


def _covers(code: str, name: str) -> bool:
    """Whether code that a result measures is, or is part of, what a digest covers."""
    return name == code or name.startswith(f"{code}/") or (code.endswith(".py") and digest_unit(Path(code)) == name)


class Checkout:
    """The current code, and the commits since earlier ones. `whole`: list everything that differs, not only the
    first."""

    def __init__(self, root: Path = ROOT, whole: bool = True) -> None:
        self.root, self._whole = root, whole
        self._digests: dict[str, str] = {}
        self._touching: dict[tuple[str, ...], list[int]] = {}

    def age(self, one: Found) -> Age:
        """How far a result is behind."""
        measured = one.measured
        differing = (name for name, digest in measured.items() if self._digest(name) not in (digest, GONE))
        differ = tuple(differing if self._whole else islice(differing, 1))
        if not differ:
            differ = tuple(name for name, digest in measured.items() if self._lost(name, digest))
        if not measured:
            differ = (NEW,)
        if not differ:
            return Age((), 0)
        since, why = self._since(one)
        return Age(differ, since, why)

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            self._digests[name] = tree_digest(self.root, name)
        return self._digests[name]

    def _lost(self, name: str, digest: str) -> bool:
        """Whether code no longer exists, neither under its name nor unchanged under another one."""
        return self._digest(name) == GONE and digest not in self._all

    @cached_property
    def _all(self) -> set[str]:
        files = [each.relative_to(self.root) for each in (self.root / "agentcho").rglob("*.py")]
        files += [each.relative_to(self.root) for folder in BY_FILE for each in (self.root / folder).glob("*.py")]
        return {self._digest(name) for name in {digest_unit(each) for each in files}}

    def _since(self, one: Found) -> tuple[int | None, str]:
        if isinstance(self._history, str):
            return None, self._history
        if one.commit is None:
            return None, "it names no commit"
        later = next((n for n, (commit, _) in enumerate(self._history) if commit.startswith(one.commit)), None)
        if later is None:
            return None, f"this history has no commit {one.commit[:10]}"
        code = one.place.code
        if code not in self._touching:
            touching = (any(_touches(today(file), code) for file in files) for _, files in self._history)
            self._touching[code] = [0, *accumulate(touching)]
        return max(1, self._touching[code][later]), ""

    @cached_property
    def _history(self) -> list[tuple[str, list[str]]] | str:
        """All commits, latest first, with the files that each touched. A text says why there are none."""
        shallow = self._git("rev-parse", "--is-shallow-repository")
        if shallow is None or (top := self._git("rev-parse", "--show-toplevel")) is None:
            return "there is no git here, or no repository"
        if not Path(top).samefile(self.root):
            return "this is no checkout of its own"
        if shallow == "true":
            return "this clone is shallow"
        told = self._git("log", "--format=%x00%H", "--name-only", "--no-renames", "HEAD")
        commits = [each.split() for each in (told or "").split("\0")[1:]]
        return [(commit, files) for commit, *files in commits]

    def _git(self, *words: str) -> str | None:
        try:
            asked = subprocess.run(["git", "-C", str(self.root), *words], capture_output=True, text=True, check=False)
        except OSError:
            return None
        return asked.stdout.strip() if asked.returncode == 0 else None


def _touches(file: str, code: Sequence[str]) -> bool:
    return any(file.startswith(each) and file[len(each) : len(each) + 1] in ("", "/") for each in code)


def rounded(commits: int) -> int:
    """Round down to one of 1, 2, 5, 10, 20, 50, and so on."""
    step: int = 10 ** (len(str(commits)) - 1)
    return next(each for each in (5 * step, 2 * step, step) if each <= commits)


def told(ages: Mapping[str, Age]) -> str:
    """What a page says about the age of its results, by name. Empty if all are up to date."""
    older = {name: age for name, age in ages.items() if age.differ}
    if not older:
        return ""
    by_number = dict[int | None, list[str]]()
    for name, age in sorted(older.items()):
        by_number.setdefault(age.commits and rounded(age.commits), []).append(name)
    known = sorted((each for each in by_number if each is not None), reverse=True)
    parts = [f"{', '.join(by_number[each])} (by at least {each} commit{'s' if each > 1 else ''})" for each in known]
    if None in by_number:
        parts.append(f"{', '.join(by_number[None])} (by how many commits is not known)")
    return f"*{OLDER}: {'; '.join(parts)}.*"


def with_age(page: str, ages: Mapping[str, Age]) -> str:
    """A page with that text between its marks, folded away under a count if it names many results."""
    lines = textwrap.wrap(told(ages), 118, break_long_words=False, break_on_hyphens=False)
    older = sum(bool(age.differ) for age in ages.values())
    if older > FEW:
        count = f"{older} of the {len(ages)} results shown here are older than the code that they measure"
        lines = ["<details>", f"<summary>{count}.</summary>", "", *lines, "", "</details>"]
    return put(page, AGE, lines)


_SAID = re.compile(r"([\w, -]+) \(by (?:at least (\d+) commits?|how many commits is not known)\)")


def faults(page: str, text: str, ages: Mapping[str, Age]) -> Iterator[str]:
    """What a page says wrongly about the age of its results, or fails to say.

    Args:
        page: The name of the page.
        text: Its text.
        ages: The ages of its results, by name.
    """
    marked = between(text, AGE)
    if marked is None:
        yield f"{page}: has no <!-- {AGE} --> and <!-- end of {AGE} -->, between which it says how old its results are"
        return
    said = dict[str, int | None]()
    for names, number in _SAID.findall(" ".join(marked.split()).partition(f"{OLDER}: ")[2]):
        said |= dict.fromkeys((name.strip() for name in names.split(",")), int(number) if number else None)
    for name, age in ages.items():
        if age.differ and name not in said:
            yield f"{page}: does not say that {name} is older than {', '.join(age.differ)}"
        elif not age.differ and name in said:
            yield f"{page}: says that {name} is older than the code, and it is not"
        elif age.differ and age.commits is not None:
            number = said[name]
            if number is None or not number <= age.commits < 4 * number:
                yield f"{page}: says at least {number} commits of {name}, and it is {age.commits}"
    for name in said.keys() - ages.keys():
        yield f"{page}: says how old {name} is, and does not show it"


def by_page(ages: Iterable[tuple[Found, Age]]) -> dict[str, dict[str, Age]]:
    """The ages of the results of each page, by name."""
    found = dict[str, dict[str, Age]]()
    for one, age in ages:
        for page in one.pages:
            found.setdefault(page, {})[one.name] = age
    return found


def table(ages: Mapping[str, dict[str, Age]]) -> Iterator[str]:
    """Every page, each followed by its results."""
    for page, each in ages.items():
        yield f"docs/{page}"
        for name, age in each.items():
            number = f"{age.commits} commits" if age.commits is not None else age.why
            yield f"  {name}: " + (f"{number}: {', '.join(age.differ)}" if age.differ else "of today's code")


def main() -> None:
    """Write the ages on all pages and print a table, or check them."""
    parser = argparse.ArgumentParser(description="How old the figures of the pages are.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page does not say what is so")
    check = parser.parse_args().check
    docs, checkout = ROOT / "docs", Checkout(whole=not check)
    pages = by_page((one, checkout.age(one)) for one in results(docs))
    wrong = [each for page, ages in pages.items() for each in faults(page, (docs / page).read_text(), ages)]
    if check:
        for each in wrong:
            print(each, file=sys.stderr)
        if wrong:
            raise SystemExit("pages show results that are older than the code, and do not say so: run `make pages`")
        return
    for page, ages in pages.items():
        file = docs / page
        file.write_text(with_age(file.read_text(), ages))
    print("\n".join(table(pages)))


if __name__ == "__main__":
    main()
