"""Two engines with the same weights, loaded separately: together they say what one says, and have the same keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agentcho import Engine, Game
from agentcho.config import ModelConfig, RunConfig
from agentcho.games.runs.loading import load_together
from agentcho.message import is_default_prompt
from agentcho.runner.kv.kv_pool import KVFormat, LayerShape, shared_host_tokens, shared_tokens, token_bytes
from tests.engines import Engines

from .stage import Talker, seen

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def two(engines: Engines) -> tuple[Engine, Engine]:
    """Two engines, each with a network of its own."""
    return engines.own(), engines.own()


async def talk(game: Game, moving: bool = True) -> None:
    """Thoughts, messages and a released thought of two agents, who move between the engines or stay on one."""
    at = (lambda turn: ("default", "other")[turn % 2]) if moving else (lambda turn: "default")
    ann, bob = game.cast(Talker, "ann", system="You are Ann.", model=at), game.cast(Talker, "bob", model=at)
    await game.announce("Speak.")
    await ann.think("What now?", max_tokens=4)
    for _ in range(2):
        await game.together(ann.say(max_tokens=5), bob.say(to="everyone", prompt="Well?", max_tokens=5))
    await bob.release((await bob.think(max_tokens=4)), to="ann")
    await ann.say(max_tokens=5)


def staying(game: Game) -> Any:
    return talk(game, moving=False)


@pytest.mark.slow
@pytest.mark.parametrize("way", [{"mode": "baseline"}, {"mode": "baseline", "deterministic": True}])
def test_in_baseline_two_engines_say_the_words_of_one(two: tuple[Engine, Engine], way: dict[str, Any]) -> None:
    own, other = two
    one = seen(staying, {"other": other}, own, model="llama", temperature=0.8, **way)
    both = seen(talk, {"other": other}, own, model="llama", temperature=0.8, **way)
    assert {entry.engine for entry in both.entries} == {None, "other"}
    assert {entry.message.id: entry.message.tokens for entry in one.entries} == {
        entry.message.id: entry.message.tokens for entry in both.entries
    }


def test_under_enforce_what_is_read_has_the_keys_of_x_that_an_engine_alone_makes(
    two: tuple[Engine, Engine], engines: Engines
) -> None:
    """Encoded by hand, X by X, from the words that were said and what all their readers may read."""
    own, other = two
    kept: dict[int, list[tuple[Any, Any]]] = {}

    async def watched(game: Game) -> None:
        await talk(game)
        for model in game._models:
            choreographer = model.choreographer
            engine: Any = choreographer.frames
            with engine.owner.acting(choreographer, "to look"):
                for id in choreographer.held(game._journal.held):
                    kept[id] = engine.cached(id)

    found = seen(watched, {"other": other}, own, model="llama", leakage="enforce")
    messages = {entry.message.id: entry.message for entry in found.entries}
    records = [record for record in found.made if record.recipe == "audience"]
    alone, made = engines(), dict[str, int]()

    def x(id: str) -> int:
        if id not in made:
            said = messages[id]
            shared = (parent for parent in said.parents if not is_default_prompt(parent))
            over = [parent for parent in shared if messages[parent].audience.covers(said.audience)]
            content = said.tokens[slice(*said.content)]
            parents = [x(parent) for parent in over]
            made[id] = alone.prefill(said.text, parents=parents, role=said.role, name=said.name, tokens=content)
        return made[id]

    assert {record.engine for record in records} == {None, "other"}
    for record in records:
        for (keys, values), (by_hand, values_by_hand) in zip(
            kept[record.id], alone.cached(x(record.message)), strict=True
        ):
            torch.testing.assert_close(keys, by_hand, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(values, values_by_hand, rtol=1e-4, atol=1e-4)


def test_models_that_are_loaded_together_keep_no_more_than_one_would() -> None:
    small, large = [LayerShape(2, 8, 8)] * 2, [LayerShape(8, 128, 128)] * 32
    kinds = [KVFormat(small, CPU, torch.float32), KVFormat(large, CPU, torch.bfloat16)]
    tokens, host = shared_tokens(kinds), shared_host_tokens(kinds)
    each = [token_bytes(kind.layers, kind.dtype) for kind in kinds]
    assert tokens[0] == tokens[1] == (4 << 30) // sum(each)
    assert host[0] == host[1] == (4 << 30) // sum(each)
    assert sum(n * size for n, size in zip(tokens, each, strict=True)) <= 4 << 30
    assert shared_tokens(kinds[1:]) == [(4 << 30) // each[1]]


@pytest.fixture(scope="module")
def loaded(engines: Engines) -> Any:
    folder = str(engines.folder())
    models = {"a": ModelConfig(model=folder), "b": ModelConfig(model=folder, dtype="bfloat16")}
    models["c"], models["d"] = models["b"], ModelConfig(model="fake")
    config = RunConfig(model=folder, models=models, dtype="float32", disk_tokens=90)
    return load_together(config, None, {}, lambda *told: None)


@pytest.mark.slow
def test_the_models_of_a_run_are_loaded_once_each_and_share_what_one_would_have(loaded: Any) -> None:
    own, others = loaded.engine, loaded.others
    assert list(others) == ["a", "b", "c", "d"]
    assert others["b"] is others["c"]
    assert len({id(own), *map(id, others.values())}) == 4
    assert [each.fullness.disk_limit for each in (own, others["a"], others["b"])] == [30] * 3
    stores = [each.room for each in (own, others["a"], others["b"])]
    assert len(set(stores)) == 1
    bytes_ = sum(
        store * token_bytes([proof.shape for proof in each.proofs], each._model.dtype)
        for (store, _), each in zip(stores, (own, others["a"], others["b"]), strict=True)
    )
    assert bytes_ <= 4 << 30
