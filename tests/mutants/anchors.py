"""Mutants of repairs by anchors: who owns them, what they add to cones, keys and guards, and their arithmetic."""

from __future__ import annotations

from .mutant import Mutant

ENGINE_TESTS = "tests/engine/test_anchors.py"
LEAKS = "tests/leaks/test_anchors.py"
GAMES = "tests/choreography/test_anchors.py"
ORACLE = f"{ENGINE_TESTS}::test_offsets_are_those_of_the_paper"

ANCHORS = (
    Mutant(
        "share anchors among callers",
        "what one agent had read in secret would move the keys and values that another reads",
        "agentcho/provenance/anchors.py",
        "there = sorted(self._pools.get(path[0], {}).items())",
        "there = sorted(item for pool in self._pools.values() for item in pool.items())",
        (f"{LEAKS}::test_a_caller_takes_offsets_from_its_own_anchors_alone",),
    ),
    Mutant(
        "anchors of any prompt under deny",
        "words that were said without a secret would carry it, and be refused to those who may read them",
        "agentcho/provenance/resolver.py",
        'AnchorPools(scoped=reuse.leakage == "deny")',
        "AnchorPools()",
        (f"{LEAKS}::test_under_deny_no_anchor_carries_a_secret_into_what_was_said_without_it",),
    ),
    Mutant(
        "anchors that are to be, of any prompt",
        "what is going to be encoded over a secret would give offsets to a prompt without it",
        "agentcho/provenance/anchors.py",
        " and self._serves(other, path)\n",
        "\n",
        (f"{LEAKS}::test_anchors_that_are_to_be_serve_where_all_that_they_read_is_read",),
    ),
    Mutant(
        "anchors by who reads first",
        "which anchors a caller has would depend on whether another was the first to read what it had told",
        "agentcho/provenance/resolver.py",
        'else AHEAD if isinstance(repair, ByAnchors) and not live else ""',
        'else ""',
        (f"{LEAKS}::test_what_another_reads_first_makes_a_caller_no_anchor",),
    ),
    Mutant(
        "anchors of what was given up",
        "a caller would take offsets from an encoding that is not there any more",
        "agentcho/provenance/resolver.py",
        "        self._anchors.forget(message)\n",
        "",
        (f"{LEAKS}::test_anchors_of_what_was_given_up_are_none", "tests/leaks/test_forget.py"),
    ),
    Mutant(
        "a cone without anchors",
        "what anchors were encoded over, and what they keep of an author's encoding, would be in no cone",
        "agentcho/provenance/labels.py",
        "(*over, receipt.base, *receipt.anchors)",
        "(*over, receipt.base)",
        (f"{LEAKS}::test_what_anchors_were_encoded_over_is_in_the_cone_and_in_what_is_gathered",),
    ),
    Mutant(
        "a key without anchors",
        "what was put together of other anchors would be read in its place",
        "agentcho/engine/core.py",
        "judged=anchors_key(anchors)",
        'judged=b""',
        (f"{ENGINE_TESTS}::test_what_it_is_made_of_is_in_its_key",),
    ),
    Mutant(
        "a key without the contexts of anchors",
        "the same messages as anchors, encoded over something else, give other offsets",
        "agentcho/engine/call_layout.py",
        "real.entry.key + base.entry.key + weight.hex().encode()",
        "base.entry.key + weight.hex().encode()",
        (f"{ENGINE_TESTS}::test_what_it_is_made_of_is_in_its_key",),
    ),
    Mutant(
        "ask no guard about anchors",
        "what anchors hold would come in unasked",
        "agentcho/engine/sequence.py",
        "return (self.base, *judged, *both(self.anchors))",
        "return (self.base, *judged)",
        (f"{ENGINE_TESTS}::test_a_guard_is_asked_about_anchors_too_and_a_refusal_leaves_nothing",),
    ),
    Mutant(
        "take offsets away",
        "keys would be moved as far on the other side of where the prompt moves them",
        "agentcho/runner/reuse/kvcomm.py",
        "keys = keys + weight * (ours[0] - reused[0])",
        "keys = keys - weight * (ours[0] - reused[0])",
        (ORACLE,),
    ),
    Mutant(
        "the farthest anchor weighs most",
        "offsets would be those of the messages that are least alike",
        "agentcho/reuse/kvcomm.py",
        "exp(least - each)",
        "exp(each - least)",
        (ORACLE,),
    ),
    Mutant(
        "offsets where they were seen",
        "keys that stand at several positions would be subtracted from each other as if they stood at one",
        "agentcho/runner/reuse/kvcomm.py",
        "rotation.turn(keys[:, :length].float(), start - entry.position)",
        "rotation.turn(keys[:, :length].float(), 0)",
        (ORACLE,),
    ),
    Mutant(
        "anchors however far they are",
        "a message that is like none of them would get the mean of all offsets, and never be encoded anew",
        "agentcho/reuse/kvcomm.py",
        "return tuple(shares) if entropy <= self.threshold * highest else ()",
        "return tuple(shares)",
        (f"{ENGINE_TESTS}::test_what_is_taken_goes_by_distance_weight_and_entropy_as_in_the_paper",),
    ),
    Mutant(
        "anchors of anchors",
        "what was put together would hand its errors on, message by message",
        "agentcho/engine/anchors.py",
        "recipe is not None and recipe.base is None",
        "recipe is not None",
        (f"{ENGINE_TESTS}::test_what_was_put_together_is_no_anchor",),
    ),
    Mutant(
        "count what is put together as encoded",
        "a comparison would charge a repair by anchors for tokens that nobody fed",
        "agentcho/games/play/journal.py",
        "if first and not made.receipt.anchors else 0",
        "if first else 0",
        (f"{GAMES}::test_what_is_put_together_costs_no_token",),
    ),
)
