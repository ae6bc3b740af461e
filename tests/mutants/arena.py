"""Mutants of games that an environment runs: observations of players, turns, and games that hang."""

from __future__ import annotations

from .mutant import Mutant

ARENA = "tests/arena/test_arena.py"
WATCH = "tests/arena/test_watch.py"
MOVES = "tests/arena/test_moves.py"
TELLING = "agentcho/integrations/textarena/telling.py"

ENVIRONMENTS = (
    Mutant(
        "what an environment tells one player it tells everyone",
        "the cards of a player would be everyone's",
        TELLING,
        'to = "everyone" if each.to == EVERYBODY else (self._player(each.to).name,)',
        'to = "everyone"',
        (f"{ARENA}::test_what_each_is_told_only_it_may_read_and_a_move_that_is_passed_on_is_a_release",),
    ),
    Mutant(
        "words of another player than whose turn it is count as its own",
        "what an environment repeats of another would be released as the speaker's",
        TELLING,
        "own = said is not None and each.author == said.player",
        "own = said is not None and each.author >= 0",
        (f"{ARENA}::test_words_go_to_whom_the_environment_sends_them_and_nobody_is_told_its_own_twice",),
    ),
    Mutant(
        "a move may be said to others",
        "an agent would tell what the environment keeps hidden",
        "agentcho/integrations/textarena/table.py",
        "if said.audience != Audience(frozenset({agent.name})):",
        "if False:",
        (f"{ARENA}::test_a_move_is_said_and_to_nobody",),
    ),
    Mutant(
        "a move that was refused may be chosen again",
        "a player would choose what it was just refused, until it is out",
        "agentcho/integrations/textarena/table.py",
        "tuple(each for each in choices if each != text)",
        "choices",
        (f"{ARENA}::test_of_listed_moves_one_is_chosen_and_after_a_refusal_one_of_the_others",),
    ),
    Mutant(
        "rewards of a game that was cut off count",
        "a game without an end would have a winner",
        "agentcho/integrations/textarena/table.py",
        "(ending if over else ending._replace(rewards=None))",
        "ending",
        (f"{ARENA}::test_a_game_that_is_cut_off_has_no_rewards",),
    ),
    Mutant(
        "the thread of what is given up runs on",
        "an endless loop would take half of the processor until the run ends",
        "agentcho/integrations/textarena/watch.py",
        "            self._give_up()\n            raise ScenarioError(",
        "            raise ScenarioError(",
        (f"{WATCH}::test_what_does_not_come_back_is_an_error_and_its_thread_is_asked_to_end",),
    ),
    Mutant(
        "a list of moves with a stand-in counts as whole",
        "a player could say nothing but `[bet X]`",
        "agentcho/integrations/textarena/moves.py",
        " or STANDS_FOR.search(line)",
        "",
        (f"{MOVES}::test_what_is_no_whole_list_says_none",),
    ),
)
