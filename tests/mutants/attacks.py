"""Mutants of the attacks on public sentences that would make their figures wrong."""

from __future__ import annotations

from .mutant import Mutant

SECRETS = "tests/attacks/test_secrets.py"
SCENE = "tests/attacks/test_scene.py"
JUDGED = "tests/attacks/test_judged.py"

GIVEN_AWAY = (
    Mutant(
        "tested secrets are trained on",
        "an attack that learns by heart would look like one that reads encodings",
        "agentcho/lab/leaks/secrets.py",
        "return Split(order[:first], order[first:second], order[second:])",
        "return Split(order, order[first:second], order[second:])",
        (f"{SECRETS}::test_no_secret_that_is_tested_was_trained_on_or_chosen_by",),
    ),
    Mutant(
        "what is for an audience is read as its author has it",
        "the table would say of one encoding what is so of the other",
        "agentcho/lab/leaks/ways.py",
        'AUDIENCE: _REUSE._replace(leakage="enforce"),',
        "AUDIENCE: _REUSE,",
        (
            f"{SCENE}::test_what_is_for_an_audience_is_the_same_to_the_bit_whatever_the_secret",
            f"{SCENE}::test_a_search_finds_the_secret_in_what_its_author_encoded_and_not_in_what_is_for_all",
        ),
    ),
    Mutant(
        "an attack that fails everywhere clears what it is tried on",
        "a weak attack would be taken for a proof that nothing leaks",
        "agentcho/lab/leaks/judged.py",
        "if author is None or not leaks(author):",
        "if author is None:",
        (f"{JUDGED}::test_an_attack_that_does_not_succeed_on_the_author_clears_nobody",),
    ),
)
