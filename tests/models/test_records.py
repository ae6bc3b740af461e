"""What a run of several models leaves: its record, audit, resumption, trace and parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcho import Game
from agentcho.audit import AuditReport, audit_run
from agentcho.config import ModelConfig, RunConfig
from agentcho.errors import ConfigError, ResumeMismatch
from agentcho.games.runs.replay import replay
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.resume import loading_config
from agentcho.games.runs.run_shards import merge
from agentcho.games.runs.runtime import RunResult, play
from agentcho.lab.collect import Playing
from agentcho.provenance.views import After, Read, View
from agentcho.records.canonical import canonical_transcript
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEngine

from .stage import Script, Scripted, Talker


def beside(**more: FakeEngine) -> dict[str, FakeEngine]:
    return {"small": FakeEngine(letters=3), **more}


async def talk(game: Game) -> None:
    """Ann has a private thought and speaks of it; two agents read that, on two engines."""
    await game.announce("Talk of incomprehensible things.")
    ann = game.cast(Talker, "ann", system="You are Ann, and tell nobody.")
    bob, cleo = game.cast(Talker, "bob", model="small"), game.cast(Talker, "cleo")
    await ann.think("What do you think of that?", max_tokens=3)
    await ann.say(max_tokens=3)
    await bob.say(max_tokens=3)
    if game.config.games > 1:
        await cleo.say(max_tokens=3)


async def bob_alone(game: Game) -> None:
    """Ann speaks and Bob reads her on another engine; nobody reads her on her own."""
    ann, bob = game.cast(Talker, "ann", system="Tell nobody."), game.cast(Talker, "bob", model="small")
    await ann.say(max_tokens=3)
    await bob.say(max_tokens=3)


def recorded(folder: Path, script: Script = talk, **config: Any) -> SavedRun:
    run = RunConfig(**({"model": "fake"} | config))
    played = play(RunRequest(Scripted(script), run, engine=FakeEngine(), others=beside(), out=folder))
    assert not played.errors
    assert played.record is not None
    return SavedRun(played.record)


def lines(run: SavedRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "transcript.jsonl").read_text().splitlines()]


def rewritten(run: SavedRun, changed: list[dict[str, Any]]) -> AuditReport:
    (run.path / "transcript.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
    return audit_run(SavedRun(run.path))


def test_lines_say_on_which_engine_an_encoding_is_and_read_back(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    said = {line["id"]: line.get("engine") for line in lines(run) if "id" in line}
    assert {id for id, engine in said.items() if engine} == {"bob.0"}
    made = [each for line in lines(run) for each in line["encodings"]]
    assert {each.get("engine") for each in made} == {None, "small"}
    assert {each["message"] for each in made if each.get("respelled")} == {"scenario.0", "ann.3"}
    assert all("engine" not in each for each in made if each["id"] < 1 << 40)
    read = [record for entry in run.entries() for record in entry.made]
    assert [(r.id, r.engine, r.respelled) for r in read] == [
        (each["id"], each.get("engine"), each.get("respelled", False)) for each in made
    ]
    assert run.info.engines == {"small": beside()["small"].fingerprint}


def test_an_audit_of_two_engines_is_clean_under_enforce(tmp_path: Path) -> None:
    report = audit_run(recorded(tmp_path, games=2))
    assert report.conclusion == "clean"
    assert report.subject.environment["engine small model"] == "fake"


@pytest.mark.parametrize(("script", "games", "conclusion"), [(bob_alone, 1, "clean"), (talk, 2, "findings")])
def test_under_audit_a_leak_stays_on_its_engine(tmp_path: Path, script: Script, games: int, conclusion: str) -> None:
    """Bob, on another engine, reads X; Cleo, on Ann's, reads the encoding that carries Ann's context."""
    report = audit_run(recorded(tmp_path, script, games=games, leakage="audit"))
    assert report.conclusion == conclusion
    assert {edge.reader for edge in report.edges} == ({"cleo"} if conclusion == "findings" else set())


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.update(engine="large"),
        lambda line: line.pop("engine"),
        lambda line: line.update(encoding=None, encodings=[]),
        lambda line: [each.pop("engine") for each in line["encodings"]],
        lambda line: [each.update(engine="large") for each in line["encodings"]],
        lambda line: line["encodings"][0].pop("engine"),
    ],
)
def test_no_damage_makes_a_message_of_another_engine_clean(tmp_path: Path, damage: Any) -> None:
    """An engine missing from the record, or a context on another engine, makes an encoding unlabelled."""
    run = recorded(tmp_path, bob_alone)
    changed = lines(run)
    bob = next(line for line in changed if line.get("id") == "bob.0")
    assert audit_run(run).conclusion == "clean"
    damage(bob)
    assert rewritten(run, changed).conclusion != "clean"


def test_places_are_counted_in_the_words_of_the_engine_that_reads(tmp_path: Path) -> None:
    """A message is as long as on the reading engine. No audit uses one tokenizer's length for another's."""

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        bob = game.cast(Talker, "bob", model=lambda turn: ("small", "default")[turn % 2])
        long = await ann.tell("incomprehensible consequences", to="everyone")
        short = await ann.tell("so", to="everyone")
        view = View((Read(long), Read(short, After(long, 5))), After(short, 2))
        for _ in range(2):
            await bob.say(view=view, max_tokens=2)
        assert [message.author for message in game.said] == ["ann", "ann", "bob", "bob"]

    for way in ({"leakage": "enforce"}, {"leakage": "audit"}, {"mode": "baseline"}):
        run = recorded(tmp_path, script, **way)
        entries = {entry.message.id: entry for entry in run.entries()}
        for id, engine in {"bob.0": FakeEngine(letters=3), "bob.1": FakeEngine()}.items():
            own = entries[id].own
            assert own is not None
            first, second = own.receipt.context
            words = engine.frame("assistant", "ann", "incomprehensible consequences")
            assert first.length == len(words.tokens)
            gap = 0 if way.get("mode") else 5
            assert second.offset == first.offset + first.length + gap
        assert audit_run(run).conclusion == "clean"


def test_a_run_goes_on_with_the_words_of_each_engine(tmp_path: Path) -> None:
    class Stopping(Scripted):
        fails = True

        async def play(self, game: Game) -> Any:
            await talk(game)
            if game.index == 1 and Stopping.fails:
                raise OSError
            return self.Outcome()

    def begun(**more: Any) -> RunResult:
        config = RunConfig(model="fake", games=2)
        return play(RunRequest(Stopping(talk), config, engine=FakeEngine(), others=beside(), out=tmp_path, **more))

    broken = begun()
    assert broken.record is not None
    saved = SavedRun(broken.record)
    Stopping.fails = False
    whole = begun()
    assert whole.record is not None
    with pytest.raises(ResumeMismatch, match="what differs: the model small"):
        play(RunRequest.resuming(saved, Stopping(talk), engine=FakeEngine()))
    with pytest.raises(ResumeMismatch, match="the model small's tokenizer"):
        play(RunRequest.resuming(saved, Stopping(talk), engine=FakeEngine(), others={"small": FakeEngine()}))
    assert not play(RunRequest.resuming(saved, Stopping(talk), engine=FakeEngine(), others=beside())).errors
    assert canonical_transcript(SavedRun(broken.record)) == canonical_transcript(SavedRun(whole.record))


def test_a_game_that_goes_on_through_another_model_departs_from_its_record(tmp_path: Path) -> None:
    chosen = ["small"]

    async def script(game: Game) -> None:
        await game.cast(Talker, "ann", model=lambda turn: chosen[0]).say(max_tokens=2)
        if chosen[0] == "small":
            raise OSError

    config = RunConfig(model="fake")
    broken = play(RunRequest(Scripted(script), config, engine=FakeEngine(), others=beside(), out=tmp_path))
    assert broken.record is not None
    chosen[0] = "default"
    again = play(RunRequest.resuming(SavedRun(broken.record), Scripted(script), engine=FakeEngine(), others=beside()))
    assert "ann.0 differs in model" in str(again.error)


def test_a_trace_has_each_message_in_the_tokens_of_its_model_and_replays(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    (trace,) = run.export()
    digests = {message.id: message.tokenizer for message in trace.messages}
    assert digests["bob.0"] == beside()["small"].fingerprint["tokenizer"]
    assert digests["ann.3"] == "fake"
    engine = FakeEngine()
    for message in trace.messages:
        engine.meet(message.text)
    replayed = replay(trace, engine, logits=False)
    texts = {id: message.entry.message.text for id, message in replayed.items()}
    assert texts == {entry.message.id: entry.message.text for entry in run.entries() if entry.message.id in texts}


def test_parts_on_other_models_are_no_parts_of_one_run(tmp_path: Path) -> None:
    parts = []
    for number, other in ((1, FakeEngine(letters=3)), (2, FakeEngine(letters=2))):
        config = RunConfig(model="fake", games=2, part=f"{number}/2")
        played = play(RunRequest(Scripted(talk), config, engine=FakeEngine(), others={"small": other}, out=tmp_path))
        assert played.record is not None
        parts.append(SavedRun(played.record))
    with pytest.raises(ResumeMismatch, match="the model small's tokenizer"):
        merge(parts, tmp_path / "merged")


def test_the_record_says_which_models_were_asked_for(tmp_path: Path) -> None:
    models = {"small": ModelConfig(model="fake", context=None)}
    played = play(RunRequest(Scripted(bob_alone), RunConfig(model="fake", models=models), out=tmp_path))
    assert played.record is not None
    info = SavedRun(played.record).info
    assert info.config.models == models
    assert info.engines == {"small": info.engine}
    assert not play(RunRequest.resuming(SavedRun(played.record), Scripted(bob_alone))).errors
    other = info.config.model_copy(update={"models": {"small": replace_model(models["small"])}})
    with pytest.raises(ResumeMismatch, match="models"):
        play(RunRequest.resuming(SavedRun(played.record), Scripted(bob_alone), other))


def replace_model(model: ModelConfig) -> ModelConfig:
    return model.model_copy(update={"device": "cpu"})


def test_numbers_that_were_chosen_then_are_taken_again(tmp_path: Path) -> None:
    """Another machine might choose other dtypes and then could not resume."""
    run = recorded(tmp_path)
    info = run.info.model_copy(
        update={
            "engine": run.info.engine | {"dtype": "float32"},
            "engines": {"a": {"dtype": "bfloat16"}, "b": {"dtype": "bfloat16"}},
        }
    )
    run.info = info
    asked = {"a": ModelConfig(model="x"), "b": ModelConfig(model="x", dtype="float16"), "c": ModelConfig(model="x")}
    config = loading_config(run, RunConfig(models=asked))
    assert config.dtype == "float32"
    assert {name: model.dtype for name, model in config.models.items()} == {
        "a": "bfloat16",
        "b": "float16",
        "c": "auto",
    }


def test_games_that_are_compared_are_played_on_one_model() -> None:
    config = RunConfig(model="fake", models={"small": ModelConfig(model="fake")})
    playing = Playing(Scripted(talk), config, FakeEngine())
    with pytest.raises(ConfigError, match="on one model; leave models out"):
        playing.play([0], {}, lambda event: None)
