"""The paper's workflows for benchmarks: the shipped scenarios, played on the fake engine, with their texts replaced by
random words.

The graph of messages and their audiences are the scenario's own. Lengths are those of an 8B model at such tasks, in its
tokens (solutions, votes and answers on MATH problems, games of the dilemma). Independent of engines.
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
"""The understudy's tokenizer gives 2.6 tokens per two-syllable word, and lengths are in its tokens."""
RAGGED = 0.25
"""The largest relative deviation of a text's length from that of its kind, in both directions."""


class Kind(NamedTuple):
    """A scenario at the paper's size, and the number of tokens by kind of message: "system", "told" (by the scenario),
    "asked" (of one agent), or the name of the author, without its number. Messages of other kinds, such as decisions,
    keep their texts."""

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
    """One workflow of a shipped scenario, with texts of `scale` times the usual lengths; `options` override the
    paper's.

    Deterministic for the same arguments. Raises what `library.scenario` and its options raise.
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
    """Random words for messages. Prefills of equal text get equal words, so that prefixes are still shared."""

    def __init__(self, tokens: Mapping[str, int], scale: float, dice: random.Random) -> None:
        self._tokens, self._scale, self._dice = tokens, scale, dice
        self._known: dict[str, str] = {}

    def say_again(self, message: TraceMessage, kind: str) -> dict[str, Any]:
        """The message with random words, without positions, which depend on its old length."""
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
