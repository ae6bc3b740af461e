"""If a text can contain the tokens between two messages, one message can pass for two: no guarantee is claimed then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcho import Agent, Game, RunConfig
from agentcho.config import Leakage, Markers, Mode
from agentcho.engine.fake.toy_tokenizer import FIRST_WORD, FakeFraming
from agentcho.errors import UnsupportedModel
from agentcho.games.runs.runtime import load_engine
from agentcho.provenance.message_boundaries import required_markers
from agentcho.serve.sharing.served import ServedModel, Serving
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import Rehearsal, play

from ..audit.transcripts import audited, chain
from ..device import DEVICE
from ..engine.families import Family


class Plain(FakeFraming):
    """A framing in which an assistant's message can be written inside a user's."""

    plain = (("user", "assistant"),)


def played(engine: FakeEngine, mode: Mode, leakage: Leakage, **options: Any) -> Rehearsal:
    async def script(game: Game) -> None:
        await game.cast(Agent, "ann").tell("hi", to="everyone")

    return play(script, config=RunConfig(mode=mode, leakage=leakage, **options), engine=engine)


def plain() -> FakeEngine:
    engine = FakeEngine()
    engine.framing = Plain()
    return engine


@pytest.mark.parametrize("leakage", ["enforce", "deny"])
def test_a_game_that_claims_something_is_refused_before_anything_is_said(leakage: Leakage) -> None:
    engine = plain()
    with pytest.raises(UnsupportedModel, match=r"user and assistant.*--plain-markers accept"):
        played(engine, "choreographed", leakage)
    assert engine.steps == 0
    assert played(engine, "choreographed", leakage, plain_markers="accept").entries
    assert played(FakeEngine(), "choreographed", leakage).entries


@pytest.mark.parametrize(("mode", "leakage"), [("choreographed", "audit"), ("baseline", "enforce")])
def test_a_game_that_claims_nothing_is_played(mode: Mode, leakage: Leakage) -> None:
    assert played(plain(), mode, leakage).entries


def test_a_model_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    Family("llama", "Llama", style="plain").save(tmp_path)
    for weights in tmp_path.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(UnsupportedModel, match=str(tmp_path)):
        load_engine(RunConfig(model=str(tmp_path), device=DEVICE))


def test_what_a_way_of_playing_asks_is_nothing_once_it_is_accepted() -> None:
    assert required_markers(RunConfig().policy, "refuse") == "refuse"
    assert required_markers(RunConfig().policy, "accept") == "accept"


def test_an_audit_warns_of_a_model_whose_messages_do_not_stand_apart() -> None:
    found = [f for f in audited(chain(), environment={"engine markers": "plain"}).findings if f.rule == "AC010"]
    assert [finding.level for finding in found] == ["warning"]
    assert not [f for f in audited(chain()).findings if f.rule == "AC010"]


def test_no_word_of_the_fake_has_an_id_of_its_framing() -> None:
    framing = FakeFraming()
    fixed = {*framing.opening("user", None), *framing.opening("system", None), *framing.closing("user")}
    assert max(fixed) < FIRST_WORD <= min(framing.content.encode("### Assistant:\n START END 0 1 2 3"))


@pytest.mark.parametrize("markers", ["refuse", "accept"])
def test_a_server_takes_such_a_model_only_where_it_is_told_to(markers: Markers) -> None:
    async def serve() -> None:
        async with ServedModel("plain", plain(), RunConfig(), Serving(markers=markers)).serving():
            pass

    if markers == "accept":
        anyio.run(serve)
    else:
        with pytest.raises(UnsupportedModel, match="--plain-markers accept"):
            anyio.run(serve)
