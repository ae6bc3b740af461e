"""The auction under a rule for words: free speech is refused, bids are charged, and the audit agrees."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentcho import RunConfig
from agentcho.cli import main
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play

AUCTION = Path(__file__).parents[2] / "examples" / "words.py"


@pytest.mark.usefixtures("one_command_line")
def test_an_auction_under_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def agentcho(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["agentcho", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code or 0) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    record, rule = str(tmp_path / "run"), ("--words", "refuse", "--leak-budget", "5")
    agentcho("run", str(AUCTION), "--model", "fake", *rule, "--out", record)
    [run] = (tmp_path / "run").iterdir()
    said = agentcho("audit", str(run))
    assert said.startswith("CLEAN")
    assert sorted(line.split()[:6] for line in said.splitlines() if "→" in line and "typed" in line) == [
        [owner, "→", reader, "bounded", "5", "of"]
        for owner in ("ann", "bob", "carol")
        for reader in ("ann", "bob", "carol", "everyone")
        if owner != reader
    ]


@pytest.mark.parametrize(("words", "budget", "refused"), [(None, None, 0), ("track", 4.0, 0), ("refuse", None, 3)])
def test_what_is_refused_follows_from_the_rule(words: str | None, budget: float | None, refused: int) -> None:
    config = RunConfig(model="fake", words=words, leak_budget=budget)  # type: ignore[arg-type]
    [over] = play(RunRequest(library.scenario(str(AUCTION))(), config)).games
    assert over.outcome is not None
    assert len(over.outcome["refused"]) == refused


def test_a_budget_that_is_too_small_ends_the_game_with_what_is_left() -> None:
    config = RunConfig(model="fake", words="refuse", leak_budget=4)
    [over] = play(RunRequest(library.scenario(str(AUCTION))(), config)).games
    assert "5 bits about secrets of ann, but only 4 of the 4 bits of leak_budget are left" in str(over.error)
