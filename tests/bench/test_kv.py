"""The effect of rounding keys and values, as measured by `python -m tools.bench kv`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from agentcho.cli import run
from agentcho.runner.kv import kv_quant
from tools.bench.commands import app
from tools.bench.kv import Distance, Found, Score, Subject, entropy, rounding_to, scaled_to


def subject(int8: float, two: float) -> Subject:
    return Subject(2, 9, 0.3, 1.0, {"int8": Distance(int8, 0, 1, 0.9), "2 bits": Distance(two, 0, 1, 0.5)})


def test_logits_are_scaled_until_they_are_as_unsure_as_is_asked() -> None:
    games = [np.random.default_rng(n).normal(size=(50, 30)).astype(np.float32) for n in (1, 2)]
    for unsure in (0.2, 1.5, 3.2):
        rows = log_softmax(np.concatenate(games) * np.float32(scaled_to(games, unsure)), axis=1)
        assert entropy(rows).mean() == pytest.approx(unsure, abs=1e-3)


def test_two_bits_leave_three_numbers_of_each_vector() -> None:
    given = torch.tensor([[0.9, -0.2, 0.6, -1.0]])
    with rounding_to(1):
        assert kv_quant.round_trip(given).tolist() == [[1.0, 0.0, 1.0, -1.0]]
    assert kv_quant.TOP == 127


@pytest.mark.parametrize(
    ("model", "drawn", "score", "met"),
    [
        ((0.001, 1.0), (0.009, 1.0), 0.995, [True, True, True]),
        ((0.001, 1.0), (0.011, 1.0), 0.995, [False, True, True]),
        ((0.011, 1.0), (0.001, 1.0), 0.98, [False, True, False]),
        ((0.001, 0.01), (0.001, 1.0), 1.02, [True, False, False]),
    ],
)
def test_a_target_is_met_by_both_networks_or_missed(
    model: tuple[float, float], drawn: tuple[float, float], score: float, met: list[bool]
) -> None:
    found = Found(subject(*model), subject(*drawn), {"right": Score(1.0, score)})
    assert [*found.met.values()] == met
    assert [line.rsplit(": ")[-1] for line in [*found.lines()][-3:]] == ["met" if each else "missed" for each in met]


@pytest.mark.slow
def test_the_command_measures_a_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kv.json"
    monkeypatch.setattr("sys.argv", ["bench", "kv", "direct", "--games", "1", "--json", str(file)])
    with pytest.raises(SystemExit) as left:
        run(app())
    assert left.value.code == 0
    found = json.loads(file.read_text())
    assert found["asked"]["scenario"] == "direct"
    assert 0 < found["model"]["arms"]["int8"]["kl"] < 0.01 < found["model"]["arms"]["2 bits"]["kl"]
    assert found["random"]["entropy"] == pytest.approx(found["model"]["entropy"], rel=0.01)
    assert "the same likeliest token" in capsys.readouterr().out
