"""The keys and values of the public sentence as Bob reads them: the input of attacks.

Keys are at Bob's positions, except in modes that leave them where they were made. Of a large model a few layers are
kept, evenly spaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.lab.leaks.scene import BOB, SAID
from agentcho.lab.leaks.ways import Way
from agentcho.lab.measure.play import Play
from agentcho.lab.measure.stage import Stage

Floats = NDArray[np.float32]
LAYERS, TOKENS = 8, 48
"""The maximum of layers, and of last tokens of the sentence, that are kept."""


class Seen(NamedTuple):
    """`vectors` `[samples, layers, tokens, width]`, float32: key and value of all heads concatenated; zeros beyond each
    sample's length. `layers`: the indices of these layers in the model."""

    vectors: Floats
    lengths: NDArray[np.int64]
    layers: tuple[int, ...]

    @property
    def level(self) -> bool:
        """Whether all samples have the same number of tokens, so that tokens can be compared by position."""
        return bool((self.lengths == self.lengths[0]).all())

    def features(self, layer: int) -> Floats:
        """One row per sample for one layer: all tokens if lengths are equal, else the mean, first and last token."""
        own = self.vectors[:, layer]
        return own.reshape(len(own), -1) if self.level else pooled(own, self.lengths)


def pooled(vectors: Floats, lengths: NDArray[np.int64]) -> Floats:
    """The mean, first and last token of each sample `[samples, tokens, width]`, concatenated."""
    mean = vectors.sum(axis=1) / lengths[:, None]
    last = vectors[np.arange(len(vectors)), lengths - 1]
    found: Floats = np.concatenate([mean, vectors[:, 0], last], axis=1).astype(np.float32)
    return found


def chosen(layers: int) -> tuple[int, ...]:
    """The layers that are kept, always with the last one."""
    if layers <= LAYERS:
        return tuple(range(layers))
    return tuple(round((number + 1) * layers / LAYERS) - 1 for number in range(LAYERS))


def vectors(engine: Any, plays: Sequence[Play], before: Sequence[str], way: Way) -> Iterator[Floats]:
    """Yield `[layers, tokens, width]` of each play, as Bob reads the sentence after `before`."""
    kept = chosen(len(engine.proofs))
    for play in plays:
        with Stage(engine, play, way.policy) as stage:
            id = stage.encoding(SAID, BOB, before)
            turned = way.turned and way.policy.mode != "baseline"  # baseline encodes it at Bob's positions already
            by = _place(engine, play, before) - engine.receipt(id).start if turned else 0
            pairs = engine.cached(id)
            found = [_layer(engine.proofs[layer].rotation.turn(pairs[layer][0], by), pairs[layer][1]) for layer in kept]
        yield np.stack(found)[:, -TOKENS:]


def seen(engine: Any, plays: Sequence[Play], before: Sequence[str], way: Way, told: Callable[[int], None]) -> Seen:
    """All samples. `told` is called after each."""
    found = []
    for each in vectors(engine, plays, before, way):
        found.append(each)
        told(len(found))
    lengths = np.array([each.shape[1] for each in found])
    whole = np.zeros((len(found), found[0].shape[0], int(lengths.max()), found[0].shape[2]), np.float32)
    for number, each in enumerate(found):
        whole[number, :, : each.shape[1]] = each
    return Seen(whole, lengths, chosen(len(engine.proofs)))


def _place(engine: Any, play: Play, before: Sequence[str]) -> int:
    """The position of the sentence's first token in Bob's prompt."""
    known = play.by_id
    return len(engine.framing.begin) + sum(len(known[id].message.tokens) for id in before)


def _layer(keys: Any, values: Any) -> Floats:
    """Convert keys and values `[heads, tokens, dim]` to `[tokens, width]`."""
    parts = (each.transpose(0, 1).flatten(1).numpy() for each in (keys, values))
    found: Floats = np.concatenate([*parts], axis=1)
    return found
