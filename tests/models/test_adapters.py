"""Games with adapters on one engine: whose encodings are whose, what goes through the base, and what is recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from agentcho import Engine, Game
from agentcho.audit import audit_run
from agentcho.audit.cones import Cones
from agentcho.config import ModelConfig, RunConfig
from agentcho.errors import ModelError, ResumeMismatch
from agentcho.games.play.adapter_engine import AdapterEngine, engine_and_adapter
from agentcho.games.runs.loading import fingerprints, give_up, load_together
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import load_engine, play
from agentcho.protocol.call import ContextEntry, EnginePort
from agentcho.protocol.progress import no_progress
from agentcho.records.models import RecordedModels
from agentcho.records.record import SavedRun
from agentcho.records.trained_adapters import GOING
from agentcho.testing import FakeEngine
from tests.engine.families import llama_family
from tests.engine.test_mixed import Alone, llama
from tests.engines import Engines

from .stage import Scripted, Talker, seen

WAYS = [
    {"leakage": "enforce"},
    {"leakage": "audit"},
    {"leakage": "enforce", "deterministic": True},
    {"mode": "baseline"},
    {"leakage": "enforce", "repair": "first-k:4"},
    {"leakage": "audit", "repair": "full"},
]


async def talk(game: Game, rounds: int = 3) -> None:
    """One agent speaks through the base, one through each adapter, and one switches between all."""
    await game.announce("Talk.")
    ann, bob = game.cast(Talker, "ann", system="Be ann."), game.cast(Talker, "bob", model="one")
    cleo = game.cast(Talker, "cleo", model="two", system="Be cleo.")
    dora = game.cast(Talker, "dora", model=lambda turn: ("default", "one", "two")[turn % 3])
    await bob.think(max_tokens=3)
    for _ in range(rounds):
        await game.together(
            ann.say(max_tokens=3), bob.say(to="everyone", prompt="Well?", max_tokens=3), cleo.say(max_tokens=3)
        )
        await dora.say(max_tokens=3)


def fakes(own: str | None = None) -> dict[str, EnginePort]:
    """Model names for one fake engine; `default` is the run's own."""
    engine = FakeEngine()
    named = {name: AdapterEngine.port(engine, engine.mix(name)) for name in ("one", "two")}
    return {"default": engine if own is None else AdapterEngine.port(engine, engine.mix(own)), **named}


def homes() -> RecordedModels:
    return RecordedModels(frozenset({None, "one", "two"}), homes={"one": None, "two": None})


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("own", [None, "three"])
def test_nobody_reads_keys_of_another_adapter(way: dict[str, Any], own: str | None) -> None:
    models = fakes(own)
    found = seen(talk, {name: models[name] for name in ("one", "two")}, models["default"], **way)
    said = {entry.message.id: entry.engine for entry in found.entries if entry.message.kind == "decode"}
    assert {said[f"dora.{turn}"] for turn in range(3)} == {None, "one", "two"}
    records = {record.id: record for record in found.made}
    assert len({id >> 40 for id in records}) == 1
    for record in records.values():
        for read in record.receipt.context:
            other = records[read.id]
            assert other.recipe == "audience" or other.engine == record.engine
        if record.recipe == "audience":
            assert record.engine is None
            assert all(records[read.id].recipe == "audience" for read in record.receipt.context)
    public = [record for record in records.values() if record.recipe == "audience"]
    contexts = {(r.message, r.receipt.start, *(records[read.id].message for read in r.receipt.context)) for r in public}
    assert len(contexts) == len({record.message for record in public})  # one X per message, whoever reads it
    if way == {"leakage": "enforce"}:  # otherwise several agents may ask for it at once
        spoken = [record.message for record in public if record.message in said]
        assert len(spoken) == len(set(spoken))
    assert Cones(found.entries, homes()).faults == {}


def test_a_record_in_which_one_read_keys_of_another_adapter_is_not_clean() -> None:
    models = fakes()
    found = seen(talk, {name: models[name] for name in ("one", "two")}, models["default"])
    mine = next(r for r in found.made if r.engine == "one" and r.recipe == "author" and r.receipt.context)
    apart = RecordedModels(frozenset({None, "one", "two"}))
    assert "which is another engine's" in (Cones(found.entries, apart).fault(mine.id) or "")
    others = next(r for r in found.made if r.engine == "two" and r.recipe == "author")
    receipt = mine.receipt._replace(context=(ContextEntry(others.id, 1, 3),))
    changed = [
        entry._replace(made=tuple(r._replace(receipt=receipt) if r is mine else r for r in entry.made))
        for entry in found.entries
    ]
    assert "which is another engine's" in (Cones(changed, homes()).fault(mine.id) or "")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Two adapters of one model."""
    return {"one": llama(tmp_path, 1), "two": llama(tmp_path, 2)}


@pytest.mark.parametrize(
    ("way", "rounds"),
    [
        ({"leakage": "enforce"}, 1),
        pytest.param({"leakage": "audit"}, 3, marks=pytest.mark.slow),
        pytest.param({"leakage": "enforce"}, 3, marks=pytest.mark.slow),
        pytest.param({"mode": "baseline"}, 3, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.slow
def test_every_encoding_of_a_game_is_what_peft_alone_makes_of_it(
    way: dict[str, Any], rounds: int, folders: dict[str, Path], engines: Engines
) -> None:
    """From the records alone: the words, and what each encoding attended to, through its own adapter."""
    engine = engines.own()
    others = {name: AdapterEngine.port(engine, engine.mix(folder)) for name, folder in folders.items()}
    kept = dict[int, list[tuple[Any, Any]]]()

    async def watched(game: Game) -> None:
        await talk(game, rounds)
        choreographer = game._models.own.choreographer
        with engine.owner.acting(choreographer, "to look"):
            kept.update({id: engine.cached(id) for id in choreographer.held(game._journal.held)})

    found = seen(watched, others, engine, model="llama", temperature=0.0, **way)
    oracle, index = Alone(llama_family(), dict[str | None, Path](folders.items()), engine.framing.bos), dict[int, int]()
    words = {entry.message.id: entry.message.tokens for entry in found.entries}
    records = sorted(found.made, key=lambda record: record.id)
    assert {record.engine for record in records} == {None, "one", "two"}
    assert {record.recipe for record in records} == ({"baseline"} if "mode" in way else {"author", "audience"})
    for record in records:
        name = None if record.recipe == "audience" else record.engine
        context = [(index[read.id], read.offset) for read in record.receipt.context]
        index[record.id] = oracle.encode(record.tokens or words[record.message], record.receipt.start, context, name)
        pairs = oracle.keys(index[record.id], record.receipt.start)
        for (keys, values), (theirs, their_values) in zip(kept[record.id], pairs, strict=True):
            torch.testing.assert_close(keys, theirs[0], rtol=1e-3, atol=2e-4)
            torch.testing.assert_close(values, their_values[0], rtol=1e-3, atol=2e-4)


def config(engines: Engines, folders: dict[str, Path], **more: Any) -> RunConfig:
    """A run whose own model is a base, with adapters on it."""
    given: dict[str, Any] = {"model": str(engines.folder()), "device": "cpu", "dtype": "float32"}
    models = {name: ModelConfig(**given, adapter=str(folder)) for name, folder in folders.items()}
    return RunConfig(**given, models=models, **more)


@pytest.mark.slow
def test_adapters_of_one_base_are_one_engine_and_others_have_their_own(
    folders: dict[str, Path], engines: Engines, tmp_path: Path
) -> None:
    folders |= {"again": folders["one"], "dora": llama(tmp_path, 3, ["q_proj"], use_dora=True)}
    loaded = load_together(config(engines, folders), None, {}, no_progress)
    assert isinstance(loaded.engine, Engine)
    there = {name: engine_and_adapter(model) for name, model in loaded.others.items()}
    assert [there[name][0] is loaded.engine for name in folders] == [True, True, True, False]
    assert there["one"] == there["again"]
    assert there["dora"][1] is None
    own, others = fingerprints(loaded)
    assert "adapter" not in own
    assert [others[name].get("on") for name in folders] == ["default", "default", "default", None]
    assert others["one"]["adapter"] != others["two"]["adapter"]
    give_up(loaded)


class Stopping(Scripted):
    """Ends with an error until `fails` is reset."""

    fails = True

    async def play(self, game: Game) -> Any:
        outcome = await super().play(game)
        if self.fails:
            raise OSError
        return outcome


@pytest.mark.slow
def test_a_run_is_audited_and_goes_on_with_the_same_adapters_alone(
    folders: dict[str, Path], engines: Engines, tmp_path: Path
) -> None:
    run = config(engines, folders, temperature=0.0, leakage="enforce")
    played = play(RunRequest(Stopping(talk), run, out=tmp_path / "runs"))
    assert played.record is not None
    saved = SavedRun(played.record)
    assert saved.info.models.homes == {"one": None, "two": None}
    said = {entry.message.id: entry.message.tokens for entry in saved.entries()}
    weights = folders["two"] / "adapter_model.safetensors"
    kept = weights.read_bytes()
    shutil.copy(llama(tmp_path, 7, r=5) / weights.name, weights)
    with pytest.raises(ResumeMismatch, match="the model two's adapter"):
        play(RunRequest.resuming(SavedRun(saved.path), Stopping(talk)))
    weights.write_bytes(kept)
    again = Stopping(talk)
    again.fails = False
    assert not play(RunRequest.resuming(SavedRun(saved.path), again)).errors
    report = audit_run(SavedRun(saved.path))
    assert report.conclusion == "clean", report
    assert {entry.message.id: entry.message.tokens for entry in SavedRun(saved.path).games()[0]} == said


@pytest.mark.parametrize("changed", [{"peft_type": None}, {"r": 9}, {"target_modules": ["nothing"]}])
def test_an_adapter_that_does_not_fit_is_named_with_its_model(
    changed: dict[str, Any], folders: dict[str, Path], engines: Engines
) -> None:
    file = folders["two"] / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    with pytest.raises(ModelError, match=r"model 'two': no adapter in .*/2: it"):
        load_together(config(engines, folders), None, {}, no_progress)


@pytest.mark.slow
@pytest.mark.parametrize("of", ["the run", "an agent"])
def test_an_adapter_whose_training_goes_on_is_loaded_with_a_note(
    of: str, folders: dict[str, Path], engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    (folders["two"] / GOING).mkdir()
    if of == "the run":
        asked = RunConfig(model=str(engines.folder()), device="cpu", dtype="float32", adapter=str(folders["two"]))
        assert load_engine(asked).fingerprint["adapter"]
    else:
        load_together(config(engines, folders), None, {}, no_progress)
    (told,) = (record.getMessage() for record in caplog.records if "has not finished" in record.getMessage())
    assert f"the training of adapter {folders['two']} has not finished" in told
