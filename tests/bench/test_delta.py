"""What delta encoding of a message's two encodings would save, as measured by `python -m tools.bench delta`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentcho.cli import run
from agentcho.errors import RecordError
from agentcho.games.runs.replay import replay
from agentcho.lab.bench.workflows import dilemma, open_talk
from agentcho.records.trace import write_traces
from agentcho.runner.engine import Engine
from tests.engine.families import llama_family
from tests.engines import Engines
from tools.bench.commands import app
from tools.bench.delta import POLICY, Delta, Found, kept, measure, pairs, rounded, sentence, tokens


@pytest.mark.parametrize(("bits", "steps"), [(8, 127), (4, 7), (2, 1)])
def test_numbers_are_rounded_to_multiples_of_a_part_of_the_largest(bits: int, steps: int) -> None:
    given = torch.tensor([[2.0, -0.3, 0.0, 1.1], [0.0, 0.0, 0.0, 0.0]])
    whole = np.round(np.array([1.0, -0.15, 0.0, 0.55]) * steps) / steps * 2
    assert rounded(given, bits).numpy() == pytest.approx(np.stack([whole, np.zeros(4)]), abs=1e-6)


def test_bits_saved_are_those_by_which_the_difference_is_smaller() -> None:
    quarter = Found("talk", (Delta(0.25, (0.008, 0.1), (0.002, 0.025), (0.0, 0.5), 30, 120),) * 2)
    assert quarter.fewer() == pytest.approx(2.0)
    assert quarter.doubled() == 0.25
    equal = Found("talk", (Delta(0.0, (0.008, 0.1), (0.0, 0.0), (1.0, 1.0), 30, 120),))
    assert equal.fewer() is None


def test_the_two_encodings_are_those_of_a_stock_forward_over_either_context(engines: Engines, llama: Engine) -> None:
    """One agent speaks beside its rules; the encoding for its readers is made over nothing."""
    talk, stock = open_talk(1, agents=1, rounds=1, words=6), engines.stock(llama_family())
    with kept(llama):
        played = replay(talk, llama, POLICY, logits=False)
        ((author, audience),) = pairs(played)
        mine, others = tokens(llama, author, audience)
    rules, spoken = (entry.message for entry in played.entries)
    for found, context in ((mine, [rules]), (others, [])):
        ids = [*llama.framing.begin, *(id for message in context for id in message.tokens), *spoken.tokens]
        with torch.no_grad():
            states: Any = stock(torch.tensor([ids]), use_cache=True).past_key_values
        for layer, each in enumerate(states.layers):
            values = each.values[0, :, -len(spoken.tokens) :].transpose(0, 1)
            keys = each.keys[0, :, -len(spoken.tokens) :].transpose(0, 1)
            assert torch.allclose(found[:, 2 * layer + 1], values, atol=1e-4)
            if found is mine:
                assert torch.allclose(found[:, 2 * layer], keys, atol=1e-4)
            assert torch.allclose(found[:, 2 * layer].norm(dim=-1), keys.norm(dim=-1), atol=1e-4)


def test_a_file_is_measured_and_nothing_is_kept(llama: Engine, tmp_path: Path) -> None:
    file, talk = tmp_path / "talk.jsonl", open_talk(1, agents=2, rounds=1, words=6)
    write_traces(file, [talk])
    replay(talk, llama, POLICY, logits=False)
    before = llama.fullness.used
    (found,) = measure(llama, [file], 4, lambda *_: None)
    (game,) = found.games
    assert 0.0 < game.size < 2.0
    assert game.delta[0] < game.delta[1], "8 bits are nearer than 4"
    assert 0 < game.tokens < game.encoded
    assert llama.fullness.used == before


def test_conversations_without_spoken_encodings_are_refused(llama: Engine, tmp_path: Path) -> None:
    file = tmp_path / "quiet.jsonl"
    quiet = open_talk(1, agents=1, rounds=0)
    write_traces(file, [quiet])
    with pytest.raises(RecordError, match="quiet: no message has two encodings"):
        measure(llama, [file], 1, lambda *_: None)


@pytest.mark.slow
def test_the_command_measures_a_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    traces, file = tmp_path / "dilemma.jsonl", tmp_path / "delta.json"
    write_traces(traces, [dilemma(1)])
    monkeypatch.setattr("sys.argv", ["bench", "delta", "--traces", str(traces), "--limit", "1", "--json", str(file)])
    with pytest.raises(SystemExit) as left:
        run(app())
    assert left.value.code == 0
    assert "second encodings" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert "delta --model understudy" in found["command"]
    assert "In 1 conversations of dilemma" in sentence(found)
