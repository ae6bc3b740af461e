"""`agentcho prove` end to end on a small model: what it plays and writes, and its exit codes."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

import pytest

from agentcho import Engine
from agentcho.display.progress import EVERY
from agentcho.lab.prove import Proof
from agentcho.provenance.resolver import Resolver
from agentcho.records.trace import write_traces
from tests.audit.talks import talks
from tests.engines import Engines
from tests.killed import Written

from .conftest import Command, one_line


@pytest.fixture(scope="module")
def small(engines: Engines) -> Engine:
    """A random Llama, which commands load in place of any other model."""
    return engines(store_tokens=1 << 14)


@pytest.fixture
def loaded(small: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda config, tell=None: small)
    return small


@pytest.fixture
def traces(here: Path) -> str:
    write_traces(here / "talks.jsonl", talks(2))
    return "talks.jsonl"


def proof(path: str = "p.json") -> Proof:
    return Proof.model_validate_json(Path(path).read_bytes())


@pytest.mark.slow
def test_a_file_of_traces_holds(agentcho: Command, loaded: Engine, traces: str) -> None:
    ran = agentcho("prove", traces, "-n", "2", "--json", "p.json", "--html", "p.html")
    assert (ran.code, ran.err) == (0, "")
    first, second, *lines = ran.out.splitlines()
    assert first == "HOLDS: bit-identical under enforce in 4 of 4, different under audit in 4"
    assert second.startswith("talks.jsonl · ")
    rows = [
        line for line in lines if re.search(r"audit [0-9a-f]{10} ≠ [0-9a-f]{10}   enforce ([0-9a-f]{10}) = \1$", line)
    ]
    assert len(rows) == 4
    assert any("time to first token is" in line for line in lines)
    found, page = proof(), Path("p.html").read_text()
    assert (found.workflows, found.source, found.swap) == (2, "talks.jsonl", "same-length")
    assert "HOLDS" in page
    for one in found.compared:
        assert one.enforce.before in page
    assert "apples" not in page + ran.out + found.model_dump_json()


@pytest.mark.slow
def test_it_says_how_far_it_is(agentcho: Command, loaded: Engine, traces: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count(0.0, EVERY)
    monkeypatch.setattr("agentcho.display.progress.monotonic", lambda: next(ticks))
    ran = agentcho("prove", traces, "-n", "2", "--of", "alice", "--json", "-")
    assert ran.err.splitlines() == [
        "prove: 0 of 2 workflows",
        "prove: 1 of 2 workflows, 2.0 workflows/min, 30 s left",
        "prove: 2 of 2 workflows, 2.0 workflows/min, 0 s left",
    ]
    assert ran.out.startswith("{")


@pytest.mark.slow
def test_one_owner_another_swap_and_nothing_else_on_standard_output(
    agentcho: Command, loaded: Engine, traces: str
) -> None:
    ran = agentcho("prove", traces, "--of", "bob", "--swap", "absent", "--json", "-")
    found = Proof.model_validate_json(ran.out)
    assert {one.owner for one in found.compared} == {"bob"}
    assert (ran.code, found.swap, len(found.waits)) == (0, "absent", 2)


@pytest.mark.slow
def test_an_enforcement_that_leaks_ends_with_one(
    agentcho: Command, loaded: Engine, traces: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Resolver, "enforcing", property(lambda self: False))
    monkeypatch.setattr(Resolver, "_guard", lambda self, draft, clearance: None)
    ran = agentcho("prove", traces, "--html", "p.html")
    assert ran.code == 1
    assert ran.out.startswith("BROKEN: under enforce something changed for a reader in 4 of 4: alice of bob and bob of")
    assert "BROKEN" in Path("p.html").read_text()


@pytest.mark.slow
def test_a_scenario_is_played_and_then_proved_and_its_record_can_be_proved_again(
    agentcho: Command, loaded: Engine
) -> None:
    words = ("-n", "1", "--max-tokens", "2", "--display", "plain")
    ran = agentcho("prove", "prisoners-dilemma", *words, "--json", "p.json")
    assert ran.code == 0, ran.out + ran.err
    again = agentcho("prove", "last", "--json", "q.json")
    assert again.code == 0
    assert proof().compared == proof("q.json").compared
    assert proof("q.json").source == "last"


@pytest.mark.slow
def test_of_a_run_that_was_killed_what_there_is_is_played_and_named(
    agentcho: Command, loaded: Engine, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(monkeypatch)
    agentcho("run", "prisoners-dilemma", "--games", "2", "--max-tokens", "3", "--display", "none")
    left = (written.left(here / str(count), count) for count in range(len(written.writes), 0, -1))
    run = next(run for run in left if [entry.ended for entry in run.entries()].count("died") == 2)
    assert not run.finished()
    ids = [workflow.id for workflow in run.export()]
    ran = agentcho("prove", run.path.name, "--json", "p.json", "--html", "p.html", "--display", "plain")
    assert (ran.code, ran.err) == (0, "")
    found = proof()
    assert (found.unfinished, found.workflows) == (tuple(ids), 2)
    assert {one.workflow for one in found.compared} == set(ids)
    told = f"2 of 2 workflows without an end, taken as far as played: {ids[0]} and {ids[1]}"
    assert told in " ".join(ran.out.split())
    assert told in Path("p.html").read_text()


def test_what_cannot_be_is_said_before_a_model_is_loaded(agentcho: Command, no_model: None, traces: str) -> None:
    assert "there is no agent eve" in one_line(agentcho("prove", traces, "--of", "eve"))
    for words in (
        (traces, "--model", "fake"),
        (traces, "--set", "a=b"),
        (traces, "--html", "no/p.html"),
        (traces, "--stride", "0"),
        ("nobody-knows-it",),
        ("prisoners-dilemma", "--set", "nothing=1"),
    ):
        assert agentcho("prove", *words).code == 2, words


def test_nothing_to_show_ends_with_three(agentcho: Command, loaded: Engine, here: Path) -> None:
    one = talks(1)[0]
    said = tuple(m.model_copy(update={"audience": "everyone"}) for m in one.messages)
    write_traces(here / "open.jsonl", [one.model_copy(update={"messages": said})])
    ran = agentcho("prove", "open.jsonl", "--html", "p.html")
    assert ran.code == 3
    assert ran.out.startswith("INCONCLUSIVE: nothing could be compared, so this shows nothing")
    assert "nothing is kept from it" in ran.out + Path("p.html").read_text()


MEETING = """
import agentcho


class Plans(agentcho.Agent):
    async def run(self):
        await self.think(max_tokens=12)
        await self.tell("I am ready.", to="everyone")


class Talks(agentcho.Agent):
    async def run(self):
        for _ in range(4):
            await self.say(to="everyone", max_tokens=3)


class Meeting(agentcho.Scenario):
    class Options(agentcho.Scenario.Options):
        lockstep: bool = False

    async def play(self, game):
        cast = game.cast(Plans, "alice"), game.cast(Talks, "bob")
        await (game.lockstep if self.options.lockstep else game.play_agents)(*cast)
        return self.Outcome()
"""


def flat(text: str) -> str:
    """The output joined into one line."""
    return " ".join(text.split())


@pytest.mark.slow
def test_a_free_schedule_tells_and_in_lockstep_does_not(agentcho: Command, loaded: Engine, here: Path) -> None:
    (here / "meeting.py").write_text(MEETING)
    ran = agentcho("prove", "meeting.py", "-n", "2", "--free-schedule", "--json", "p.json")
    assert ran.code == 1
    assert "the schedule reveals how long private messages are in 2 of 2 comparisons: bob of alice" in flat(ran.out)
    assert [one.reader for one in proof().free or ()] == ["bob", "bob"]
    again = agentcho("prove", "last", "--free-schedule", "--json", "q.json")
    assert (again.code, proof("q.json").free) == (1, proof().free)
    frozen = agentcho("prove", "last")
    assert "The schedule is frozen" in flat(frozen.out)
    calm = agentcho("prove", "meeting.py", "-n", "2", "--free-schedule", "--set", "lockstep=true")
    assert "no reader observed a difference in 2 comparisons" in flat(calm.out)
    assert calm.code in (0, 3)


def test_what_has_no_code_cannot_be_played_free(agentcho: Command, loaded: Engine, traces: str) -> None:
    ran = agentcho("prove", traces, "--free-schedule")
    assert ran.code == 2
    assert "a trace has no code to play; give a scenario or a recorded run" in flat(ran.err)
