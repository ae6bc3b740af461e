"""Mutants of a run on workers: each loses a game, plays one too often, or admits a worker that must not play."""

from __future__ import annotations

from .mutant import Mutant

DRIVER = "tests/cluster/test_driver.py"

CLUSTER = (
    Mutant(
        "a game of a dead worker is not dealt again",
        "it would be in no record, and the run would say that it is done",
        "agentcho/integrations/ray/driver.py",
        "                self._waiting.appendleft(game)\n",
        "                pass\n",
        (f"{DRIVER}::test_whoever_plays_it_is_the_same_run",),
    ),
    Mutant(
        "a game is given up one death too soon",
        "an innocent game would fail that was dealt beside one that kills its workers",
        "agentcho/integrations/ray/driver.py",
        "if self._deaths[game] > self._deaths_allowed:",
        "if self._deaths[game] >= self._deaths_allowed:",
        (f"{DRIVER}::test_a_game_is_given_up_when_workers_died_of_it_too_often",),
    ),
    Mutant(
        "a worker of another version takes part",
        "words would depend on who plays a game",
        "agentcho/integrations/ray/driver.py",
        "if differ := other_versions(hello.versions):",
        "if differ := list[str]():",
        (f"{DRIVER}::test_where_every_worker_has_another_version_that_is_the_error",),
    ),
    Mutant(
        "every worker of a machine takes the whole store",
        "two of them would take twice the memory that one may",
        "agentcho/integrations/ray/worker.py",
        "self._load(work.config, 1 / beside)",
        "self._load(work.config, 1)",
        (f"{DRIVER}::test_a_store_and_the_number_of_games_at_once_are_shared_by_the_workers_of_a_machine",),
    ),
    Mutant(
        "a worker plays whatever file it has",
        "games of one run would be played by two sources",
        "agentcho/integrations/ray/worker.py",
        "if work.sources and here != sorted(work.sources):",
        "if False:",
        (f"{DRIVER}::test_a_worker_with_another_source_refuses",),
    ),
    Mutant(
        "a secret option travels as its stars",
        "the scenario would play with another secret than it was given",
        "agentcho/integrations/ray/runs.py",
        "return value.get_secret_value()",
        "return shown",
        (f"{DRIVER}::test_a_secret_option_travels_as_it_is",),
    ),
)
