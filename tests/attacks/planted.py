"""Keys and values with or without a planted secret, which an attack must or must not find."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentcho.lab.leaks.evidence import above_chance
from agentcho.lab.leaks.guesses import Case, Guess
from agentcho.lab.leaks.scene import Scene
from agentcho.lab.leaks.secrets import Kind, drawn, split
from agentcho.lab.leaks.seen import Seen
from agentcho.lab.leaks.ways import way
from agentcho.lab.measure.play import Play

LETTERS = tuple("abcdef")
TINY = Kind("tiny", (LETTERS,) * 4, "It is {} {} {} {}.", ("One is", "Two is", "Three is", "Four is"))


def case(signal: float, n: int = 400, seed: int = 3, engine: Any = None) -> Case:
    """Noise of the same size everywhere. At one token of the second of two layers each symbol adds its own direction,
    scaled by `signal`."""
    rng = np.random.default_rng(seed)
    symbols = drawn(TINY, n, seed)
    vectors = rng.normal(size=(n, 2, 3, 24))
    ways = rng.normal(size=(len(TINY.slots), TINY.options, 24))
    for slot in range(len(TINY.slots)):
        vectors[:, 1, 1] += signal * ways[slot, symbols[:, slot]]
    seen = Seen(vectors.astype(np.float32), np.full(n, 3), (0, 5))
    scene = Scene(TINY, Play(()), (), ((0, 1, 2, 3, 4, 5),) * 4, lambda text: [])
    return Case(engine, scene, way("author"), symbols, split(n, seed), seen, seed)


def p_of(case: Case, guess: Guess) -> float:
    """The probability of at least this many right symbols by chance."""
    right = guess.symbols == case.of(case.split.test)
    return above_chance(int(right.sum()), right.size, 1 / case.scene.kind.options)
