"""How many agents a store has room for: the search, who reads what, and a store too small for the baseline."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcho import Engine
from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE
from agentcho.lab.bench.result import Figures, read_result
from agentcho.records.trace import Workflow
from tools.bench.room import GROUP, ROUNDS, crowd, most, room
from tools.bench.tables import table
from tools.pages.speed import page

from .conftest import result
from .test_small import quiet, run


@pytest.mark.parametrize("fit", [0, 7, 8, 15, 16, 39, 40, 41, 63, 64, 1000])
def test_the_most_that_fit_are_found(fit: int) -> None:
    def fits(agents: int) -> bool:
        tried.append(agents)
        return agents <= fit

    tried = list[int]()
    assert most(fits, cap=64) == max(size for size in range(0, 65, GROUP) if size <= fit)
    assert len(tried) <= 7
    assert max(tried) <= 64


def test_a_crowd_reads_its_prompt_the_document_and_the_last_words() -> None:
    trace = crowd(2 * GROUP, 20, 1)
    said = [message for message in trace.messages if message.kind == "decode"]
    assert len(said) == 2 * GROUP * ROUNDS
    assert said[0].parents == ("brief agent0", "document")
    assert said[GROUP].parents == ("brief agent8", "document", "agent7 0")
    assert said[2 * GROUP].parents == ("brief agent0", "document", "agent15 0")
    briefs = [message for message in trace.messages if message.id.startswith("brief")]
    assert all(message.audience == (message.author,) for message in briefs)
    assert len({message.text for message in briefs}) == 2 * GROUP


def test_a_crowd_whose_prompts_begin_alike_says_the_same_words() -> None:
    apart, alike = crowd(GROUP, 20, 1), crowd(GROUP, 20, 1, shared_first=True)
    assert alike.messages[-1].parents == ("document", "brief agent7", "agent7 1")
    assert [message.text for message in alike.messages] == [message.text for message in apart.messages]


def test_each_arm_is_asked_for_its_own_number(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With simulated times by which the baseline is late from 17 agents on, or from 33 where prompts begin alike, and
    the other arms from 41."""

    def taken(engine: Engine, trace: Workflow, arm: str) -> float:
        alike = trace.messages[-1].parents[0] == "document"
        return 9.0 if len(trace.agents) > (40 if arm != BASELINE else 32 if alike else 16) else 1.0

    monkeypatch.setattr("tools.bench.room.first_token", taken)
    monkeypatch.setattr("tools.bench.room.with_words", judged)
    figures = room(engine, [AUDIT, BASELINE], 10, None, 2, 1, quiet)
    assert [(each.subject, each.arm, each.values["agents"]) for each in figures] == [
        ("a document of 10 words", AUDIT, (40, 40)),
        ("a document of 10 words", BASELINE, (16, 16)),
        ("a document of 10 words, which stands first", AUDIT, (40, 40)),
        ("a document of 10 words, which stands first", BASELINE, (32, 32)),
    ]
    assert {(each.values["limit"], each.values["kl"]) for each in figures} == {((2.0, 2.0), (0.5,))}


def test_one_run_that_comes_late_does_not_end_the_search(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[int, str]] = []

    def late_at_first(engine: Engine, trace: Workflow, arm: str) -> float:
        runs.append((len(trace.agents), arm))
        return 9.0 if len(trace.agents) > 40 or (arm == AUDIT and runs.count(runs[-1]) == 1) else 1.0

    monkeypatch.setattr("tools.bench.room.ORDERS", {"": False})
    monkeypatch.setattr("tools.bench.room.first_token", late_at_first)
    monkeypatch.setattr("tools.bench.room.with_words", judged)
    figures = room(engine, [AUDIT], 10, None, 1, 1, quiet)
    assert figures[0].values["agents"] == (40,)


def test_the_target_is_of_agents_and_counts_equal_words_alone(tmp_path: Path) -> None:
    values: dict[tuple[str, str], dict[str, list[float]]] = {
        ("d", BASELINE): {"agents": [16.0]},
        ("d", AUDIT): {"agents": [40.0], "kl": [0.2]},
        ("d", ENFORCE): {"agents": [40.0], "kl": [0.001]},
    }
    found = result(values, bench="room", repeats=1, model="understudy")
    assert [(each.reached.middle, each.verdict) for each in found.targets] == [(2.5, "fast, but changed"), (2.5, "met")]
    (tmp_path / "bench-room.json").write_text(found.model_dump_json())
    assert "Agents in the same bytes" in page(tmp_path)
    assert re.search(r"kl +0\.2000\n", table(found))
    none = result({**values, ("d", BASELINE): {"agents": [0.0]}}, bench="room", repeats=1)
    assert none.targets == ()


def test_the_command_finds_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json = tmp_path / "bench-room.json"
    asked = ("--limit", "100", "--words", "10", "--repeats", "1", "--json", str(json))
    monkeypatch.setattr("tools.bench.room.most", few)
    monkeypatch.setattr("tools.bench.room.first_token", lambda *asked: 1.0)
    monkeypatch.setattr("tools.bench.room.with_words", judged)
    assert run("room", *asked, monkeypatch=monkeypatch, engine=engine) == 0
    assert "agents in the same bytes" in capsys.readouterr().out
    assert read_result(json).values("a document of 10 words", BASELINE, "agents") == (8.0,)


def few(fits: Callable[[int], bool]) -> int:
    """A search that ends at one group."""
    return most(fits, cap=GROUP)


def judged(engine: Engine, trace: Workflow, figures: list[Figures]) -> list[Figures]:
    """Adds a divergence of half a nat from the baseline."""
    return [each.model_copy(update={"values": each.values | {"kl": (0.5,)}}) for each in figures]
