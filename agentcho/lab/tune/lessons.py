"""The training set: traces that are checked, unfolded, split, and packed into forwards. Independent of adapters and
optimizers.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agentcho.errors import AgentchoError, ContextOverflow, LeakageError, TuneError
from agentcho.lab.tune.recipe import Recipe
from agentcho.lab.tune.unfolding import EngineTemplate, Unfolded, unfold
from agentcho.records.trace import read_traces

MOST_DEV = 50


class Lessons(NamedTuple):
    """Unfolded traces: for training, and for selection. `digest` is that of their file."""

    train: tuple[Unfolded, ...]
    dev: tuple[Unfolded, ...]
    digest: str

    @property
    def tokens(self) -> int:
        """The number of tokens in one epoch of training."""
        return sum(each.tokens for each in self.train)


def lessons(file: Path, scenario: str, engine: EngineTemplate, recipe: Recipe) -> Lessons:
    """All traces of a file, none left out. `TuneError`, before anything is trained: names the line of a trace that is
    of another scenario, too long for the model, or says nothing."""
    traces = read_traces(file)
    places = [n for n, raw in enumerate(file.read_bytes().splitlines(), start=1) if raw.strip()]
    found = list[Unfolded]()
    for place, trace in zip(places, traces, strict=True):
        where = f"{file}:{place}"
        if trace.workflow != scenario:
            raise TuneError(where, f"is a trace of {trace.workflow}, not of {scenario}")
        try:
            found.append(unfold(trace, engine, recipe.mode, recipe.leakage))
        except ContextOverflow as error:
            what = f"needs {error.needed} positions and the model has {error.limit}; leave it out, or trace again with "
            raise TuneError(where, what + "a lower --max-tokens") from None
        except (LeakageError, AgentchoError) as error:
            raise TuneError(where, str(error)) from None
        if not found[-1].targets:
            raise TuneError(where, "no agent says anything in it; leave it out")
    if len(found) < 2:
        raise TuneError(
            str(file), f"at least 2 traces are needed, one of them for validation; this file has {len(found)}"
        )
    return _split(found, recipe, hashlib.sha256(file.read_bytes()).hexdigest())


def _split(found: Sequence[Unfolded], recipe: Recipe, digest: str) -> Lessons:
    order = random.Random(recipe.seed).sample(range(len(found)), len(found))
    held = min(MOST_DEV, max(1, round(recipe.dev * len(found))))
    dev = set(order[:held])
    return Lessons(
        tuple(each for n, each in enumerate(found) if n not in dev), tuple(found[n] for n in sorted(dev)), digest
    )


def batches(train: Sequence[Unfolded], recipe: Recipe) -> Iterator[list[Unfolded]]:
    """The traces of every step. Each epoch has its own order; the same recipe gives the same steps."""
    for epoch in range(recipe.epochs):
        order = random.Random(f"{recipe.seed}/{epoch}").sample(train, len(train))
        for start in range(0, len(order), recipe.batch):
            yield order[start : start + recipe.batch]


def steps_of(train: Sequence[Unfolded], recipe: Recipe) -> int:
    """The number of steps that `batches` gives."""
    return recipe.epochs * -(-len(train) // recipe.batch)


def packed(traces: Sequence[Unfolded], tokens: int) -> list[list[Unfolded]]:
    """The traces grouped into forwards of at most `tokens` tokens; a longer trace gets a forward of its own."""
    found: list[list[Unfolded]] = []
    room = 0
    for trace in sorted(traces, key=lambda each: -each.tokens):
        if not found or trace.tokens > room:
            found.append([])
            room = tokens
        found[-1].append(trace)
        room -= trace.tokens
    return found
