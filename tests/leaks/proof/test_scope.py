"""Scopes are complete, with each workflow once, and nothing leaks in any; broken resolvers are detected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Any

import pytest

from agentcho.provenance.drafts import Draft
from agentcho.provenance.labels import Recipe
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.views import Read

from .explore import WAYS, Explorer, Found
from .scope import Scope, renamed

Plain = tuple[tuple[int | None, frozenset[int] | None, tuple[int, ...]], ...]
"""A workflow: the author, the audience (None: everyone), and the reads of each message."""


def subsets(agents: int) -> list[frozenset[int]]:
    """All nonempty sets of agents."""
    every = [frozenset(a for a in range(agents) if bits >> a & 1) for bits in range(1, 1 << agents)]
    assert len(set(every)) == 2**agents - 1
    return every


def workflows(agents: int, messages: int) -> Iterator[Plain]:
    """All workflows, with all names, enumerated naively."""
    heads = [
        (a, to) for a in (None, *range(agents)) for to in (None, *subsets(agents)) if a is None or to is None or a in to
    ]
    for chosen in product(heads, repeat=messages):
        orders = []
        for number, (author, _) in enumerate(chosen):
            mine = [
                n for n, (_, to) in enumerate(chosen[:number]) if author is not None and (to is None or author in to)
            ]
            orders.append([order for size in range(len(mine) + 1) for order in permutations(mine, size)])
        for reads in product(*orders):
            yield tuple((author, to, read) for (author, to), read in zip(chosen, reads, strict=True))


def under(workflow: Plain, to: tuple[int, ...]) -> Plain:
    """The same with other names."""
    return tuple(
        (None if author is None else to[author], None if whom is None else frozenset(to[a] for a in whom), reads)
        for author, whom, reads in workflow
    )


def one_of(workflow: Plain, agents: int) -> str:
    """A normal form that is the same for all names."""
    return min(
        repr([(author, whom and sorted(whom), reads) for author, whom, reads in under(workflow, to)])
        for to in permutations(range(agents))
    )


@pytest.mark.parametrize(("agents", "messages"), [(1, 3), (2, 2), (2, 3), (3, 2)])
def test_a_scope_has_every_workflow_once_up_to_names(agents: int, messages: int) -> None:
    every = list(workflows(agents, messages))
    scope = Scope(agents, messages)
    found = explored(scope)
    assert (found.workflows, found.named) == (len({one_of(each, agents) for each in every}), len(every))


def test_three_kinds_of_audiences() -> None:
    kinds = Scope(3, 1, "three kinds", scenario=False).kinds
    assert len(kinds) == 12
    assert {renamed(who, (1, 2, 0)) for who in kinds} == set(kinds)
    assert all(who.everyone or who.readers.bit_count() <= 2 for who in kinds)


@pytest.mark.slow
def test_beginnings_come_to_the_whole() -> None:
    scope = Scope(3, 3, "three kinds", ordered=False)
    explorer, parts = Explorer(scope), Found()
    for said, fixing in scope.beginnings(2):
        parts = parts.and_of(explorer.explore(said, fixing))
    whole = explored(scope)
    assert (parts.workflows, parts.named) == (whole.workflows, whole.named)
    assert not parts.violations
    assert not whole.violations


def explored(scope: Scope, way: str = "auto") -> Found:
    """Explore the whole scope."""
    return Explorer(scope, way).explore((), scope.renamings)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_nothing_leaks_in_two_agents_three_messages(way: str) -> None:
    found = explored(Scope(2, 3), way)
    assert (found.workflows, found.named, found.violations) == (2070, 4132, 0)
    assert min(found.calls, found.encodings) > 1000
    assert min(found.swapped, found.absent) > 50


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_nothing_leaks_in_three_agents_three_messages(way: str) -> None:
    found = explored(Scope(3, 3), way)
    assert (found.named, found.violations) == (46277, 0)


def told(patch: pytest.MonkeyPatch, name: str, broken: Callable[..., Any], way: str = "auto") -> str:
    """The problems that are found with a method of the resolver replaced."""
    patch.setattr(Resolver, name, broken)
    explorer = Explorer(Scope(2, 3), way)
    explorer.explore((), explorer.scope.renamings)
    return " ".join(explorer.problems)


def test_an_encoding_over_what_not_all_may_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_parents(self: Resolver, draft: Draft) -> list[str]:
        return [read.id for read in draft.reads.reads]

    assert "is in audience of" in told(monkeypatch, "_public_parents", all_parents)


def test_an_authors_encoding_for_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reached agent" in told(monkeypatch, "_recipe", lambda self, reader, read: "author")


def test_a_choice_by_what_is_hidden_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers may read all of it; but that it exists at all reveals that its author had read nothing in secret."""

    def where_clean(self: Resolver, reader: str | None, read: Read) -> Recipe:
        parents = self.drafts[read.id].reads.reads
        if self._own(reader, read) or len(self._public_parents(self.drafts[read.id])) == len(parents):
            return "author"
        return "audience"

    wrong = told(monkeypatch, "_recipe", where_clean)
    assert "with secrets absent agent" in wrong
    assert "reached agent" not in wrong


def test_a_place_by_what_is_hidden_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """X(m) is placed where its author's own encoding is, which is further back if its author had read more."""
    real = Resolver._audience_call

    def placed(self: Resolver, draft: Draft, missing: Any) -> Any:
        hidden = len(draft.reads.reads) - len(self._public_parents(draft))
        call = real(self, draft, missing)
        return call if not hidden else call.__class__(**{**vars(call), "new_offset": 50 + hidden})

    assert "with secrets absent agent" in told(monkeypatch, "_audience_call", placed, "never")


def test_a_guard_that_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the resolver does wrong is refused in plays that ask guards."""

    def all_parents(self: Resolver, draft: Draft) -> list[str]:
        return [read.id for read in draft.reads.reads]

    monkeypatch.setattr(Resolver, "_public_parents", all_parents)
    found = Explorer(Scope(2, 3))
    found._plain = found._swapped[0]
    found.explore((), found.scope.renamings)
    assert "refused: " in " ".join(found.problems)
