"""Mutants of the decision when one encoding serves as both E(m) and X(m) of a message. See `table`."""

from __future__ import annotations

from .mutant import Mutant

RESOLVER = "agentcho/provenance/resolver.py"
GAPS = "tests/leaks/test_gaps.py"
TIE = "tests/leaks/proof/test_tie.py"

ONCE = (
    Mutant(
        "one encoding where no shadow would be made",
        "whether a reader's own call makes what it reads would tell whether the author had read a secret",
        RESOLVER,
        "if not self.shadowed(draft) or not self._said_here(draft):",
        "if not self.enforcing or not self._said_here(draft):",
        (f"{GAPS}::test_what_all_may_read_is_encoded_once_until_its_author_has_a_secret",),
    ),
    Mutant(
        "one encoding beside a model with an adapter",
        "it would be on record as of another model than its message, and nobody could say what is in it",
        RESOLVER,
        'if self._adapter is not None or self.model_of("author") != self.model_of("audience"):',
        "if self._adapter is not None:",
        (f"{GAPS}::test_beside_a_model_with_an_adapter_what_is_for_audiences_is_under_the_first_name",),
    ),
    Mutant(
        "one encoding of what was asked for at a place",
        "readers would have it where its author wanted it",
        RESOLVER,
        "if self._positions(reads) != (self._default, None):",
        "if False:",
        (TIE,),
    ),
    Mutant(
        "one encoding over own messages that have two",
        "what the author had said over a secret would be read by all",
        RESOLVER,
        'self._recipe(metadata.author, each) == "audience" for each in reads.reads',
        'self._recipe(metadata.author, each) != "" for each in reads.reads',
        (TIE,),
    ),
    Mutant(
        "one encoding whatever its author had read",
        "a secret would be read by all",
        RESOLVER,
        "return read == self._public_parents(draft) and all(",
        "return all(",
        (TIE,),
    ),
    Mutant(
        "one encoding with a thought in it",
        "others would read what the model thought before it spoke",
        RESOLVER,
        "single = shadow and self._made_once(draft)",
        "single = self._made_once(draft)",
        ("tests/choreography/test_decode_turn.py::test_what_is_thought_is_in_no_encoding_that_others_read",),
    ),
    Mutant(
        "one encoding for its author alone",
        "its guard would be asked for the author and not for those who read it",
        RESOLVER,
        "clearance = draft.metadata.audience if single else draft.own",
        "clearance = draft.own",
        (TIE,),
    ),
    Mutant(
        "count as unread what was encoded twice alone",
        "how much of a prompt was there would tell a reader whether others had read secrets",
        "agentcho/serve/sharing/conversation.py",
        'if len(own) > 1 or turn.plan.recipe == "audience":',
        "if len(own) > 1:",
        (
            "tests/serve/test_society.py::test_how_many_answers_nobody_has_read_does_not_tell_what_their_author_had_read",
        ),
    ),
)
