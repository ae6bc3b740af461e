"""The paper's workflows to be timed: the shipped scenarios, played on the fake engine, with their texts replaced by
random words.

The graph of messages and their audiences are the scenario's own. Lengths are those of a model of 8B parameters at such
tasks, in its tokens (solutions, votes and answers at MATH problems, games of the dilemma). Does not know: engines.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentcho.config import RunConfig
from agentcho.events import Ended, Event
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.bench.workflows import random_words
from agentcho.protocol.call import Decode
from agentcho.records.trace import TraceMessage, Workflow, exported, workflow
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine

WORDS_A_TOKEN = 0.38
"""The understudy makes 2.6 tokens of a word of two syllables, and times are taken in its tokens."""
RAGGED = 0.25
"""Texts of one kind differ in length by up to so much of it, in both directions."""


class Kind(NamedTuple):
    """A scenario at the paper's size, and tokens by what a message is: "system", "told" (by the scenario), "asked" (of
    one agent), or the name of who says it, without its number. What is of no kind here, such as a decision, keeps its
    own words."""

    options: Mapping[str, Any]
    tokens: Mapping[str, int]


KINDS = {
    "prisoners-dilemma": Kind(
        {"first": "alice"}, {"system": 230, "asked": 30, "alice plans": 370, "bob plans": 370, "alice": 150, "bob": 150}
    ),
    "debate": Kind({}, {"system": 85, "told": 60, "asked": 25, "ada": 150, "ben": 150}),
    "tree-of-thoughts": Kind({}, {"system": 90, "told": 50, "solver": 150, "voter": 60, "finisher": 100}),
    "parallel-debate": Kind({}, {"system": 50, "told": 50, "solver": 150}),
    "multi-qa": Kind({"layout": "serial"}, {"system": 60, "told": 40, "ann": 60}),
    "branch-solve-merge": Kind(
        {"layout": "serial"}, {"system": 50, "told": 60, "dan": 60, "eva": 120, "finn": 120, "gus": 200}
    ),
}


def recorded(name: str, seed: int, scale: float = 1.0, **options: Any) -> Workflow:
    """One workflow of a shipped scenario, with texts of `scale` times the usual lengths; `options` beside the paper's.

    The same for the same arguments. Raises what `library.scenario` and its options raise.
    """
    kind = KINDS[name]
    scenario, entries = library.scenario(name)(**{**kind.options, **options}), list[TranscriptEntry]()

    def hear(event: Event) -> None:
        if isinstance(event, Ended):
            entries.append(event.entry)

    played = play(
        RunRequest(
            scenario,
            RunConfig(model="fake", leakage="audit"),
            engine=FakeEngine(answer=_last, context=1 << 30),
            sink=hear,
        )
    )
    if played.error is not None:
        raise played.error
    label = "-".join([name, *(f"{key}{value}" for key, value in options.items())])
    trace = exported(scenario=name, id=label, meta={}, cast=(), entries=entries, tokenizer=None)
    words = _Words(kind.tokens, scale, random.Random(seed))
    messages = [words.say_again(message, _kind(message, name)) for message in trace.messages]
    return workflow({**trace.to_json(), "messages": messages})


def _last(call: Decode, prompt: str) -> str:
    """The last choice, so that no debate ends early."""
    return (call.sampling.choices or ('"none"',))[-1]


class _Words:
    """Random words for messages. Prefills of equal text get equal words, for prefixes are shared."""

    def __init__(self, tokens: Mapping[str, int], scale: float, dice: random.Random) -> None:
        self._tokens, self._scale, self._dice = tokens, scale, dice
        self._known: dict[str, str] = {}

    def say_again(self, message: TraceMessage, kind: str) -> dict[str, Any]:
        """Without positions, which belong to its old length."""
        line = {key: value for key, value in message.to_json().items() if key not in ("offsets", "new_offset")}
        size = self._tokens.get(kind)
        if size is None:
            return line
        fresh = self._text(size)
        return line | {"text": self._known.setdefault(message.text, fresh) if message.kind == "prefill" else fresh}

    def _text(self, tokens: int) -> str:
        spread = self._dice.uniform(1 - RAGGED, 1 + RAGGED)
        words = max(2, round(tokens * WORDS_A_TOKEN * self._scale * spread))
        return random_words(self._dice, words)


def _kind(message: TraceMessage, name: str) -> str:
    if message.kind == "prefill":
        return "system" if message.role == "system" else "told" if message.author is None else "asked"
    if message.header and message.header.startswith("{"):
        return "decided"
    private = message.audience != "everyone"
    who = "solver" if name == "parallel-debate" else (message.author or "").split("-")[0]
    return f"{who} plans" if private else who
