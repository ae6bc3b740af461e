"""The parts of the nightly proof, in shares that any process can do on its own, and their results.

Independent of processes and of the page that reports the results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

from .broken import BROKEN
from .explore import Explorer, Found
from .scope import Scope
from .theorems import prove, theorems
from .tie import tied

SCOPES = {
    "4 messages": Scope(3, 4),
    "5 messages": Scope(3, 5, "three kinds", ordered=False, scenario=False),
}
"""The scopes, of three agents each."""
WHOLE: dict[str, tuple[str, ...]] = {
    "4 messages": ("auto", "never", "deterministic", "repair first-k:2", "repair full"),
    "5 messages": ("auto",),
}
"""The policies with which the workflows of a scope are played."""
PARTS = {"4 messages": 8, "5 messages": 40}
BEGINNING = 2
"""The length of the beginnings by which workflows are distributed."""
TIED, TIES = 3000, 10


class Share(NamedTuple):
    """Random workflows by code and model, if `scope` is "tie"; else the workflows of a scope, played in one `way`,
    whose beginnings have an index that is `part` modulo `parts`. `part` None: those that are no longer than these
    beginnings."""

    scope: str
    way: str
    part: int | None
    parts: int

    @property
    def name(self) -> str:
        """A unique name in words."""
        return f"{self.scope}, {self.way}, {'shorter ones' if self.part is None else f'{self.part + 1}/{self.parts}'}"


class Done(NamedTuple):
    """The result of a share: counts, violations, and its duration in seconds."""

    share: Share
    counts: dict[str, int]
    told: tuple[str, ...]
    seconds: float


def shares() -> Iterator[Share]:
    """All shares, the slowest first."""
    for scope in reversed(SCOPES):
        for way in WHOLE[scope]:
            yield from (Share(scope, way, part, PARTS[scope]) for part in range(PARTS[scope]))
            yield Share(scope, way, None, PARTS[scope])
    yield from (Share("tie", "random", part, TIES) for part in range(TIES))


def done(share: Share, seed: int, tie: int = TIED) -> Done:
    """Compute one share."""
    began = perf_counter()
    counts, told = _tied(share, seed, tie) if share.scope == "tie" else _explored(share)
    return Done(share, counts, told, perf_counter() - began)


def _tied(share: Share, seed: int, count: int) -> tuple[dict[str, int], tuple[str, ...]]:
    assert share.part is not None
    counts, differ = Counter[str](), list[str]()
    for number in range(share.part, count, share.parts):
        found = tied(seed + number, length=3 + number % 8)
        counts += found.compared
        differ += found.differ
    return dict(counts), tuple(differ[:20])


def _explored(share: Share) -> tuple[dict[str, int], tuple[str, ...]]:
    scope = SCOPES[share.scope]
    if share.part is None:
        short = Scope(scope.agents, BEGINNING, scope.audiences, scope.ordered, scope.scenario)
        found = Explorer(short, share.way).explore((), short.renamings)._replace(workflows=0, named=0)
    else:
        explorer, found = Explorer(scope, share.way), Found()
        for said, fixing in islice(scope.beginnings(BEGINNING), share.part, None, share.parts):
            found = found.and_of(explorer.explore(said, fixing))
    return found.counts, found.told


def steps() -> dict[str, list[dict[str, Any]]]:
    """Every proved step, and every step that is refuted without one of its rules."""
    known = {theorem.name: theorem for theorem in theorems()}
    proved = [(theorem, prove(theorem)) for theorem in known.values()]
    refuted = [(broken, prove(known[broken.refuted], broken.rules, broken.salting)) for broken in BROKEN]
    return {
        "steps": [
            {"name": each.name, "says": each.says, "answer": found.answer, "seconds": round(found.seconds, 3)}
            for each, found in proved
        ],
        "broken": [{"step": each.refuted, "rule": each.name, "answer": found.answer} for each, found in refuted],
    }


def report(parts: Iterable[Done]) -> dict[str, Any]:
    """The committed result of all shares."""
    together: dict[tuple[str, str], list[Done]] = {}
    for part in parts:
        together.setdefault((part.share.scope, part.share.way), []).append(part)
    rows = {key: _row(mine) for key, mine in together.items()}
    tie = rows.pop(("tie", "random"), {})
    scopes = [
        {"scope": scope, "way": way, **_of(SCOPES[scope]), **row}
        for name in SCOPES
        for (scope, way), row in rows.items()
        if scope == name
    ]
    return {"tie": tie, "scopes": scopes}


def _row(parts: list[Done]) -> dict[str, Any]:
    counts = sum((Counter(part.counts) for part in parts), Counter[str]())
    names = dict.fromkeys(name for part in parts for name in part.counts)
    told = [each for part in parts for each in part.told][:20]
    seconds = round(sum(part.seconds for part in parts), 1)
    return {**{name: counts[name] for name in names}, "told": told, "processor_seconds": seconds}


def _of(scope: Scope) -> dict[str, Any]:
    return {
        "agents": scope.agents,
        "messages": scope.messages,
        "audiences": scope.audiences,
        "ordered": scope.ordered,
        "scenario": scope.scenario,
        "expected": scope.size(),
    }


def sound(found: dict[str, Any]) -> bool:
    """Whether everything is proved, and refuted without its rules; code and model never differ; every scope is
    complete, by an independent count, and has no violations."""
    ways = [(row["scope"], row["way"]) for row in found["scopes"]]
    whole = sorted(ways) == sorted((scope, way) for scope in SCOPES for way in WHOLE[scope])
    proved = all(step["answer"] == "proved" for step in found["steps"])
    refuted = all(each["answer"] == "refuted" for each in found["broken"])
    tied = found["tie"]["workflows"] > 0 and not found["tie"]["told"]
    clean = all(row["named"] == row["expected"] and not row["violations"] for row in found["scopes"])
    return whole and proved and refuted and tied and clean
