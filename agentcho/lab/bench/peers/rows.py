"""Times a single row in our engine and in llama.cpp's server: a prompt of fixed length, then one-token decode steps.

Both get the same ids, different in every repeat. Times are those of the engines, without HTTP: ours by a clock around
its steps, the peer's as its server reports them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from statistics import fmean
from time import perf_counter
from typing import Any, NamedTuple

from agentcho.errors import RequestError
from agentcho.lab.bench.peers.llama import complete
from agentcho.lab.bench.workflows import random_words
from agentcho.lab.timing import alone
from agentcho.protocol.call import Decode

Ids = tuple[int, ...]
PREFILL = 512
"""Token ids of a prompt, framing included."""
STEPS = 32


class RowText(NamedTuple):
    """The texts of one row: a header as our engine takes it, the ids of the whole prompt, and the ids forced after
    it."""

    header: str
    prompt: Ids
    said: Ids


def row_text(framing: Any, seed: int, number: int, length: int = PREFILL, steps: int = STEPS) -> RowText:
    """Random words for one repeat, by its number. The prompt has exactly `length` ids. `RequestError`: no words of this
    tokenizer give that length."""
    dice = random.Random(f"{seed} {number}")
    start = (*framing.begin, *framing.opening("assistant", None, answer=True))
    words, filling = random_words(dice, length).split(" "), length - len(start)
    for word in range(len(words)):
        header = " ".join(words[word:])
        ids = framing.content.encode(header)
        if len(ids) <= filling:
            break
    while len(ids) < filling:
        header += random.Random(f"{seed} {number} {len(ids)}").choice(" .,:;")
        ids = framing.content.encode(header)
    if len(ids) != filling:
        raise RequestError(f"random words of this tokenizer cannot fill a prompt of exactly {length} tokens", "header")
    said = tuple(framing.content.encode(random_words(dice, 2 * steps)))[: steps + 1]
    return RowText(header, (*start, *ids), said)


class Rows:
    """The repeats of one row in one arm, warm-up included, each with other words. `SIZES`: token ids of a prompt, and
    steps."""

    SIZES = (PREFILL, STEPS)

    def __init__(self, framing: Any, seed: int) -> None:
        self._framing = framing
        self._seed = seed
        self._number = 0

    def next(self) -> RowText:
        """The texts of the next repeat."""
        self._number += 1
        return row_text(self._framing, self._seed, self._number, *self.SIZES)


def figures(reading: float, step: float) -> dict[str, float]:
    """Seconds of the prompt with its first token, seconds per step after it, and tokens per second."""
    return {"prefill": reading, "step": step, "rate": 1 / step}


@alone
def ours(engine: Any, rows: Rows) -> Mapping[str, float]:
    """Run one row on our engine, and release it."""
    text = rows.next()
    made = engine.submit([Decode(text.header, forced=text.said)])
    taken = []
    for _ in text.said:
        began = perf_counter()
        engine.step()
        taken.append(perf_counter() - began)
    while not engine.idle:
        engine.step()
    engine.release(made)
    return figures(taken[0], fmean(taken[1:]))


def theirs(port: int, rows: Rows) -> Mapping[str, float]:
    """Run one row on the peer, which generates greedily as many tokens."""
    text = rows.next()
    said = complete(port, text.prompt, len(text.said))
    found = figures(said.reading, said.step) | {"read": float(said.prompt)}
    return found | ({"guessed": float(said.guessed), "right": float(said.right)})
