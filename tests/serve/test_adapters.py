"""A server process with an adapter in peft's format: its answers are those of the engine with that adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho import Engine
from agentcho.serve.request import QuotedMessage
from tests.engine.families import llama_family
from tests.serve.stage import system, user
from tests.serve.test_process import CHAT, server
from tests.serve.test_real import by_the_engine
from tests.tune.test_adapters import drawn

from ..device import DEVICE

pytestmark = [pytest.mark.server, pytest.mark.slow]
BRIEF, ASKED = "Be brief.", "Is it so?"


def test_an_adapter_says_what_the_engine_says_with_it_and_the_model_what_it_said_without(tmp_path: Path) -> None:
    llama_family().save(tmp_path / "tiny")
    adapter = drawn(tmp_path / "mild", 3)
    words = ("--model", "tiny", "--adapter", f"mild={adapter}", "--dtype", "float32", "--record", "none")
    with server(tmp_path, *words) as (_, client):
        names = [each["id"] for each in client.get("/v1/models").json()["data"]]
        assert {"tiny", "tiny@baseline", "tiny+mild", "tiny+mild@enforce"} <= set(names)
        said = dict[str, list[tuple[int, ...]]]()
        for name in ("tiny", "tiny+mild", "tiny", "tiny+mild@baseline#town/ann"):
            talk = [{"role": "system", "content": BRIEF}, {"role": "user", "content": ASKED}]
            body = {"model": name, "messages": talk, "temperature": 0, "max_tokens": 12}
            answer = client.post(CHAT, json=body | {"return_token_ids": True})
            assert answer.status_code == 200, answer.text
            assert answer.json()["model"] == name
            said.setdefault(name.partition("@")[0], []).append(tuple(answer.json()["choices"][0]["token_ids"]))
    asked: tuple[QuotedMessage, ...] = (system(BRIEF), user(ASKED))
    for name, given in (("tiny", None), ("tiny+mild", adapter)):
        with Engine.load(tmp_path / "tiny", device=DEVICE, dtype="float32", adapter=given) as engine:
            assert said[name] == [by_the_engine(engine, asked, 12)] * 2
    assert said["tiny"] != said["tiny+mild"]
