"""Mutants of tools: calls that are made twice, unrecorded, unchecked, or revealed to others."""

from __future__ import annotations

from .mutant import Mutant

IN_GAMES = "tests/toolsets/test_in_games.py"
RESUME = "tests/toolsets/test_resume.py"
WORKERS = "tests/cluster/test_tools.py"

TOOLS = (
    Mutant(
        "a call that is on no record before it is made",
        "after a kill nobody would know that it may have been made",
        "agentcho/games/play/tool_calls.py",
        "self._sink(Calling(self._index, making.id, making.use, making.release, tool.declared.idempotent, attempt))",
        "_ = Calling(self._index, making.id, making.use, making.release, tool.declared.idempotent, attempt)",
        (f"{RESUME}::test_a_call_is_on_record_before_it_is_made_and_after",),
    ),
    Mutant(
        "a call that runs unchecked",
        "the world would learn what it must not",
        "agentcho/games/play/tool_turn.py",
        "self._game.messages.check_call(said.id, use, self._speech.asked.release)",
        "pass",
        (f"{IN_GAMES}::test_what_the_world_learns_is_checked_before_the_call_runs",),
    ),
    Mutant(
        "a leak that a tool meets told to its agent",
        "an agent would be told which message another may not read, and the game would go on",
        "agentcho/games/tools/running.py",
        "    ending = ToolFailed, LimitReached, LeakageError, KeyboardInterrupt\n",
        "    ending = ToolFailed, LimitReached, KeyboardInterrupt\n",
        (f"{IN_GAMES}::test_a_leak_of_an_agent_that_a_tool_lets_speak_is_told_to_nobody_and_ends_the_game",),
    ),
    Mutant(
        "a result encoded over what its caller had read",
        "who reads the result would read through it what its caller alone may",
        "agentcho/games/play/tool_turn.py",
        "return messages.put(self._saying(told, come.to, written))",
        "return messages.put(self._saying(told._replace(reads=self._speech.reads), come.to, written))",
        ("tests/toolsets/test_real.py::test_a_result_is_on_weights_what_it_is_when_it_is_encoded_alone",),
    ),
    Mutant(
        "recorded results that are not taken",
        "a retry would call again what was called",
        "agentcho/games/play/tool_turn.py",
        "written = messages.recorded.result(id) or messages.recorded.result(own)",
        "written = None",
        (f"{RESUME}::test_a_retry_takes_results_too",),
    ),
    Mutant(
        "calls that are numbered as messages",
        "the id of a later message would tell others how often a model called a tool",
        "agentcho/games/play/tool_turn.py",
        "                id=id,\n            )",
        "                id=None,\n            )",
        (f"{IN_GAMES}::test_neither_ids_nor_seeds_nor_numbers_of_turns_tell_others_how_often_a_model_called",),
    ),
    Mutant(
        "a seed that counts calls",
        "what an agent says later would depend on how often its model had called a tool",
        "agentcho/games/play/tool_turn.py",
        "turns.sampling(self._author, speech.asked.sampling, speech.turn, self._seeds)",
        "turns.begin(turns._messages.roster.agents[self._author], speech.asked).options",
        (f"{IN_GAMES}::test_neither_ids_nor_seeds_nor_numbers_of_turns_tell_others_how_often_a_model_called",),
    ),
    Mutant(
        "calls of an earlier version that are not found",
        "resuming a game would call again what was called",
        "agentcho/games/play/journal.py",
        "if has_earlier_ids(self._said.values()) or not all(map(is_step_id, self._calls.begun)):",
        "if False:",
        (f"{RESUME}::test_calls_that_an_earlier_version_recorded_are_not_made_again",),
    ),
    Mutant(
        "results for everyone",
        "others would read what only the caller may",
        "agentcho/games/play/tool_turn.py",
        "to = self._own if results is None",
        "to = EVERYONE if results is None",
        (f"{IN_GAMES}::test_a_call_and_its_result_are_private_and_what_is_said_then_is_not",),
    ),
    Mutant(
        "a call without a result that stops nothing",
        "a payment could be made twice",
        "agentcho/games/play/journal.py",
        "if left := self.open_calls:",
        "if left := self.open_calls[:0]:",
        (f"{RESUME}::test_a_call_without_a_result_stops_its_game_and_no_other",),
    ),
    Mutant(
        "a worker that does not wait for the record",
        "what a dead worker was calling would be called again",
        "agentcho/integrations/ray/worker.py",
        "if self._notes > self._recorded:",
        "if self._notes < self._recorded:",
        (f"{WORKERS}::test_a_call_is_on_record_before_a_worker_makes_it",),
    ),
    Mutant(
        "what a worker's game said until a call is nowhere",
        "where its driver died too, all its calls would be made again, or none could be",
        "agentcho/integrations/ray/runs.py",
        "self._record.wrote(note.lines)",
        "pass",
        (f"{WORKERS}::test_what_was_called_is_on_record_though_its_game_was_given_up",),
    ),
)
