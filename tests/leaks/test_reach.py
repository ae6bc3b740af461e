"""The predicted cone of a call, from the graph alone, equals that of the independent rules in `leaks.reach`."""

from __future__ import annotations

from random import Random

import pytest

from agentcho.config import Leakage, ReusePolicy
from agentcho.message import Audience, Metadata
from agentcho.provenance.drafts import Draft
from agentcho.provenance.planned_reach import PlannedReach
from agentcho.provenance.views import Read, ReadSet

from .reach import Said, World
from .scripts import script


def graph(seed: int) -> tuple[World, dict[str, Draft]]:
    random, world, drafts = Random(seed), World(), dict[str, Draft]()
    for number, (plan, _) in enumerate(script(random, 20)):
        id = str(number)
        ids = tuple(read for read, _ in plan.reads)
        public = frozenset(read for read in ids if random.random() < 0.2)
        reads = ReadSet(plan.author, tuple(Read(read, public=read in public) for read in ids), None, ())
        world.said[id] = Said(id, plan.author, plan.audience, ids, public)
        data = Metadata(id, "decode", "assistant", plan.author, Audience(plan.audience), ids)
        drafts[id] = Draft(data, "", None, reads)
    return world, drafts


@pytest.mark.parametrize("leakage", ["audit", "enforce", "deny"])
def test_the_cone_of_a_call_before_it_is_made(leakage: Leakage) -> None:
    for seed in range(10):
        world, drafts = graph(seed)
        reach, baseline = (
            PlannedReach(ReusePolicy("choreographed", leakage), drafts),
            PlannedReach(ReusePolicy("baseline"), drafts),
        )
        for said in world.said.values():
            reads = drafts[said.id].reads
            assert set(baseline.of(reads)) == set(said.reads)
            heard = frozenset[str]().union(*(world.heard(said.author, id, id in said.public) for id in said.reads))
            carried = frozenset[str]().union(*map(world.reach, said.reads))
            assert frozenset(reach.of(reads)) == (heard if leakage == "enforce" else carried)


def test_a_chain_may_be_as_long_as_a_game() -> None:
    drafts = dict[str, Draft]()
    for number in range(3000):
        before = (str(number - 1),) if number else ()
        reads = ReadSet("x", tuple(map(Read, before)), None, ())
        data = Metadata(str(number), "decode", "assistant", "x", Audience(None), before)
        drafts[data.id] = Draft(data, "", None, reads)
    assert len(PlannedReach(ReusePolicy(), drafts).of(ReadSet("x", (Read("2999"),), None, ()))) == 3000
