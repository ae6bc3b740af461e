"""Compares cones and verdicts with a slow oracle on random graphs of encodings."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from agentcho.audit.cones import Cones
from agentcho.provenance.labels import Recipe

from .transcripts import Talk

AGENTS = ("ann", "ben", "cat")
EXTRA: tuple[Recipe, ...] = ("audience", "baseline")


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Messages with arbitrary audiences, read through any of their encodings, in any order."""
    talk, ids, said = Talk(), list[int](), list[str]()
    for number in range(draw(st.integers(1, 12))):
        author = draw(st.sampled_from(AGENTS))
        to = draw(st.one_of(st.just("everyone"), st.lists(st.sampled_from(AGENTS), max_size=2)))
        over = draw(st.lists(st.sampled_from(ids), max_size=4)) if ids else []
        ids.append(talk.say(f"{author}.{number}", to, over))
        said.append(f"{author}.{number}")
        for recipe in draw(st.lists(st.sampled_from(EXTRA), max_size=2)):
            context = draw(st.lists(st.sampled_from(ids), max_size=3))
            caller = draw(st.sampled_from([*AGENTS, None])) if recipe == "baseline" else None
            ids.append(talk.also(draw(st.sampled_from(said)), context, recipe, caller))
    return talk


class Oracle:
    """Reachability by repeatedly closing a relation, and distances by trying ever longer walks."""

    def __init__(self, talk: Talk) -> None:
        self.records = {record.id: record for entry in talk.entries for record in entry.made}
        self.messages = {entry.message.id: entry.message for entry in talk.entries}
        self.steps = {(a, piece.id) for a, record in self.records.items() for piece in record.receipt.context}
        reached = {(id, id) for id in self.records} | self.steps
        while more := {(a, d) for a, b in reached for c, d in self.steps if b == c} - reached:
            reached |= more
        self.reached = reached

    def cone(self, id: int) -> set[str]:
        return {self.records[b].message for a, b in self.reached if a == id}

    def hidden(self, id: int, reader: str) -> set[str]:
        return {message for message in self.cone(id) if not self.messages[message].audience.includes(reader)}

    def distance(self, id: int, secrets: set[str]) -> int:
        here, steps = {id}, 0
        while not {self.records[each].message for each in here} & secrets:
            here, steps = {b for a, b in self.steps if a in here}, steps + 1
        return steps

    def edges(self) -> list[tuple[str, int]]:
        """The (reader, encoding) pair of every reading."""
        found = []
        for record in self.records.values():
            author = self.messages[record.message].author
            who = {"author": author, "baseline": record.caller, "audience": None}[record.recipe]
            if who in AGENTS:
                found += [(who, piece.id) for piece in record.receipt.context]
        return found


@settings(max_examples=100, deadline=None)
@given(talks())
def test_cones_and_verdicts_are_those_of_a_slow_oracle(talk: Talk) -> None:
    oracle, cones = Oracle(talk), Cones(talk.entries)
    assert not cones.faults
    assert {id: set(cone) for id, cone in cones.cones.items()} == {id: oracle.cone(id) for id in oracle.records}
    edges = [reading.edge for reading in talk.readings()]
    assert sorted((edge.reader, edge.encoding) for edge in edges) == sorted(oracle.edges())
    for edge in edges:
        secrets = oracle.hidden(edge.encoding, edge.reader)
        if edge.message in secrets:
            assert (edge.verdict, set(edge.secrets), edge.path) == ("direct", secrets, (edge.message,))
        else:
            assert (edge.verdict, set(edge.secrets)) == ("transitive" if secrets else "clean", secrets)
            assert edge.hops == (oracle.distance(edge.encoding, secrets) if secrets else 0)


@settings(max_examples=50, deadline=None)
@given(talks(), st.data())
def test_a_line_that_is_taken_out_never_makes_a_leak_clean(talk: Talk, data: st.DataObject) -> None:
    leaking = {(e.reader, e.call, e.encoding) for r in talk.readings() for e in [r.edge] if e.verdict != "clean"}
    gone = data.draw(st.sampled_from([entry.message.id for entry in talk.entries]))
    talk.drop(gone)
    clean = {(e.reader, e.call, e.encoding) for r in talk.readings() for e in [r.edge] if e.verdict == "clean"}
    assert not leaking & clean


def test_the_verdict_imports_no_engine_and_no_event_loop() -> None:
    never = ("torch", "anyio", "rich", "typer", "agentcho.engine", "agentcho.runner")
    code = f"import sys, agentcho.audit, agentcho.audit.audit; sys.exit(any(m in sys.modules for m in {never}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
