"""Every family against the oracle, in every shape of history: the same log-probabilities to 1e-4 in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcho import Decode, Prefill, Sampling

from ..engines import Engines
from .families import Family, cell, families, named
from .stage import Stage

TOLERANCE = 1e-4
Gaps = Iterator[float]
Record = Callable[[str, str, float], None]
Graph = list[tuple[list[tuple[int, int | None]], int | None]]


def linear(stage: Stage) -> Gaps:
    """Each message over all before it, the system message first."""
    ids: list[int] = []
    for text, role in (("be brief", "system"), ("who is it", "user"), ("me", "assistant"), ("who?", "user")):
        ids += stage.prefill(Prefill(text, parents=tuple(ids), role=role))
        yield stage.probe(ids)


def branched(stage: Stage) -> Gaps:
    """Two messages that do not see each other, and one that sees both."""
    [root] = stage.prefill(Prefill("root"))
    left, right = stage.prefill(Prefill("left", parents=[root]), Prefill("to the right", parents=[root]))
    [both] = stage.prefill(Prefill("both", parents=[root, left, right]))
    for parents in ([root, left], [root, right], [root, left, right, both], [right, both]):
        yield stage.probe(parents)


def two_offsets(stage: Stage) -> Gaps:
    """One parent at different positions in parallel calls, and twice in one call."""
    [a] = stage.prefill(Prefill("the same"))
    calls = [Prefill("x", parents=[a], offsets=[at]) for at in (1, 6, 19)]
    one, two, three = stage.prefill(*calls, Prefill("y", parents=[a, a], offsets=[2, 30], new_offset=17))[:3]
    yield stage.probe([one, two, three])
    for id in stage.prefill(*(Prefill("x", parents=[a], offsets=[at], new_offset=28) for at in (12, 17))):
        yield stage.probe([id])
    yield stage.probe([a, three, a], offsets=[4, None, 40])


def with_gap(stage: Stage) -> Gaps:
    """Gaps of a few and of a thousand positions."""
    [a] = stage.prefill(Prefill("far away", new_offset=5))
    b, c = stage.prefill(
        Prefill("a gap", parents=[a], offsets=[9], new_offset=31),
        Prefill("and off", parents=[a], new_offset=1100),
    )
    yield stage.probe([a, b], offsets=[3, 24])
    yield stage.probe([a, c], offsets=[None, 1090], new_offset=1103)


def overlap(stage: Stage) -> Gaps:
    """Several tokens share a position, including the message's own."""
    a, b = stage.prefill(Prefill("one thing"), Prefill("another"))
    [c] = stage.prefill(Prefill("both at once", parents=[a, b], offsets=[3, 5], new_offset=8))
    yield stage.probe([a, b, c], offsets=[2, 2, 2], new_offset=4)
    yield stage.probe([c, a], offsets=[0, 0])


def reorder(stage: Stage) -> Gaps:
    """Parents in a different order than they were made in, and positions that contradict that order."""
    a, b, c = stage.prefill(Prefill("first"), Prefill("second one"), Prefill("the third"))
    [d] = stage.prefill(Prefill("mixed", parents=[c, a, b]))
    [e] = stage.prefill(Prefill("later ones", parents=[a, b], offsets=[24, 3], new_offset=14))
    yield stage.probe([b, d, a])
    yield stage.probe([e, d, c], offsets=[30, 12, 1], new_offset=20)


def five_hops(stage: Stage) -> Gaps:
    """Each hop is read only by the next, at a different position than it was made at."""
    [last] = stage.prefill(Prefill("hop"))
    for hop in range(1, 6):
        at = None if hop % 2 else 3 * hop
        [last] = stage.prefill(Prefill(f"hop {hop}", parents=[last], offsets=[at]))
    yield stage.probe([last])
    yield stage.probe([last], offsets=[2])


def whole_graph(stage: Stage) -> Gaps:
    """One list of messages that read each other, and one stored message."""
    [old] = stage.prefill(Prefill("old"))
    root = Prefill("the root", role="system")
    left, right = Prefill("left", parents=[root, old]), Prefill("right", parents=[root], offsets=[7])
    join = Prefill("join", parents=[right, left, root], offsets=[None, 20, 4])
    end = Prefill("end", parents=[join, old], role="assistant", new_offset=26)
    ids = stage.prefill(root, left, right, join, end)
    for id in ids:
        yield stage.probe([id])
    yield stage.probe(ids)


def decoded(stage: Stage) -> Gaps:
    """Greedy decodes of several lengths side by side, each over its own context, and then read."""
    a, b = stage.prefill(Prefill("over and over, " * 6), Prefill("again"))
    calls = [
        Decode("To Bob: ", parents=[a], sampling=Sampling(temperature=0, max_tokens=24)),
        Decode(parents=[b, a], offsets=[9, 5], sampling=Sampling(temperature=0, max_tokens=7)),
        Decode(parents=[b], offsets=[40], new_offset=22, sampling=Sampling(temperature=0, max_tokens=14)),
        Decode("alone", sampling=Sampling(temperature=0, max_tokens=1)),
    ]
    ids, worst = stage.decode(*calls)
    yield worst
    yield stage.probe([ids[1], ids[0]])
    yield stage.probe(ids[2:], offsets=[3, 60])


CASES = (linear, branched, two_offsets, with_gap, overlap, reorder, five_hops, whole_graph, decoded)
QUICK = (decoded,)
ALIKE = ("qwen2", "olmo2", "phi3", "starcoder2", "phi", "smollm3", "cohere2", "qwen3_moe")
"""Families whose attention and experts another family here also covers."""
CELLS = [
    cell(one, case, quick=one.name == "llama" or (case in QUICK and one.name not in ALIKE))
    for one in families()
    for case in CASES
]


@pytest.mark.parametrize(("family", "case"), CELLS)
def test_family(family: Family, case: Callable[[Stage], Gaps], stage: Stage, record: Record) -> None:
    worst = max(case(stage))
    record(family.name, case.__name__, worst)
    assert worst < TOLERANCE


PLACE = st.none() | st.integers(0, 60)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """For each message: the earlier ones it reads, their positions, and its own position."""
    read = [st.lists(st.tuples(st.integers(0, i - 1), PLACE), max_size=3) if i else st.just([]) for i in range(5)]
    return [(draw(parents), draw(PLACE)) for parents in read]


@pytest.mark.slow
@pytest.mark.parametrize("family", named("gemma2", "llama4_text", "gpt_oss", "exaone4", quick="llama4_text"))
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(), cut=st.integers(0, 4))
def test_any_graph(engines: Engines, family: Family, graph: Graph, cut: int) -> None:
    """Random graphs, partly encoded beforehand."""
    stage, calls, ids = Stage(family, engines(family), engines.stock(family)), list[Prefill](), list[int]()
    for i, (parents, start) in enumerate(graph):
        if i == cut and calls:
            ids, calls = stage.prefill(*calls), []
        known = [ids[p] if p < len(ids) else calls[p - len(ids)] for p, _ in parents]
        calls.append(Prefill(f"it is {i}", parents=known, offsets=[at for _, at in parents], new_offset=start))
    ids += stage.prefill(*calls)
    assert max(stage.probe([id], offsets=[7], new_offset=20) for id in ids) < TOLERANCE
    stage.close()
