"""Mutants of runs with several models: whose token ids and words are used, and what reaches another engine."""

from __future__ import annotations

from .mutant import Mutant

MODELS = "tests/models/test_models.py"
RECORDS = "tests/models/test_records.py"
WEIGHTS = "tests/models/test_weights.py"

MIXED = "tests/engine/test_mixed.py"
ADAPTERS = "tests/models/test_adapters.py"

SEVERAL = (
    Mutant(
        "keys of another adapter",
        "a call would read keys that another adapter made as if they were its own's, or the base's",
        "agentcho/engine/call_layout.py",
        "if entry.recipe.context.origin not in (rules.origin, base):",
        "if entry.recipe.context.origin not in (rules.origin, base, entry.recipe.context.origin):",
        (f"{MIXED}::test_keys_of_another_adapter_are_refused",),
    ),
    Mutant(
        "an adapter that goes for harmless",
        "an adapter that changes keys in later layers alone would share those of the base",
        "agentcho/runner/runner.py",
        "self.all = self.all and not bool(keys.isnan().any() or values.isnan().any())",
        "self.all = self.all and not (layer == 0 and bool(keys.isnan().any() or values.isnan().any()))",
        (f"{MIXED}::test_encodings_are_the_bases_where_nothing_flows_into_a_key_or_value",),
    ),
    Mutant(
        "an audience's encoding through one's own adapter",
        "what everyone reads would depend on who asked for it first",
        "agentcho/provenance/resolver.py",
        "return replace(self._prefill(draft, draft.metadata.audience, public), adapter=None)",
        "return self._prefill(draft, draft.metadata.audience, public)",
        (f"{ADAPTERS}::test_nobody_reads_keys_of_another_adapter",),
    ),
    Mutant(
        "an audit that takes one adapter for another",
        "a record in which somebody read what another adapter made would be called clean",
        "agentcho/records/models.py",
        'return read.recipe == "audience" and reader.engine in self.homes and self.homes[reader.engine] == read.engine',
        "return reader.engine in self.homes",
        (f"{ADAPTERS}::test_a_record_in_which_one_read_keys_of_another_adapter_is_not_clean",),
    ),
    Mutant(
        "a message is read on every engine as its author has it",
        "under audit what an author had read would get to engines where it never was",
        "agentcho/provenance/resolver.py",
        'return "audience" if self.enforcing or not self._said_here(self.drafts[read.id]) else "author"',
        'return "audience" if self.enforcing else "author"',
        (f"{RECORDS}::test_under_audit_a_leak_stays_on_its_engine",),
    ),
    Mutant(
        "all engines of a run give out the same ids",
        "one encoding would be released, audited or read for another",
        "agentcho/engine/core.py",
        "        self._ids.go_to(place)\n",
        "        self._ids.go_to(0)\n",
        (f"{MODELS}::test_each_speaks_through_its_model_and_no_id_is_given_twice",),
    ),
    Mutant(
        "ids of one tokenizer for another",
        "a message would be other words on another engine",
        "agentcho/provenance/message_lengths.py",
        "return self._spelling is None or draft.tokenizer == self._spelling.tokenizer",
        "return True",
        (f"{RECORDS}::test_lines_say_on_which_engine_an_encoding_is_and_read_back",),
    ),
    Mutant(
        "the length of one tokenizer for another's",
        "what is placed after a message would overlap it, or tell of another engine",
        "agentcho/provenance/message_lengths.py",
        "if self._spelling is None or self.spells(draft):",
        "if self._spelling is not None or self.spells(draft):",
        (f"{RECORDS}::test_places_are_counted_in_the_words_of_the_engine_that_reads",),
    ),
    Mutant(
        "a game goes on through another model",
        "the words of one tokenizer would be forced as those of another",
        "agentcho/games/play/journal.py",
        '("model", draft.engine == entry.engine),',
        '("model", True),',
        (f"{RECORDS}::test_a_game_that_goes_on_through_another_model_departs_from_its_record",),
    ),
    Mutant(
        "an encoding attends to another engine's",
        "a record that cannot be would be clean",
        "agentcho/audit/cones.py",
        "        if elsewhere:\n",
        "        if elsewhere and lost:\n",
        (f"{RECORDS}::test_no_damage_makes_a_message_of_another_engine_clean",),
    ),
    Mutant(
        "each model of a run keeps what it would alone",
        "two models would take twice the memory of one",
        "agentcho/runner/kv/kv_pool.py",
        "// sum(kind.bytes_on(where) for kind in kinds)",
        "// max(kind.bytes_on(where) for kind in kinds)",
        (f"{WEIGHTS}::test_models_that_are_loaded_together_keep_no_more_than_one_would",),
    ),
)
