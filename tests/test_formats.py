"""Files of every format ever written can still be read: the fixtures are never rewritten."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open

from agentcho.audit import audit_run, read_report
from agentcho.audit.planned import plan
from agentcho.audit.report import Edge
from agentcho.engine.lora_adapter import WEIGHTS, find_adapter
from agentcho.lab.bench.result import read_result
from agentcho.lab.collect import collected
from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.leaks.result import read_leaks
from agentcho.lab.paper.found import PaperFound, digest_of
from agentcho.provenance.views import After
from agentcho.records.record import SavedRun
from agentcho.records.trace import read_traces

FORMATS = Path(__file__).parent / "fixtures" / "formats"
RUNS = {"placed": (2, 20), "killed": (2, 9), "repaired": (1, 8), "enforced": (1, 10), "baseline": (1, 10)}


def saved(name: str) -> SavedRun:
    return SavedRun(FORMATS / "run" / name)


def test_no_fixture_was_written_anew() -> None:
    for line in (FORMATS / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((FORMATS / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("name", RUNS)
def test_a_record_is_read_whole(name: str) -> None:
    run = saved(name)
    games = run.games()
    assert (len(games), sum(map(len, games.values()))) == RUNS[name]
    for entry in run.entries():
        own = entry.own
        assert own is not None
        assert own.message == entry.message.id
        assert entry.message.id in own.cone
    assert [w.meta["game"] for w in run.export()] == list(games)


def test_what_a_line_can_hold_is_still_there() -> None:
    entries = {entry.message.id: entry for entry in saved("placed").games()[0]}
    placed = next(e for e in entries.values() if e.message.id == "bob.0")
    assert (placed.act.places[0], placed.act.places[1]) == (40, After("scenario.0", 3))
    assert any(entry.act.tainted_by for entry in entries.values())
    assert any(entry.act.choices == ("yes.", "no.") for entry in entries.values())
    assert {entry.act.where for entry in entries.values()} >= {"odd.py:24"}
    bases = [record.receipt.base for entry in saved("repaired").entries() for record in entry.made]
    assert any(base is not None for base in bases)
    recipes = {record.recipe for entry in saved("enforced").entries() for record in entry.made}
    assert recipes == {"author", "audience"}


def test_an_audit_of_an_old_record_says_what_it_said() -> None:
    report, now = read_report(FORMATS / "audit" / "report.json"), audit_run(saved("placed"))
    assert (now.conclusion, now.clean_edges) == (report.conclusion, report.clean_edges)
    assert [_without_end(edge) for edge in now.edges] == [_without_end(edge) for edge in report.edges]
    assert (now.releases, now.blockages) == (report.releases, report.blockages)
    assert audit_run(saved("killed")).conclusion != "clean"
    assert read_report(FORMATS / "audit" / "measured.json").measurement is not None


def _without_end(edge: Edge) -> Edge:
    """An edge without the last message of its path, which may be any of its nearest secrets."""
    assert not edge.path or edge.path[-1] in edge.secrets
    return edge.model_copy(update={"path": edge.path[:-1]})


def test_traces_are_read_and_played() -> None:
    exported, sampled = (read_traces(FORMATS / "trace" / f"{name}.jsonl") for name in ("exported", "sampled"))
    assert exported == saved("placed").export()
    assert [trace.meta["game"] for trace in sampled] == [0, 1, 2, 3]
    for trace in sampled:
        assert len(plan(trace, "choreographed", "audit").entries) == len(trace.messages) > 0


def test_an_adapter_is_found() -> None:
    adapter = find_adapter(FORMATS / "adapter" / "trained")
    assert adapter.trained is not None
    assert (adapter.trained.scenario, adapter.trained.train, adapter.trained.dev) == ("multi-qa", 3, 1)
    assert adapter.trained.speed is not None
    with safe_open(adapter.path / WEIGHTS, "np") as weights:
        assert len(weights.keys()) == 32


def test_a_training_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    from agentcho.lab.tune.folder import Folder

    there = shutil.copytree(FORMATS / "adapter" / "unfinished", tmp_path / "unfinished")
    folder = Folder(there, json.loads((there / "going" / "request.json").read_bytes()))
    state = folder.saved()
    assert state is not None
    assert (state["step"], [line["step"] for line in folder.log()]) == (2, [0, 1, 2, 2])


def test_a_comparison_is_read_with_its_games() -> None:
    found = read_comparison(FORMATS / "compare" / "compare.json")
    assert found.names == ("baseline", "choreographed:audit")
    assert found.metrics[0].means["baseline"].value == 7.5
    for name in ("baseline", "choreographed-audit"):
        assert sorted(collected(FORMATS / "compare" / name).finished) == [0, 1]


def test_a_benchmark_is_read() -> None:
    found = read_result(FORMATS / "bench" / "workflows.json")
    assert (found.bench, found.arms) == ("workflows", ("choreographed:audit", "baseline"))
    assert json.loads((FORMATS / "bench" / "leakage.json").read_bytes())["format"] == "agentcho-bench-leakage/1"


def test_what_attacks_found_is_read() -> None:
    found = read_leaks(FORMATS / "bench" / "leaks.json")
    assert (found.n, [each.kind for each in found.secrets]) == (20, ["codes"])
    assert [(row.way, row.attack, row.tested) for row in found.rows] == [
        (way, attack, 5) for way in ("reuse", "text") for attack in ("linear", "collision")
    ]
    assert [claim.way for claim in found.claims] == ["reuse"]
    assert [len(cost.seconds) for cost in found.costs] == [1, 1]


def test_a_reproduction_of_the_paper_is_read() -> None:
    text = (FORMATS / "paper" / "paper.json").read_text()
    found = PaperFound.model_validate_json(text)
    assert found.digest == digest_of(json.loads(text))
    assert (found.games, found.quick, [table.name for table in found.tables]) == (2, True, ["1"])
    played = [row for row in found.tables[0].rows if row.left_out is None]
    assert [row.scores["all right"].mean.games for row in played] == [2, 2, 2, 2]
    assert {each.scenario: each.loaded.same for each in found.sets if each.loaded is not None}["multi-qa"] == 2
    assert len(found.phases) > 4
