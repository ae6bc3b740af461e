"""The example of an agent for TextArena's games: in an environment without TextArena, and in its own game."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcho.games.runs import library
from agentcho.integrations.textarena.environment import Observation
from tests.arena.conftest import site_packages
from tests.arena.stage import Cards, arena, played

EXAMPLE = Path(__file__).parents[2] / "examples" / "caller.py"


class Bets(Cards):
    """Lists three moves to each player."""

    def card(self, player: int) -> Observation:
        return Observation(-1, player, "GAME_BOARD", "Available actions: '[fold]', '[call]', '[raise]'")


def test_it_takes_a_move_that_is_listed_and_never_folds() -> None:
    game = played(arena(Bets), library.agent(str(EXAMPLE)))
    said = [entry for entry in game.entries if entry.message.kind == "decode"]
    assert len(said) == 2
    assert all(entry.act.choices == ("[call]", "[raise]") for entry in said)


@pytest.mark.clients
def test_it_plays_kuhn_poker() -> None:
    path = os.pathsep.join([*sys.path, str(site_packages())])
    command = [sys.executable, str(EXAMPLE)]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert ran.returncode == 0, ran.stderr
    assert "[Player 0] [fold]" not in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("{'player-0': ")
