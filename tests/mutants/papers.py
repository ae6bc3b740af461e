"""Mutants of the reproduction of the paper: held-out data, counts, and checks."""

from __future__ import annotations

from .mutant import Mutant

PAPER_TEST = "tests/experiments/test_paper.py"
FACTS_TEST = "tests/tasks/test_generators.py"
PAPERS = (
    Mutant(
        "halves of the facts that are split by what is asked about alone",
        "an answer that is asked about itself would be in the other half, and so in what is trained on",
        "agentcho/tasks/facts.py",
        "first if own in joined else own",
        "own",
        (
            f"{FACTS_TEST}::test_no_entity_is_in_both_halves_of_the_facts",
            f"{FACTS_TEST}::test_facts_that_lead_to_one_another_are_in_one_half",
        ),
    ),
    Mutant(
        "traces of the very games that rows are compared on",
        "a trained row would answer what it was trained on",
        "agentcho/lab/paper/rows.py",
        '"seed": base.seed + 1 if tasks is None or tasks.size is None else base.seed',
        '"seed": base.seed',
        (f"{PAPER_TEST}::test_no_task_that_is_compared_on_is_one_that_is_trained_on",),
    ),
    Mutant(
        "tasks are looked for as whole messages",
        "a question that a game was told under a number would pass for one that no trace has",
        "agentcho/lab/paper/adapters.py",
        "any(words in text for text in told)",
        "any(words == text for text in told)",
        (f"{PAPER_TEST}::test_words_that_a_game_was_told_are_found_and_words_that_were_said_are_not",),
    ),
    Mutant(
        "games that were trained on choose the checkpoint",
        "an adapter would be chosen for what it has learnt by heart",
        "agentcho/lab/tune/choice.py",
        'first = max(int(trace.meta["game"]) for trace in traces) + 1',
        "first = 0",
        (
            "tests/cli/test_training.py::test_games_that_choose_a_checkpoint_are_like_those_of_the_traces_and_none_of_them",
        ),
    ),
    Mutant(
        "any digest will do",
        "a figure that somebody changed in a file would go unnoticed",
        "agentcho/lab/paper/check.py",
        "if found.digest != digest:",
        "if not found.digest:",
        ("tests/cli/test_paper.py::test_a_figure_that_was_changed_is_noticed_by_the_digest",),
    ),
    Mutant(
        "a budget that is used up stops nothing",
        "a command would go on for hours after the time that it was given",
        "agentcho/lab/paper/phases.py",
        "perf_counter() - self._began >= self._budget",
        "perf_counter() - self._began < 0",
        (f"{PAPER_TEST}::test_a_phase_is_kept_however_it_ends_and_added_up_over_commands",),
    ),
)
