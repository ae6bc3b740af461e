"""Training: learning, resumption, choice of a checkpoint, and data that it refuses."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from agentcho.engine.call_layout import Segment
from agentcho.engine.lora_adapter import find_adapter
from agentcho.errors import ConfigError, ResumeMismatch, TuneError
from agentcho.lab.tune import training as training_of
from agentcho.lab.tune.choice import Validation
from agentcho.lab.tune.lessons import batches, lessons, packed, steps_of
from agentcho.lab.tune.losses import loss
from agentcho.lab.tune.recipe import Recipe, read_peft
from agentcho.lab.tune.training import Progress, Training, recompute
from agentcho.lab.tune.unfolding import Unfolded, unfold
from agentcho.records.trace import Workflow, write_traces
from agentcho.records.trained_adapters import unfinished
from agentcho.runner.engine import Engine
from agentcho.runner.model.model import Model

from ..engine.families import llama_family
from ..engines import Engines
from .flows import decode, prefill, trace

QUICK = Recipe(rank=4, alpha=8, epochs=3, batch=4, rate=0.01, dev=0.2, dropout=0.1)


class Stopped(Exception):
    """Stands in for an interruption."""


@pytest.fixture
def engine(engines: Engines) -> Engine:
    """An engine of its own, since an adapter is put on its network."""
    return engines.own()


def said(number: int, **more: str) -> Workflow:
    """Alice says what her prompt says; Bob repeats it."""
    word = ("red", "green", "blue")[number % 3]
    return trace(
        prefill("p", "alice", ["alice"], text=f"say {word}"),
        decode("a", "alice", "everyone", "p", text=word),
        decode("b", "bob", "everyone", "a", text=word),
        id=f"w{number}",
        **more,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_traces(tmp_path / "traces.jsonl", [said(number) for number in range(20)])
    return tmp_path / "traces.jsonl"


def training(
    engine: Engine, file: Path, out: Path, recipe: Recipe = QUICK, tell: Callable[[Progress], None] = lambda now: None
) -> Training:
    return Training("talk", engine, lessons(file, "talk", engine, recipe), recipe, out, tell)


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        {"leakage": "enforce"},
        *(pytest.param(way, marks=pytest.mark.slow) for way in ({"leakage": "audit"}, {"mode": "baseline"})),
    ],
)
def test_it_learns_and_the_engine_says_so(engine: Engine, file: Path, tmp_path: Path, way: dict[str, str]) -> None:
    recipe = Recipe.model_validate(QUICK.model_dump() | way | {"dropout": 0.0})
    trained = training(engine, file, tmp_path / "out", recipe).train()
    assert trained.best < 0.6 * trained.before
    tuned = engine.adapted(tmp_path / "out")
    dev = lessons(file, "talk", engine, recipe).dev
    with torch.no_grad():
        for loaded, told in ((tuned, trained.best), (engine, trained.before)):
            found = loss(loaded, dev).item() / sum(len(each.targets) for each in dev)
            assert found == pytest.approx(told, abs=1e-4)
    assert find_adapter(tmp_path / "out").trained == trained
    assert trained.tokens > 0
    assert not (tmp_path / "out" / "going").exists()
    assert trained.step > 0


@pytest.mark.slow
def test_it_learns_in_half_precision(engines: Engines, file: Path, tmp_path: Path) -> None:
    engine = engines.own(dtype="bfloat16")
    trained = training(engine, file, tmp_path / "out").train()
    assert trained.best < 0.7 * trained.before
    weights = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert {each.dtype for each in weights.values()} == {torch.float32}
    engine.adapted(tmp_path / "out").score("say red")


@pytest.mark.slow
def test_what_is_written_is_what_peft_reads(engine: Engine, file: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    training(engine, file, tmp_path / "out").train()
    tuned = engine.adapted(tmp_path / "out")
    stock = PeftModel.from_pretrained(llama_family().build(), str(tmp_path / "out")).eval()
    text = engine.framing.content.encode("say red")
    opening = engine.framing.opening("assistant", None)
    with torch.no_grad():
        theirs = stock(torch.tensor([[engine.framing.bos or 0, *opening, *text]])).logits[0, -len(text) - 1 :]
    assert float((tuned.score("say red") - theirs.log_softmax(-1)).abs().max()) < 1e-4


def stopping(at: int) -> Callable[[Progress], None]:
    def tell(now: Progress) -> None:
        if now.step == at:
            raise Stopped

    return tell


@pytest.mark.slow
@pytest.mark.parametrize("at", [6, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 4, 9))])
def test_broken_off_it_goes_on_to_the_same_end(engines: Engines, file: Path, tmp_path: Path, at: int) -> None:
    whole = training(engines.own(), file, tmp_path / "whole").train()
    with pytest.raises(Stopped):
        training(engines.own(), file, tmp_path / "parts", tell=stopping(at)).train()
    assert "has not finished" in str(unfinished(tmp_path / "parts"))
    parts = training(engines.own(), file, tmp_path / "parts").train()
    assert unfinished(tmp_path / "parts") is None
    assert parts.model_dump(exclude={"seconds"}) == whole.model_dump(exclude={"seconds"})
    one, other = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "parts"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("whole", "parts")]
    assert logs[0] == logs[1]
    assert [json.loads(line)["step"] for line in logs[0].splitlines() if "dev" in line] == [0, 4, 8, 12]


@pytest.mark.slow
def test_games_choose_the_checkpoint_and_change_nothing_of_the_training(
    engines: Engines, file: Path, tmp_path: Path
) -> None:
    """The adapter of each epoch is measured through a separate engine and dropped. Among those with the best score, the
    one with the lowest loss is kept."""
    engine, means = engines.own(), iter([0.2, 0.8, 0.5, 0.8])
    measured: list[float] = []

    def play(folder: Path, check: Callable[[], None]) -> float:
        check()
        digest = find_adapter(folder).digest
        measured.append(float(engine.adapted(folder).score("say red").sum()))
        engine.adapters.drop(digest)
        return next(means)

    found = lessons(file, "talk", engine, QUICK)
    chosen = Training(
        "talk", engine, found, QUICK, tmp_path / "games", lambda now: None, Validation("right", 20, play)
    ).train()
    plain = training(engines.own(), file, tmp_path / "loss").train()
    logs = [
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("games", "loss")
    ]
    told = [line.pop("score") for line in logs[0] if "dev" in line]
    assert told == [0.2, 0.8, 0.5, 0.8]
    assert logs[0] == logs[1]
    dev = {line["step"]: line["dev"] for line in logs[0] if "dev" in line}
    assert chosen.step == min((4, 12), key=lambda step: dev[step])
    assert chosen.chosen == {"score": "right", "games": 20, "mean": 0.8}
    assert plain.chosen is None
    assert len(set(measured)) == 4, "each epoch's own weights"
    assert find_adapter(tmp_path / "games").trained == chosen


@pytest.mark.slow
def test_the_adapter_of_each_epoch_is_kept_if_asked_for(engine: Engine, file: Path, tmp_path: Path) -> None:
    tuned = tmp_path / "tuned"
    found = lessons(file, "talk", engine, QUICK)
    best = Training("talk", engine, found, QUICK, tuned, lambda now: None, keep_epochs=True).train()
    steps = steps_of(found.train, QUICK) // QUICK.epochs
    lines = map(json.loads, (tuned / "log.jsonl").read_text().splitlines())
    measured = {line["step"]: line["dev"] for line in lines if "dev" in line}
    epochs = [find_adapter(tuned / f"epoch-{epoch}") for epoch in (1, 2, 3)]
    assert sorted(path.name for path in tuned.glob("epoch-*")) == ["epoch-1", "epoch-2", "epoch-3"]
    assert len({each.digest for each in epochs}) == 3
    for number, each in enumerate(epochs, start=1):
        assert each.trained is not None
        assert each.trained.step == number * steps
        assert each.trained.best == pytest.approx(measured[number * steps], abs=1e-6)
    assert find_adapter(tuned).digest == epochs[best.step // steps - 1].digest


@pytest.mark.slow
def test_all_that_it_computes_is_computed_in_threads_that_end(
    engine: Engine, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch keeps a pool of compute threads for each thread that has computed; two pools are slower than one."""
    seen: list[threading.Thread] = []

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **more: Any) -> Any:
            seen.append(threading.current_thread())
            return work(*args, **more)

        return done

    for name in ("loss", "mean_loss"):
        monkeypatch.setattr(training_of, name, noted(getattr(training_of, name)))
    monkeypatch.setattr(Model, "trained", noted(Model.trained))
    monkeypatch.setattr(Model, "adapted", noted(Model.adapted))
    training(engine, file, tmp_path / "out", QUICK.model_copy(update={"epochs": 1})).train()
    engine.adapted(tmp_path / "out")
    assert len(seen) > 5
    assert threading.main_thread() not in seen
    assert not any(each.is_alive() for each in seen)


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_it_and_the_best_stays(engine: Engine, file: Path, tmp_path: Path) -> None:
    wild = QUICK.model_copy(update={"rate": 1e30})
    with pytest.raises(TuneError, match=r"step \d+: its loss is not finite; the best adapter"):
        training(engine, file, tmp_path / "out", wild).train()
    kept = find_adapter(tmp_path / "out").trained
    assert kept is not None
    assert math.isfinite(kept.best)
    assert all(
        torch.isfinite(each).all() for each in load_file(tmp_path / "out" / "adapter_model.safetensors").values()
    )
    engine.adapted(tmp_path / "out")


@pytest.mark.slow
def test_a_folder_of_another_training_is_left_alone(engine: Engine, file: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        training(engine, file, tmp_path / "out", tell=stopping(6)).train()
    kept = sorted(path.name for path in (tmp_path / "out").iterdir())
    with pytest.raises(ResumeMismatch, match="what differs: recipe"):
        training(engine, file, tmp_path / "out", QUICK.model_copy(update={"rank": 8}))
    write_traces(file, [said(number) for number in range(19)])
    with pytest.raises(ResumeMismatch, match="what differs: traces"):
        training(engine, file, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == kept
    training(engine, file, tmp_path / "done").train()
    with pytest.raises(ResumeMismatch, match="holds a finished training; give another --out"):
        training(engine, file, tmp_path / "done")


def test_traces_that_do_not_fit_are_refused_with_their_line(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    long = trace(decode("a", "alice", "everyone", text="word " * engine.context))
    mute = trace(prefill("p", "alice", "everyone"))
    eavesdrop = trace(prefill("p", "alice", ["alice"]), decode("b", "bob", "everyone", "p"))
    for flows, told in (
        ([said(0), said(1, workflow_="debate")], r"t\.jsonl:2: is a trace of debate, not of talk"),
        ([said(0), said(1), long], r"t\.jsonl:3: needs \d+ positions and the model has 4096"),
        ([said(0), mute], r"t\.jsonl:2: no agent says anything"),
        ([said(0), eavesdrop], r"t\.jsonl:2: bob may not read message p"),
        ([said(0)], r"t\.jsonl: at least 2 traces are needed, one of them for validation; this file has 1"),
    ):
        write_traces(file, flows)
        with pytest.raises(TuneError, match=told):
            lessons(file, "talk", engine, Recipe(leakage="enforce"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 2},
            "it changes the prompt, or the weights of the base model",
        ),
        ({"peft_type": "LORA", "init_lora_weights": "pissa"}, "or the weights of the base model"),
        ({"peft_type": "LORA", "target_modules": ["nothing"]}, "cannot be used here"),
        ({"peft_type": "LORE"}, "cannot be used here"),
    ],
)
def test_an_adapter_of_another_kind_is_refused(
    engine: Engine, file: Path, tmp_path: Path, config: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        training(engine, file, tmp_path / "out", QUICK.model_copy(update={"peft": config}))


@pytest.mark.slow
def test_any_other_peft_configuration_may_come_from_a_file(engine: Engine, file: Path, tmp_path: Path) -> None:
    config = {"peft_type": "IA3", "target_modules": ["k_proj", "v_proj"], "feedforward_modules": []}
    (tmp_path / "peft.json").write_text(json.dumps(config))
    recipe = QUICK.model_copy(update={"peft": read_peft(tmp_path / "peft.json"), "rate": 0.1})
    trained = training(engine, file, tmp_path / "out", recipe).train()
    assert trained.best < trained.before
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["peft_type"] == "IA3"
    for text in ("[]", "{", '{"r": 3}'):
        (tmp_path / "peft.json").write_text(text)
        with pytest.raises(ConfigError, match=r"peft\.json (is not|cannot be read as) a peft configuration"):
            read_peft(tmp_path / "peft.json")


@pytest.mark.slow
def test_recomputed_activations_give_the_same_gradients(engine: Engine, file: Path, tmp_path: Path) -> None:
    one = training(engine, file, tmp_path / "one", QUICK.model_copy(update={"dropout": 0.0}))
    network, found = one.engine.network, list[list[torch.Tensor]]()
    traces = [unfold(said(number), engine, "choreographed", "audit") for number in range(3)]
    weights = [each for each in network.parameters() if each.requires_grad]
    for again in (False, True):
        if again:
            recompute(network)
        network.train()
        found.append(list(torch.autograd.grad(loss(one.engine, traces), weights)))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True))


# -- batches --------------------------------------------------------------------------------------------------


def unfolded(tokens: int) -> Unfolded:
    return Unfolded((Segment([0] * tokens, 0),), (0,))


@pytest.mark.slow
@given(lengths=st.lists(st.integers(1, 50), max_size=30), room=st.integers(1, 80))
def test_forwards_hold_every_trace_once_and_fit(lengths: list[int], room: int) -> None:
    forwards = packed([unfolded(length) for length in lengths], room)
    assert sorted(each.tokens for forward in forwards for each in forward) == sorted(lengths)
    assert all(forward for forward in forwards)
    assert all(sum(each.tokens for each in forward) <= room or len(forward) == 1 for forward in forwards)


@given(count=st.integers(1, 40), batch=st.integers(1, 9), epochs=st.integers(1, 3))
def test_every_epoch_sees_every_trace_once(count: int, batch: int, epochs: int) -> None:
    train, recipe = [unfolded(n + 1) for n in range(count)], Recipe(batch=batch, epochs=epochs)
    steps = list(batches(train, recipe))
    assert len(steps) == steps_of(train, recipe)
    seen = [trace.tokens for step in steps for trace in step]
    for epoch in range(epochs):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(1, count + 1))
    assert all(len(step) <= batch for step in steps)


def test_the_rate_rises_and_falls() -> None:
    recipe = Recipe(warmup=0.1)
    pace = [recipe.pace(step, 100) for step in range(100)]
    assert pace[9] == max(pace) == 1
    assert pace[:10] == sorted(pace[:10])
    assert pace[9:] == sorted(pace[9:], reverse=True)
    assert 0.1 <= pace[-1] < 0.11
    assert recipe.peak(256) == pytest.approx(0.001)
    assert recipe.peak(1024) == pytest.approx(0.0005)
    assert Recipe(rate=0.5).peak(256) == 0.5


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    with torch.random.fork_rng():
        yield
