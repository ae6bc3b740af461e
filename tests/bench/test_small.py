"""The benchmarks of single operations, and the commands, on a small model."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from agentcho import Engine, Metadata, View, cli
from agentcho.cli import main
from agentcho.display.progress import EVERY
from agentcho.lab.bench.result import read_result
from agentcho.lab.commands.bench import MOVED
from agentcho.protocol.call import StepResult
from tools.bench.commands import app
from tools.bench.cost import ARMS
from tools.bench.growth import growing, growth, sizes_of
from tools.bench.overhead import requests, share
from tools.bench.rates import Rates, Work, work
from tools.bench.roofline import roofline
from tools.bench.society import CIRCLE, society
from tools.bench.stall import ROWS, STEPS, _take, stall
from tools.bench.step import step
from tools.bench.stream import ARMS as STREAMS
from tools.bench.stream import stream
from tools.pages.sentences import with_sentences
from tools.pages.speed import page


def quiet(what: str, done: int, of: int) -> None:
    """Ignores progress."""


@pytest.mark.slow
def test_steps_of_both_are_timed_over_the_same_context(engine: Engine) -> None:
    found = {(each.subject, each.arm): each.values["seconds"] for each in step(engine, 40, 2, 1)}
    both = {(rows, arm) for rows in ("1 row", "8 rows") for arm in ("agentcho", "deterministic", "stock")}
    assert set(found) == both | {("8 rows apart", arm) for arm in ("agentcho", "deterministic")}
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in found.values())


@pytest.mark.slow
def test_growth_times_one_reader_of_each_size(engine: Engine) -> None:
    trace = growing([256, 512], 1)
    assert [len(m.parents) for m in trace.messages if m.id in ("reader 256", "reader 512")] == [2, 3]
    assert [m.parents for m in trace.messages if m.id == "told 1"] == [("reader 256",)]
    found = growth(engine, [256, 512], ["choreographed:audit", "baseline"], 1, 1, quiet)
    assert [(each.subject, each.arm) for each in found] == [
        ("256 tokens", "choreographed:audit"),
        ("256 tokens", "baseline"),
        ("512 tokens", "choreographed:audit"),
        ("512 tokens", "baseline"),
    ]
    assert all(each.values["ttft"][0] > 0 for each in found)


@pytest.mark.slow
def test_a_society_is_timed_by_its_messages_and_reads_eight_of_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list[int]()
    last = View.last

    def noted(readable: Sequence[Metadata], count: int, *, keep: Sequence[str]) -> View:
        view = last(readable, count, keep=keep)
        reads.append(len(view.reads))
        return view

    monkeypatch.setattr(View, "last", noted)
    found = society(engine, [3, 12], 2, 1, 1, quiet)
    assert [each.subject for each in found] == ["3 agents", "12 agents"]
    assert all(each.values["seconds"][0] > 0 <= each.values["memory"][0] for each in found)
    assert found[0].values["peak"][0] <= found[1].values["peak"][0]
    assert len(reads) == 2 * CIRCLE + 2 * 3 + 2 * 12
    assert set(reads[-12:]) == {3, 9}, "its prompt, and what it may read of the round before: at most eight"
    assert set(reads[-24:-12]) == {1}


def test_growth_reads_no_more_than_the_model_has_positions_for() -> None:
    assert sizes_of(40960) == (1024, 2048, 4096, 8192)
    assert sizes_of(8192) == (1024, 2048, 4096)
    assert sizes_of(512) == (1024,)


@pytest.mark.slow
def test_a_long_prefill_is_timed_beside_eight_speakers_who_all_speak(engine: Engine) -> None:
    undisturbed, alone, usual, bounded = stall(engine, 512, (None, 200), 1, 1, quiet)
    assert (undisturbed.arm, alone.arm) == ("undisturbed", "a prefill of 512 tokens alone")
    assert usual.arm == "beside a prefill of 512 tokens"
    assert bounded.arm == "beside a prefill of 512 tokens, 200 a step"
    for beside in (usual, bounded):
        assert beside.values["prefill"][0] > beside.values["p95"][0] >= beside.values["median"][0] > 0
    assert undisturbed.values["p95"][0] > 0
    assert alone.values["prefill"][0] > 0
    assert engine._scheduler._budget == engine._runner.budget


def test_undisturbed_steps_are_taken_before_a_prefill_and_after_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[bool]()
    step = engine.step

    def noted() -> StepResult:
        waited.append(len(engine.debug.calls) > ROWS)
        return step()

    monkeypatch.setattr(engine, "step", noted)
    without, during = _take(engine, 512, 1)
    assert len(without) == 2 * STEPS
    assert waited == [False, False, *[False] * STEPS, *[True] * len(during), *[False] * STEPS]


def test_overhead_is_a_share_and_requests_are_counted(engine: Engine) -> None:
    (own,) = share(engine, 3, 1, 1, quiet)
    assert own.subject == "3 agents"
    assert 0 < own.values["share"][0] < 1
    (fake,) = requests(5, 3, 1, quiet)
    assert 0 < fake.values["requests a second"][0] < fake.values["without the engine"][0]


def test_a_forward_needs_its_weights_its_cache_and_its_operations(engine: Engine) -> None:
    needed, wider = work(engine.network, 1, 1, 0), work(engine.network, 1, 1, 100)
    config = engine.network.config
    weights = sum(weight.numel() for weight in engine.network.parameters())
    assert needed.bytes <= 4 * (weights + 1000)
    cached = 2 * 4 * 100 * config.num_key_value_heads * config.head_dim * config.num_hidden_layers  # type: ignore[union-attr, operator]
    assert wider.bytes - needed.bytes == cached
    assert wider.operations > needed.operations > 0
    assert Work(10, 100).least(Rates(5, 10)) == 10
    assert Work(100, 10).least(Rates(5, 10)) == 20


@pytest.mark.slow
def test_the_roofline_tells_what_is_reached(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.bench.rates.STREAMED", 2**25)
    found = {each.subject: each.values for each in roofline(engine, 40, 1, 1, quiet)}
    assert set(found) == {
        "machine",
        "decode, 1 row",
        "decode, 8 rows",
        "decode, 8 rows apart",
        "prefill, 128 tokens",
        "prefill, 512 tokens",
    }
    for name in set(found) - {"machine"}:
        assert found[name]["reached"][0] == pytest.approx(found[name]["least"][0] / found[name]["seconds"][0])


def run(*words: str, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> int:
    """Runs `agentcho bench` for workflows, and `python -m tools.bench` for everything else."""
    monkeypatch.setattr(Engine, "load", classmethod(lambda cls, *args, **options: engine))
    shipped = words[0] == "workflows"
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", *words] if shipped else ["tools.bench", *words])
    with pytest.raises(SystemExit) as end:
        main() if shipped else cli.run(app())
    return int(end.value.code or 0)


@pytest.mark.slow
def test_the_command_prints_writes_and_draws(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json, png = tmp_path / "r.json", tmp_path / "r.png"
    words = ("--workflow", "multi-qa", "--scale", "0.05", "--repeats", "1", "--json", str(json), "--plot", str(png))
    assert run("workflows", *words, monkeypatch=monkeypatch, engine=engine) == 0
    told = capsys.readouterr()
    assert "multi-qa" in told.out
    assert "generate_batch" in told.out
    found = read_result(json)
    assert found.arms == ("choreographed:audit", "choreographed:enforce", "baseline", "generate", "generate_batch")
    assert found.command == (
        "agentcho bench workflows --workflow multi-qa --scale 0.05 --repeats 1 --json r.json --plot r.png"
    )
    assert png.is_file()


@pytest.mark.slow
def test_societies_grow_in_a_store_of_the_size_that_is_asked_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[object]()

    def load(*named: object, store_tokens: int, **options: object) -> Engine:
        asked.append(store_tokens)
        return engine

    monkeypatch.setattr(Engine, "load", load)
    words = ["growth", "--agents", "10", "--rounds", "2", "--store", "4096", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["tools.bench", *words])
    with pytest.raises(SystemExit, match="0"):
        cli.run(app())
    assert asked == [4096]
    assert "memory of the process in GB, 10 agents" in capsys.readouterr().out


FEW = ("--repeats", "1")
TOLD = {
    "workflows": ("--workflow", "multi-qa", "--scale", "0.03", "--arm", "baseline", *FEW),
    "cost": ("--workflow", "multi-qa", "--scale", "0.03", *FEW),
    "step": ("--context", "40", *FEW),
    "overhead": ("--agents", "2", "--crowd", "2", "--each", "1", *FEW),
    "growth": ("--size", "256", *FEW),
    "stall": ("--tokens", "512", *FEW),
    "stream": ("--tokens", "40", "--pieces", "3", *FEW),
    "roofline": ("--context", "40", *FEW),
}


@pytest.mark.parametrize(
    "command",
    ["workflows", "step", *(pytest.param(name, marks=pytest.mark.slow) for name in list(TOLD)[1:] if name != "step")],
)
@pytest.mark.slow
def test_every_command_says_how_far_it_is(
    command: str, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # without --json, figures are written to runs/
    monkeypatch.setattr("tools.bench.rates.STREAMED", 2**25)
    ticks = count(0.0, EVERY)
    monkeypatch.setattr("agentcho.display.progress.monotonic", lambda: next(ticks))
    assert run(command, *TOLD[command], monkeypatch=monkeypatch, engine=engine) == 0
    said = capsys.readouterr().err.splitlines()
    assert re.match(rf"bench {command}: 0 of \d (runs|repeats)", said[0])
    assert command == "stall" or re.match(rf"bench {command}: 1 of \d (runs|repeats)", said[1])


@pytest.mark.slow
def test_a_stream_is_timed_beside_its_whole(engine: Engine) -> None:
    found = stream(engine, 80, 4, 2, 1, quiet)
    assert [(each.subject, each.arm) for each in found] == [("80 tokens in 4 pieces", arm) for arm in STREAMS]
    assert all(
        after >= before > 0 for each in found for after, before in zip(*reversed(each.values.values()), strict=True)
    )


@pytest.mark.parametrize(
    ("page", "words"), [("societies", "the first token came"), ("memory", "nats a token in 8 bits")]
)
def test_sentences_of_figures_are_what_their_results_give(page: str, words: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "how-to" / f"{page}.md").read_text()
    assert words in " ".join(text.split())
    assert with_sentences(text, docs / "results") == text


@pytest.mark.slow
def test_what_safety_costs_is_measured_in_four_arms_and_stands_on_the_page(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json = tmp_path / "bench-cost.json"
    few = ("--workflow", "multi-qa", "--scale", "0.05", "--repeats", "1", "--json", str(json))
    assert run("cost", *few, monkeypatch=monkeypatch, engine=engine) == 0
    assert "deterministic ÷ fast, enforce" in capsys.readouterr().out
    found = read_result(json)
    assert found.command.startswith("python -m tools.bench cost --workflow multi-qa ")
    assert (found.bench, found.arms, found.subjects) == ("cost", ARMS, ("multi-qa",))
    assert found.machine["commit"]
    assert "| multi-qa | first token |" in page(tmp_path)


def test_what_there_is_not_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (
        ("--workflow", "chess"),
        ("--arm", "fast", "--scale", "0.05"),
        ("--workflow", "debate", "--sweep", "agents"),
    ):
        assert run("workflows", *words, monkeypatch=monkeypatch, engine=engine) == 2


@pytest.mark.parametrize(
    ("option", "name", "why"),
    [
        ("--json", "nowhere/r.json", "there is no folder"),
        ("--json", ".", "it is a folder"),
        ("--plot", "nowhere/r.png", "there is no folder"),
        ("--plot", "r.poem", "has no known picture format; use one of the endings"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_loaded(
    option: str,
    name: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Engine, "load", classmethod(lambda cls, *args, **options: pytest.fail("a model was loaded")))
    monkeypatch.setattr(sys, "argv", ["tools.bench", "step", option, str(tmp_path / name)])
    with pytest.raises(SystemExit, match="2"):
        cli.run(app())
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("name", MOVED)
def test_the_package_says_where_benchmarks_of_its_makers_are(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", name, "--repeats", "1"])
    with pytest.raises(SystemExit, match="2"):
        main()
    now = MOVED[name]
    assert f"this moved: run `python -m tools.bench {now}` in a checkout" in " ".join(capsys.readouterr().err.split())
    commands = [each.name or each.callback.__name__ for each in app().registered_commands if each.callback]
    assert now in commands


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--sweep", "agents"), pytest.param(("--sweep", "branches"), marks=pytest.mark.slow)]
)
def test_sweeps_are_played(
    words: tuple[str, ...], engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("agentcho.lab.bench.plans.AGENTS", (2, 3))
    monkeypatch.setattr("agentcho.lab.bench.plans.BRANCHES", (1, 2))
    monkeypatch.setattr("agentcho.lab.bench.plans.VOTERS", (1,))
    json = tmp_path / "r.json"
    arms = ("--arm", "baseline", "--arm", "choreographed:enforce", "--first")
    more = ("--scale", "0.03", "--repeats", "1", "--json", str(json))
    assert run("workflows", *words, *arms, *more, monkeypatch=monkeypatch, engine=engine) == 0
    assert read_result(json).sweep == words[1]
