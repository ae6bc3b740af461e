"""How the time to a first token grows with the context: one reader after another, each reading twice as many
messages.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from agentcho.games.runs.replay import replay
from agentcho.lab.bench.arms import BASELINE, OURS
from agentcho.lab.bench.measure import Timed, measure
from agentcho.lab.bench.recorded import WORDS_A_TOKEN
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.workflows import line, random_words, spoken, whole
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.trace import Workflow

MESSAGE = 256
"""Tokens of each message that is read."""
SIZES = (1024, 2048, 4096, 8192)
"""Numbers of tokens read, if the model has that many positions."""
READER = 64
"""Positions left for a reader's rules and its message."""


def sizes_of(positions: int) -> tuple[int, ...]:
    """The `SIZES` that a model with `positions` positions can read, always including the smallest."""
    return tuple(size for size in SIZES if size <= max(SIZES[0], positions - READER))


def growth(
    engine: Any, sizes: Sequence[int], arms: Sequence[str], repeats: int, seed: int, tell: ProgressCallback
) -> list[Figures]:
    """Figures of each size ("1024 tokens"), by arm: "ttft" in seconds. Sizes grow in steps of 256 tokens. Warm-ups have
    all sizes, because memory that was never touched is slow at first, except for the baseline, where they would take
    minutes."""
    whole, small = growing(sizes, seed), growing([MESSAGE], seed)
    timed = {
        arm: Timed(*(partial(_take, engine, told, OURS[arm]) for told in (small if arm == BASELINE else whole, whole)))
        for arm in arms
    }
    found = measure(f"{sizes[0]} to {sizes[-1]} tokens", timed, repeats, tell)
    return [
        Figures(subject=f"{size} tokens", arm=each.arm, values={"ttft": each.values[str(size)]})
        for size in sizes
        for each in found
    ]


def _take(engine: Any, whole: Workflow, options: Mapping[str, Any]) -> dict[str, float]:
    played = replay(whole, engine, logits=False, stride=MESSAGE, **options)
    return {id.removeprefix("reader "): said.ttft for id, said in played.items() if id.startswith("reader ")}


def growing(sizes: Sequence[int], seed: int) -> Workflow:
    """One teller, and for each size a reader of all messages told until then. The teller continues after the reader has
    spoken, so that a reader is always alone."""
    dice, told, last = random.Random(seed), list[str](), list[str]()
    lines: list[dict[str, Any]] = []

    def text(tokens: int) -> str:
        return random_words(random.Random(dice.randrange(1 << 30)), round(tokens * WORDS_A_TOKEN))

    for size in sizes:
        while len(told) * MESSAGE < size:
            told.append(f"told {len(told)}")
            lines.append(spoken(told[-1], "teller", last, text(MESSAGE - 8), header=""))
        reader = f"reader {size}"
        rules = line(f"{reader}'s rules", reader, [], text(16), audience=[reader])
        lines += [rules, spoken(reader, reader, [rules["id"], *told], text(6), header="")]
        last = [reader]
    return whole("growth", sizes[-1], ["teller", *(f"reader {size}" for size in sizes)], lines)
