"""Random workflows with the real resolver and journal, on an engine that keeps sets: at all times no reader has
attended to anything outside its view, and every cone is exactly what reachability gives.

A state machine plays one or two concurrent games on one engine: agents join, some late; plans, whispers and public
messages, of known text and generated, each over any messages in any order and at any positions; released words; rounds;
a second game with the first one's words; encodings evicted and made again; transcripts written and read back. In some
runs the engine ignores guards, so that resolving alone has to be right.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentcho.config import ReusePolicy
from agentcho.errors import LeakageError
from agentcho.provenance.labels import Ledger
from agentcho.provenance.views import After
from agentcho.reuse.ends import Ends
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.kvcomm import KVComm

from .checks import Check
from .sets import Sets
from .stage import Plan, Talk

NAMES = ("ann", "bob", "cid", "dot", "eve")


class Workflow(RuleBasedStateMachine):
    """At most two plays; `cast` are the agents that have joined so far."""

    @initialize(
        leakage=st.sampled_from(["audit", "enforce", "enforce", "deny"]),
        shadow=st.sampled_from(["auto", "always", "never"]),
        deterministic=st.booleans(),
        guarded=st.booleans(),
        repair=st.sampled_from([None, None, FirstK(2), "full", KVComm()]),
        judge=st.sampled_from([Ends(1, 1), Ends(0, 2), "full"]),
    )
    def begin(self, leakage: Any, shadow: Any, deterministic: bool, guarded: bool, repair: Any, judge: Any) -> None:
        self.reuse = ReusePolicy(
            "choreographed",
            leakage,
            "auto" if deterministic and shadow == "always" else shadow,
            deterministic,
            repair=repair,
            judge=judge,
        )
        self.engine = Sets(guarded)
        self.talks, self.checks = list[Talk](), list[Check]()
        self.cast = list(NAMES[:2])
        self._begin(Talk(self.engine, self.reuse))

    def _begin(self, talk: Talk) -> None:
        self.talks.append(talk)
        self.checks.append(Check(talk))

    # -- acts --------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.cast) < len(NAMES))
    @rule()
    def join(self) -> None:
        self.cast.append(NAMES[len(self.cast)])

    @rule(data=st.data())
    def announce(self, data: st.DataObject) -> None:
        """The scenario says something to some or to everyone."""
        talk = data.draw(st.sampled_from(self.talks))
        plan = Plan(None, self._audience(data, None), self._words(talk))
        self._put(talk, plan)

    @rule(data=st.data())
    def tell(self, data: st.DataObject) -> None:
        """An agent's message of known text."""
        talk = data.draw(st.sampled_from(self.talks))
        plan = self._plan(data, talk, data.draw(st.sampled_from(self.cast)))
        if self._free(talk, plan):
            self._put(talk, plan)

    @rule(data=st.data())
    def say(self, data: st.DataObject) -> None:
        """One or several agents generate without hearing each other."""
        talk = data.draw(st.sampled_from(self.talks))
        round = data.draw(st.lists(st.sampled_from(self.cast), min_size=1, max_size=3, unique=True))
        plans = [self._plan(data, talk, author) for author in round]
        if all(self._free(talk, plan) for plan in plans):
            talk.speak(*plans)

    @precondition(lambda self: any(talk.out for talk in self.talks))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """An agent repeats the words of a message to others, as a new message."""
        talk = data.draw(st.sampled_from([talk for talk in self.talks if talk.out]))
        said = talk.world.said[data.draw(st.sampled_from(talk.out))]
        author = data.draw(st.sampled_from(self.cast))
        plan = self._plan(data, talk, author)._replace(text=talk.plans[said.id].text)
        if self._free(talk, plan):
            self._put(talk, plan)

    @precondition(lambda self: any(talk.out for talk in self.talks))
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        talk = data.draw(st.sampled_from([talk for talk in self.talks if talk.out]))
        used = talk.evict(data.draw(st.sampled_from(talk.out)))
        judged = any(plan.judges for plan in talk.plans.values())
        assert used <= 2 or judged or talk.reuse.repair is not None

    @precondition(lambda self: len(self.talks) == 1 and self.talks[0].out)
    @rule()
    def fork(self) -> None:
        """A second game says everything that the first has said, in the same words, and continues by itself."""
        self._begin(self.talks[0].again(1))

    @rule()
    def save_and_load(self) -> None:
        """The transcript round-trips; cones computed again from its receipts are the same."""
        for talk in self.talks:
            loaded, ledger = talk.loaded(), Ledger()
            assert loaded == talk.entries
            for record in sorted((r for entry in loaded for r in entry.made), key=lambda r: r.id):
                again = ledger.record(record.id, record.message, record.caller, record.recipe, record.receipt)
                assert again == record == talk.records[record.id]

    # -- invariants --------------------------------------------------------------------------------------

    @invariant()
    def all_is_as_reachability_says(self) -> None:
        for check in getattr(self, "checks", []):
            check()

    def teardown(self) -> None:
        for talk in getattr(self, "talks", []):
            talk.end()
        self.all_is_as_reachability_says()
        assert not hasattr(self, "engine") or not self.engine.held

    # -- drawing -----------------------------------------------------------------------------------------

    def _words(self, talk: Talk) -> str:
        return "w" + " x" * (len(talk.world.said) % 4) + f" {talk.game}-{len(talk.world.said)}"

    def _audience(self, data: st.DataObject, author: str | None) -> frozenset[str] | None:
        if data.draw(st.booleans()):
            return None
        own = {author} if author else set[str]()
        return frozenset(data.draw(st.sets(st.sampled_from(self.cast), max_size=3)) | own)

    def _plan(self, data: st.DataObject, talk: Talk, author: str) -> Plan:
        """Mostly over messages that its author may read; sometimes over any."""
        mine = [id for id in talk.out if not talk.world.direct(author, (id,))]
        pool = talk.out if data.draw(st.integers(0, 9)) == 7 else mine
        chosen = data.draw(st.permutations(pool))[: data.draw(st.integers(0, 5))]
        reads = tuple((id, self._place(data, chosen[:i])) for i, id in enumerate(chosen))
        at = self._place(data, chosen)
        public = frozenset(id for id in chosen if data.draw(st.integers(0, 3)) == 3)
        judges = data.draw(st.integers(0, 3)) == 3
        return Plan(author, self._audience(data, author), self._words(talk), reads, at, public=public, judges=judges)

    def _place(self, data: st.DataObject, before: list[str]) -> Any:
        kind = data.draw(st.sampled_from(["next"] * 6 + ["number", "after", "rightmost"]))
        if kind == "number":
            return data.draw(st.integers(0, 60))
        if kind == "after" and before:
            return After(data.draw(st.sampled_from(before)), data.draw(st.integers(-1, 3)))
        return "rightmost" if kind == "rightmost" else None

    # -- refusals ----------------------------------------------------------------------------------------

    def _free(self, talk: Talk, plan: Plan) -> bool:
        """Whether the plan is allowed; if not, asserts that it is refused and changes nothing."""
        assert plan.author is not None
        refused = {
            "audit": False,
            "enforce": talk.world.direct(plan.author, plan.ids),
            "deny": talk.world.carried(plan.author, plan.ids),
        }[self.reuse.leakage]
        if refused:
            before = (len(talk.entries), len(talk.world.said), self.engine.held)
            with pytest.raises(LeakageError):
                talk.speak(plan)
            assert before == (len(talk.entries), len(talk.world.said), self.engine.held)
        return not refused

    def _put(self, talk: Talk, plan: Plan) -> None:
        talk.put(plan)


def _explore(examples: int, steps: int, same: bool) -> None:
    """There is no shrinking: a failure is reported at once, with the acts that led to it. `same`: deterministic."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=checks,
        derandomize=same,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(Workflow, settings=options)


@pytest.mark.slow
def test_random_workflows() -> None:
    """Fifty workflows of thirty acts each."""
    _explore(50, 30, same=True)


@pytest.mark.slow
def test_many_random_workflows() -> None:
    """Two thousand workflows."""
    _explore(2000, 40, same=True)
