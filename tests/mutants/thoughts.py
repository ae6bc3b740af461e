"""Mutants of the private thoughts of models."""

from __future__ import annotations

from .mutant import Mutant

TESTS = "tests/choreography/test_thoughts.py"
REAL = "tests/choreography/test_thoughts_real.py"

THINKING = (
    Mutant(
        "a thought is for whoever may read what is said",
        "others would be shown what a model thought before it spoke",
        "agentcho/games/play/messages.py",
        "to = draft.metadata.audience if shared else Audience(frozenset({author} if author else ()))",
        "to = draft.metadata.audience",
        (f"{TESTS}::test_nobody_else_reads_a_thought",),
    ),
    Mutant(
        "views show thoughts",
        "code would count thoughts as messages, and agents would read their own where the template cuts them",
        "agentcho/games/play/messages.py",
        "self.roster.hide(draft.metadata.id)",
        "pass",
        (f"{TESTS}::test_no_view_shows_a_thought", f"{TESTS}::test_nobody_else_reads_a_thought"),
    ),
    Mutant(
        "what is said after a thought keeps the tokens of the thought",
        "the answer would be encoded with the thought in it for everybody who reads it",
        "agentcho/engine/generation.py",
        "answer = () if ended is None else tuple(self.sampled[self._behind :])",
        "answer = tuple(self.sampled)",
        (f"{TESTS}::test_what_is_said_is_framed_as_if_nobody_had_thought", REAL),
    ),
    Mutant(
        "an encoding with a thought has the label of what is said",
        "under deny an encoding made over a thought would be let through to who may read the words alone",
        "agentcho/provenance/labels.py",
        "self._labels[id] |= {label}",
        "pass",
        (f"{TESTS}::test_an_encoding_with_a_thought_in_it_is_no_reading_for_others",),
    ),
    Mutant(
        "pieces of a thought go to listeners",
        "who listens to the words of a message would hear what was thought before them",
        "agentcho/choreography/choreographer.py",
        "listener = handle.request.on_thought if spoken.thought else handle.request.on_token",
        "listener = handle.request.on_token",
        (f"{TESTS}::test_listeners_hear_what_is_said_and_no_thought",),
    ),
)
