"""Selects the part of a large game that is drawn: the paths of its worst leaks. Independent of the layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentcho.audit.report import AuditReport, Edge, Said
from agentcho.audit.verdict import WORST

LANES = 6
MESSAGES = 80
"""The maximum columns and messages of a game that is drawn whole."""
FEW_LANES = 5
FEW_MESSAGES = 30
"""The maximum columns and messages of a part."""


class DrawnPart(NamedTuple):
    """The drawn messages, and the leaking readings among them. `unknown` counts leaking readings whose messages are not
    in the transcript, `more` those that are left out; `agents` and `messages` are the counts of the whole game."""

    said: tuple[Said, ...]
    edges: tuple[Edge, ...]
    unknown: int
    more: int
    agents: int
    messages: int

    @property
    def whole(self) -> bool:
        return len(self.said) == self.messages


def part(report: AuditReport) -> DrawnPart:
    """The part of the game that is drawn: all of it if it is small enough."""
    edges = [edge for edge in report.edges if edge.game == report.drawn_game and edge.verdict != "clean"]
    there = {said.id for said in report.drawn}
    known = [edge for edge in edges if {edge.message, edge.call} <= there]
    authors = {said.author for said in report.drawn}
    if len(authors) <= LANES and len(there) <= MESSAGES:
        said: Sequence[Said] = report.drawn
    else:
        kept = _kept(report.drawn, known)
        said = [each for each in report.drawn if each.id in kept]
    ids = {each.id for each in said}
    shown = tuple(edge for edge in known if {edge.message, edge.call} <= ids)
    lost = len(edges) - len(known)
    return DrawnPart(
        said=tuple(said),
        edges=shown,
        unknown=lost,
        more=len(known) - len(shown),
        agents=len(authors - {None}),
        messages=len(report.drawn),
    )


def _kept(drawn: Sequence[Said], edges: Iterable[Edge]) -> set[str]:
    """The messages of the worst leaks, each with its whole path, as many as fit; without leaks, the first messages."""
    authors = {said.id: said.author for said in drawn}
    kept: set[str] = set()
    worst = sorted(edges, key=lambda edge: (WORST.index(edge.verdict), edge.hops))
    ways = [{edge.call, edge.message, *edge.path} for edge in worst] or [{said.id} for said in drawn]
    for way in ways:
        more = kept | (way & authors.keys())
        if len(more) <= FEW_MESSAGES and len({authors[id] for id in more}) <= FEW_LANES:
            kept = more
    return kept
