"""Mutants of sweeps: what is played again, what is a pair, what is in memory. Does not know: how they are run."""

from __future__ import annotations

from .mutant import Mutant

SWEEPS_TEST = "tests/experiments/test_sweeps.py"
SWEEPS = (
    Mutant(
        "a game of a sweep that begins without its words",
        "words that were said, and may have been paid for, would be asked for again",
        "agentcho/lab/sweep/folder.py",
        "return GameSelection(tuple(left), before=said, calls=calls)",
        "return GameSelection(tuple(left), calls=calls)",
        (f"{SWEEPS_TEST}::test_what_was_said_in_a_game_that_was_stopped_is_said_again",),
    ),
    Mutant(
        "rows of a sweep that play other tasks and are paired",
        "differences between games that have nothing in common would pass for paired ones",
        "agentcho/lab/sweep/figures.py",
        "if theirs & tasks), name)",
        "if theirs or tasks), name)",
        (f"{SWEEPS_TEST}::test_rows_that_play_other_tasks_are_in_no_pair",),
    ),
    Mutant(
        "a model of a sweep that stays when the next one is loaded",
        "all models of a sweep would be in memory at once",
        "agentcho/lab/sweep/stage.py",
        "            give_up(loaded)\n",
        "            pass\n",
        (f"{SWEEPS_TEST}::test_each_model_is_loaded_once_and_none_beside_another",),
    ),
)
