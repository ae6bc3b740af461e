"""Moves read from the lists that TextArena's games print, and texts that only look like such lists."""

from __future__ import annotations

import pytest

from agentcho.integrations.textarena.environment import Observation
from agentcho.integrations.textarena.moves import listed, of_player

WHOLE = {
    "Available Moves: '[0]', '[1]', '[2]'": ("[0]", "[1]", "[2]"),
    "the board\nAvailable Moves: [a2 b4], [a2 c3]\nyour turn": ("[a2 b4]", "[a2 c3]"),
    "Your available actions are: '[fold]', '[call]'": ("[fold]", "[call]"),
    "Available actions: '[roll]' or '[hold]'": ("[roll]", "[hold]"),
    "Valid moves: '[2, 3]', '[3, 2]'": ("[2, 3]", "[3, 2]"),
    "Night phase - choose one player to protect: [0], [1]": ("[0]", "[1]"),
    "Voting phase - submit one vote in format [X]. Valid: [0], [3]": ("[0]", "[3]"),
    "Available Moves: [X 0], [O 0], [X 0]": ("[X 0]", "[O 0]"),
    "Available Moves: [discard 8♣ 0], [draw]": ("[discard 8♣ 0]", "[draw]"),
    "Your options: [draw], [take]": ("[draw]", "[take]"),
}
NONE = (
    "Your possible actions: '[check]', '[bet X]'",
    "Use exactly ONE bracketed action: [draw], [take], [swap X Y]",
    "Player 0 moves [a2a3] (W).",
    "Available actions: [check], or anything else that you like",
    "Reason: Action must be [fold], [call].",
    "Valid moves:",
    "",
)


@pytest.mark.parametrize("text", WHOLE)
def test_a_list_that_is_whole_says_the_moves(text: str) -> None:
    assert listed([text]) == WHOLE[text]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_whole_list_says_none(text: str) -> None:
    assert listed([text]) == ()


def test_of_several_lists_the_last_counts() -> None:
    assert listed(["Valid moves: [1], [2]", "Valid moves: [3]", "a board"]) == ("[3]",)


def test_a_list_counts_for_whom_it_is_told_and_where_the_game_itself_tells_it() -> None:
    def told(author: int, to: int, kind: str = "GAME_BOARD") -> list[Observation]:
        return [Observation(author, to, kind, "Valid moves: [1], [2]")]

    assert of_player(0, told(-1, 0)) == of_player(0, told(-1, -1)) == ("[1]", "[2]")
    assert of_player(0, told(-1, 1)) == of_player(0, told(1, 0)) == of_player(0, told(-1, 0, "PROMPT")) == ()
