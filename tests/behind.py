"""How far the figures of the pages are behind the code that they measure: `python -m tests.behind`, or `make pages`.

Every result file names the commit that it was found on, and holds digests of the code that it ran, so that those which
differ now are listed, whatever the commits say; older ones hold none. A page that is written by hand names the commit
in its text. Does not know: how anything was measured. It never fails: where it cannot tell, it says so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.records.environment import source_digest

ROOT = Path(__file__).parents[1]
CORE = (
    "agentcho/engine",
    "agentcho/runner",
    "agentcho/flow/resolver.py",
    "agentcho/choreography/choreographer.py",
    "agentcho/games/replay.py",
)
PLAYED = ("agentcho/understudy/weights", "agentcho/tasks", "scenarios", "agents")
SERVED = ("speed.md", (*CORE, "agentcho/serve", "agentcho/lab/bench"))
MEASURED: dict[str, tuple[str, tuple[str, ...]]] = {
    "bench-serve": SERVED,
    "bench-talk": SERVED,
    "bench-": (
        "speed.md",
        (
            *CORE,
            "agentcho/lab/bench",
            "tools/bench",
            "agentcho/choreography/prefetch.py",
            "agentcho/choreography/quiescence.py",
        ),
    ),
    "compare-": ("comparisons.md", (*CORE, *PLAYED, "agentcho/lab/compare")),
    "adapter-": ("comparisons.md", (*CORE, *PLAYED, "agentcho/lab/tune")),
    "leakage-": ("leakage.md", (*CORE, *PLAYED, "agentcho/audit")),
    "mutants": ("leakage.md", ("agentcho", "tests/mutants")),
    "interference": ("leakage.md", ("agentcho", "tests/leaks")),
    "proof": ("leakage.md", ("agentcho/flow", "tests/leaks")),
    "paper": ("paper.md", (*CORE, *PLAYED, "agentcho/lab/paper")),
    "agentleak": ("agentleak.md", (*CORE, "agentcho/audit", "agentcho/lab/measure", "tools/bench/agentleak")),
    "kv": ("how-to/memory.md", (*CORE, "tools/bench/kv.py")),
    "stream": ("how-to/societies.md", (*CORE, "tools/bench/stream.py")),
    "judge": ("how-to/repair.md", (*CORE, "agentcho/lab/judging")),
    "leaks": ("leakage.md", (*CORE, "agentcho/lab/leaks")),
    "textarena": ("how-to/textarena.md", ("agentcho/arena", "agents/player.py")),
    "understudy": ("understudy.md", ("agentcho/understudy",)),
}
"""By how a result file's name begins: the page that it stands on, and the code that it measures."""
UNCHANGED = "; all that it ran is as it was"
ELSEWHERE = ("leakage.md", ("agentcho",))
WRITTEN = {"how-to/prove.md": (*CORE, "agentcho/audit"), "how-to/memory.md": CORE}
"""Pages that name a commit in their text."""


class Figures(NamedTuple):
    """Some figures of a page: the file that holds them, the commit they are of (None: it does not say), the code that
    they measure, and digests of the code that they ran, by its name (empty: it does not say)."""

    page: str
    file: str
    commit: str | None
    code: tuple[str, ...]
    ran: Mapping[str, str] = {}


class Age(NamedTuple):
    """How many commits ago figures were found, and how many of these touch what they measure; or `why` not. `differ`:
    what is not as it was of the code that ran; None: that cannot be told."""

    commits: int
    touching: int
    why: str = ""
    differ: tuple[str, ...] | None = None

    @property
    def behind(self) -> bool:
        """Whether what they measure has changed, by digests where there are any."""
        return self.touching > 0 if self.differ is None else bool(self.differ)


def figures(docs: Path) -> Iterator[Figures]:
    """All figures of all pages, page by page."""
    for file in sorted((docs / "results").glob("*.json")):
        places = (place for begins, place in MEASURED.items() if file.name.startswith(begins))
        page, code = next(places, ELSEWHERE)
        found = json.loads(file.read_bytes())
        yield Figures(page, file.name, _commit(found), code, _ran(found))
    for page, code in WRITTEN.items():
        named = (
            re.search(r"\bcommit\s+([0-9a-f]{7,40})\b", (docs / page).read_text()) if (docs / page).exists() else None
        )
        if named:
            yield Figures(page, page, named[1], code)


def _commit(found: Any) -> str | None:
    """The commit that a result names, wherever it does."""
    own = _first(found, "commit", r"[0-9a-f]{7,40}(-dirty)?")
    return None if own is None else own.removesuffix("-dirty")


def _ran(found: Any) -> dict[str, str]:
    """The digests of the code that a result ran, wherever it holds them."""
    named = _first(found, "modules", r"\S+:[0-9a-f]+( \S+:[0-9a-f]+)*")
    return dict(each.rsplit(":", 1) for each in named.split()) if named else {}


def _first(found: Any, name: str, shape: str) -> str | None:
    """The first text of this name and shape."""
    if isinstance(found, dict):
        own = found.get(name)
        if isinstance(own, str) and re.fullmatch(shape, own):
            return own
        return next(filter(None, (_first(each, name, shape) for each in found.values())), None)
    return None


def age(one: Figures, root: Path) -> Age:
    """How far figures are behind the checkout."""
    differ = tuple(name for name, digest in one.ran.items() if source_digest(root, name) != digest)
    return _by_commits(one, root)._replace(differ=differ if one.ran else None)


def _by_commits(one: Figures, root: Path) -> Age:
    if one.commit is None:
        return Age(0, 0, "it does not say of which commit it is")
    shallow = _git(root, "rev-parse", "--is-shallow-repository")
    if shallow is None:
        return Age(0, 0, "there is no git here, or no repository")
    if _git(root, "cat-file", "-e", f"{one.commit}^{{commit}}") is None:
        return Age(0, 0, f"this clone {'is shallow and ' if shallow == 'true' else ''}has no commit {one.commit[:10]}")
    since = f"{one.commit}..HEAD"
    counts = [_git(root, "rev-list", "--count", since, *more) for more in ((), ("--", *one.code))]
    if shallow == "true" or None in counts:
        return Age(0, 0, "this clone is shallow")
    commits, touching = (int(count or 0) for count in counts)
    return Age(commits, touching)


def _git(root: Path, *words: str) -> str | None:
    try:
        asked = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def told(one: Figures, found: Age) -> str:
    """A line about one file."""
    ran = ""
    if found.differ is not None:
        ran = f"; of what it ran differ: {', '.join(found.differ)}" if found.differ else UNCHANGED
    if found.why:
        return f"{one.file}: cannot tell how far behind it is: {found.why}{ran}"
    if not found.commits:
        return f"{one.file}: of this commit{ran}"
    ago = f"{found.commits} commit{'s' if found.commits > 1 else ''} ago"
    return f"{one.file}: of {(one.commit or '')[:10]}, {ago}, {found.touching} of them in what it measures{ran}"


def table(ages: Sequence[tuple[Figures, Age]]) -> Iterator[str]:
    """Every page, and under it its files."""
    page = ""
    for one, found in ages:
        if one.page != page:
            page = one.page
            yield f"docs/{page}"
        yield f"  {told(one, found)}"


def warnings(ages: Sequence[tuple[Figures, Age]]) -> Iterator[str]:
    """A line a page whose figures are behind what they measure, of the file that is most so; one for all that cannot
    be told."""
    worst: dict[str, tuple[Figures, Age]] = {}
    for one, found in ages:
        if found.behind and (one.page not in worst or found.touching > worst[one.page][1].touching):
            worst[one.page] = one, found
    for page, (one, found) in worst.items():
        yield f"warning: docs/{page} is behind: {told(one, found)} (make pages)"
    unknown = [found.why for _, found in ages if found.why and found.differ is None]
    if unknown:
        yield f"warning: cannot tell how far behind {len(unknown)} result files are: {unknown[0]} (make pages)"


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description="How far the figures of the pages are behind.")
    parser.add_argument("--warn", action="store_true", help="only a line a page that is behind")
    only_warnings = parser.parse_args().warn
    found = sorted(figures(ROOT / "docs"), key=lambda one: one.page)
    ages = [(one, age(one, ROOT)) for one in found]
    print("\n".join(warnings(ages) if only_warnings else table(ages)))


if __name__ == "__main__":
    main()
