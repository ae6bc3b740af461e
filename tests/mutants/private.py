"""Mutants of tasks with secrets: when words reveal one, which channel is which, what encodings carry, which bits
count."""

from __future__ import annotations

from .mutant import Mutant

RULES = "tests/tasks/test_private.py"
OFFICES = "tests/cli/test_offices.py"
BENCH = "tests/bench/test_agentleak.py"
TASK = "agentcho/tasks/private.py"

PRIVATE = (
    Mutant(
        "a canary counts whatever its case",
        "a text would tell a canary that it does not hold",
        TASK,
        "for canary in self.canaries if canary in text)",
        "for canary in self.canaries if canary.casefold() in text.casefold())",
        (f"{RULES}::test_words_tell_a_canary_exactly_and_a_field_by_its_value",),
    ),
    Mutant(
        "a value counts in its own case alone",
        "a diagnosis in capitals would be no leak",
        TASK,
        "value in text.casefold() and value not in",
        "field.value in text and value not in",
        (f"{RULES}::test_words_tell_a_canary_exactly_and_a_field_by_its_value",),
    ),
    Mutant(
        "what the request says counts as told",
        "who repeats the user's own words would leak",
        TASK,
        " and value not in self.request.casefold()",
        "",
        (f"{RULES}::test_what_stands_in_the_request_is_no_leak_unless_it_is_a_canary",),
    ),
    Mutant(
        "what an attacker says does not count as told",
        "an injection that names a secret would wash it",
        TASK,
        "value not in self.request.casefold()",
        "value not in self.asked.casefold()",
        (f"{RULES}::test_what_stands_in_the_request_is_no_leak_unless_it_is_a_canary",),
    ),
    Mutant(
        "only forbidden fields are disclosed",
        "a field that no rule names would never be found",
        TASK,
        "if not any(field.named(path) for path in self.allowed))",
        "if any(field.named(path) for path in self.forbidden))",
        (f"{RULES}::test_words_tell_a_canary_exactly_and_a_field_by_its_value",),
    ),
    Mutant(
        "a record's kind says nothing",
        "a rule on one kind of record would hold for all",
        TASK,
        'return path in (self.name, f"{self.record}.{self.name}")',
        'return path.rpartition(".")[2] == self.name',
        (f"{RULES}::test_a_field_may_be_named_with_the_kind_of_its_record",),
    ),
    Mutant(
        "parts of words state a sentence",
        "moneybags would be money",
        TASK,
        "if f\" {' '.join(_words(item))} \" in words)",
        "if ' '.join(_words(item)) in words)",
        (f"{RULES}::test_a_sensitive_sentence_is_stated_word_for_word_or_named_by_most_of_its_words",),
    ),
    Mutant(
        "the reply counts among the words between agents",
        "what only the user was told would be told between agents",
        "scenarios/agentleak.py",
        "between=Told.of(vault, [told, found]),",
        "between=Told.of(vault, [told, found, reply]),",
        (f"{OFFICES}::test_each_channel_is_scored_by_its_own_words",),
    ),
    Mutant(
        "instructions are no words between agents",
        "what the coordinator tells the worker would be missed",
        "scenarios/agentleak.py",
        "between=Told.of(vault, [told, found]),",
        "between=Told.of(vault, [found]),",
        (f"{OFFICES}::test_each_channel_is_scored_by_its_own_words",),
    ),
    Mutant(
        "encodings carry what their message says alone",
        "reuse of what authors encoded would look clean",
        "agentcho/games/play/game.py",
        "return {id: frozenset(cone) for id, cone in cones if cone is not None}",
        "return {id: frozenset((id, *self._messages.drafts[id].metadata.parents)) for id, _ in cones}",
        (
            f"{OFFICES}::test_records_are_in_the_encodings_that_the_compiler_reads_only_where_authors_made_them",
            f"{OFFICES}::test_what_a_scenario_asks_of_provenance_is_scored_beside_the_rest",
        ),
    ),
    Mutant(
        "bits of next tokens are not compared",
        "a position that moved, and no key, would be no difference",
        "tools/bench/agentleak/result.py",
        "return not self.differing and self.same_rows",
        "return not self.differing",
        (f"{BENCH}::test_bits_of_rows_count_too",),
    ),
    Mutant(
        "numbers are compared, not bits",
        "a zero and a minus zero would be equal",
        "tools/bench/agentleak/measure.py",
        "return int(np.bitwise_count(ours ^ theirs).sum())",
        "return int((one != other).sum())",
        (f"{BENCH}::test_bits_that_differ_are_counted_one_by_one",),
    ),
    Mutant(
        "a vault is swapped for itself",
        "every bit would be equal, under audit too",
        "tools/bench/agentleak/measure.py",
        "return plays[game].saying(words)",
        "return plays[game]",
        (f"{BENCH}::test_enforcement_keeps_every_bit_and_authors_encodings_do_not",),
    ),
)
