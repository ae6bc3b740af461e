"""Mutants of sweeps: what is played again, what is paired, and what is kept in memory."""

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
    Mutant(
        "whatever was measured counts as the baseline's words",
        "a way of reading that answers otherwise would be called as good",
        "agentcho/lab/yardstick.py",
        'near(kl) == "changed" or ',
        "",
        ("tests/bench/test_result.py::test_words_are_as_good_only_by_their_scores_and_by_how_near_they_are",),
    ),
    Mutant(
        "what is fast has met its target, whatever it says",
        "a page would praise a speed that was bought with other answers",
        "agentcho/lab/bench/result.py",
        '"changed": "fast, but changed", ',
        "",
        ("tests/bench/test_result.py::test_what_is_fast_has_met_nothing_unless_it_says_the_same",),
    ),
)
