"""Mutants of results in memory: what an agent may read, what a data frame owns, concurrent runs on one engine."""

from __future__ import annotations

from .mutant import Mutant

PLAYED = "tests/results/test_played.py"
ARROW = "tests/results/test_tables.py"
ATONCE = "tests/results/test_arun.py"

IN_HAND = (
    Mutant(
        "parents that a reader may not know of",
        "what an agent may read would name the messages that it may not",
        "agentcho/records/readable_record.py",
        "if readers is not None and readers.covers(said.audience)",
        "if True",
        (f"{PLAYED}::test_what_a_reader_may_read_tells_nothing_of_what_it_may_not",),
    ),
    Mutant(
        "costs of what a reader may not know of",
        "how much a message reused would tell how much its author had read",
        "agentcho/games/results/played.py",
        "leave_out=() if readable_by is None else COSTS",
        "leave_out=()",
        (f"{PLAYED}::test_what_a_reader_may_read_tells_nothing_of_what_it_may_not",),
    ),
    Mutant(
        "a result's words as markup",
        "what somebody said would run in a notebook",
        "agentcho/games/results/rendering.py",
        'return escape(text, quote=True).replace("\\n", "<br>")',
        'return text.replace("\\n", "<br>")',
        (f"{PLAYED}::test_nothing_that_was_said_becomes_markup_or_moves_a_cursor",),
    ),
    Mutant(
        "a struct that is released counts as there",
        "memory would be given up twice",
        "agentcho/games/results/arrow.py",
        "        struct.release = None\n        for place in",
        "        for place in",
        (f"{ARROW}::test_a_struct_that_is_released_twice_is_left_alone",),
    ),
    Mutant(
        "the memory of a table is never given up",
        "each data frame would keep its table for ever",
        "agentcho/games/results/arrow.py",
        "        drop(cast(struct.private_data, object_))",
        "        cast(struct.private_data, object_)",
        (f"{ARROW}::test_memory_is_given_up_when_its_reader_is_gone",),
    ),
    Mutant(
        "who goes first closes the engine",
        "a run that ends, or is cancelled, would end the others",
        "agentcho/games/runs/hosting.py",
        "            if not self._guests:",
        "            if True:",
        (f"{ATONCE}::test_the_first_may_go_while_others_play_on",),
    ),
    Mutant(
        "the record of a newer version counts as damaged",
        "a reader would be told to delete a line of a record that is whole",
        "agentcho/records/record.py",
        "if number is not None and int(number[1]) > FORMAT:",
        "if False:",
        (f"{PLAYED}::test_a_record_of_a_newer_version_says_what_wrote_it",),
    ),
)
