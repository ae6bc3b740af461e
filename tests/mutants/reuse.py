"""Mutants of reuse methods: CacheBlend's filter, APE's weights, names, and the Pareto front of a comparison."""

from __future__ import annotations

from .mutant import Mutant

APE = "tests/engine/test_ape.py"
BLEND = "tests/engine/test_blend.py"
COLUMNS = "tests/experiments/test_columns.py"
FRONT = "tests/experiments/test_front.py"

REUSING = (
    Mutant(
        "a share of tokens that does not fall",
        "CacheBlend would be its choice alone, under another name",
        "agentcho/reuse/cacheblend.py",
        "(self.first - 2 * self._spread * fallen)",
        "self.share",
        (f"{BLEND}::test_fewer_tokens_are_anew_from_layer_to_layer",),
    ),
    Mutant(
        "choose among all tokens at every layer",
        "a token that was filtered out would come back with what it was never encoded over",
        "agentcho/runner/reuse/cacheblend.py",
        "segment.left = [left[index] for index in most_deviating(fresh[:, left], kept[:, there], count)]",
        "segment.left = most_deviating(fresh, kept[:, list(segment.places)], count)",
        (f"{BLEND}::test_tokens_are_filtered_layer_by_layer_as_the_oracle_does[llama]",),
    ),
    Mutant(
        "make a blended message again without its filter",
        "what was dropped and made again would have other keys under the same name",
        "agentcho/engine/call_layout.py",
        "narrowing=narrowing(self.choose),",
        "narrowing=None,",
        (f"{BLEND}::test_it_is_kept_apart_from_the_choice_alone_and_made_again_the_same",),
    ),
    Mutant(
        "EPIC's first tokens of another number",
        "a name of the field would stand for something else",
        "agentcho/reuse/first_k.py",
        "return cls(tokens) if tokens else None",
        'return cls(tokens + (cls.name == "epic")) if tokens else None',
        (f"{COLUMNS}::test_all_are_all_kinds_of_repair_and_all_ways_each_once",),
    ),
    Mutant(
        "a scale of the sum of all weights",
        "APE's scale is a power of what parallel contexts have together: 1 would no longer change nothing",
        "agentcho/runner/reuse/ape.py",
        "more = ((self.scale - 1) * total)",
        "more = (self.scale * total)",
        (f"{APE}::test_one_and_one_change_nothing_and_less_does",),
    ),
    Mutant(
        "a temperature of every key",
        "the call's own tokens and what contexts share would be weighed too",
        "agentcho/runner/reuse/ape.py",
        "scores = torch.where(self.marks, scores / self.temperature, scores)",
        "scores = scores / self.temperature",
        (f"{APE}::test_a_decode_weighs_as_the_definition_has_it[llama]",),
    ),
    Mutant(
        "a shared prefix that is weighed",
        "what contexts were encoded over is no part of them",
        "agentcho/engine/call_layout.py",
        "if not after or before[place] != set(here[:place]):",
        "if piece.id is not None:",
        (f"{APE}::test_a_decode_weighs_as_the_definition_has_it[llama]",),
    ),
    Mutant(
        "a first context that is a prefix",
        "of contexts beside each other, the one that comes first would be read as if the others went on from it",
        "agentcho/engine/call_layout.py",
        "if not after or before[place] != set(here[:place]):",
        "if before[place] != set(here[:place]):",
        (f"{APE}::test_a_decode_weighs_as_the_definition_has_it[llama]",),
    ),
    Mutant(
        "weigh at the first feed alone",
        "a decode would go on by other weights than it began with",
        "agentcho/runner/batch.py",
        "slot.parallel = segment.parallel if segment.pieces else slot.parallel",
        "slot.parallel = None",
        (f"{APE}::test_a_decode_weighs_as_the_definition_has_it[llama]",),
    ),
    Mutant(
        "one key for what is weighed and what is not",
        "an encoding of one way of reading would be taken for that of another",
        "agentcho/engine/call_layout.py",
        "if self.parallel is not None:  # which pieces it is about follows from their keys",
        "if self.parallel is None and self.pieces == ():",
        (f"{APE}::test_what_was_read_otherwise_is_another_encoding_and_is_made_again_the_same",),
    ),
    Mutant(
        "rows that weigh share their contexts",
        "what is read in one place is weighed as it is",
        "agentcho/runner/slots.py",
        "apart_from_all = alone or context.parallel is not None",
        "apart_from_all = alone",
        (f"{APE}::test_rows_that_weigh_share_no_context_and_use_no_graph",),
    ),
    Mutant(
        "a front of all that is better in one thing",
        "a column would be called beaten by one that is cheaper and further from the baseline",
        "agentcho/lab/compare/comparison.py",
        "return one != other and one[0] <= other[0] and one[1] <= other[1]",
        "return one != other and (one[0] <= other[0] or one[1] <= other[1])",
        (f"{FRONT}::test_on_the_front_is_what_no_other_beats_in_both",),
    ),
)
