"""Measures what delta encoding of a message's two encodings would save: its author's, and the one for its audience.

Under `enforce`, a message that its author wrote beside something private is encoded twice, and both encodings are kept:
the author reads one, everybody else the other. The author's can be stored as its difference from the other, in fewer
bits. Never the reverse: a rounded difference from the author's encoding depends on it, and so on what is private.

Recorded conversations are replayed with all words forced. Keys are compared at the same positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from agentcho.config import ReusePolicy
from agentcho.errors import RecordError
from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.stats import clustered, pooled_mean
from agentcho.protocol.call import EncodingId
from agentcho.protocol.progress import ProgressCallback, counted
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.trace import Workflow, read_traces
from agentcho.runner.engine import Engine

BITS = (8, 4)
"""The measured sizes of a number, scale not included."""
NEAR = (0.01, 0.1)
"""Bounds on a token's difference, relative to its size, below which the two encodings count as near each other."""
EQUAL = 1e-4
"""The largest difference, relative to the size, of encodings that count as equal."""
POLICY = ReusePolicy("choreographed", "enforce")


class Delta(NamedTuple):
    """The mean over tokens of one game, of keys and values of all layers. `size`: of the difference, relative to the
    author's encoding. `direct`, `delta`: by bits, the error of the author's encoding if it is rounded itself, or if its
    difference is, relative to its size. `near`: the share of tokens by bound (`NEAR`). `tokens`: of messages with two
    encodings; `encoded`: of all forward passes."""

    size: float
    direct: tuple[float, ...]
    delta: tuple[float, ...]
    near: tuple[float, ...]
    tokens: int
    encoded: int


class Found(NamedTuple):
    """The games of one file of traces."""

    name: str
    games: tuple[Delta, ...]

    def mean(self, part: str, place: int | None = None) -> tuple[float, float, float]:
        """The mean over games of a measure, with its interval."""
        values = [np.array([value if place is None else value[place]]) for value in self._of(part)]
        span = clustered(values, 1)
        return pooled_mean(values), span.low, span.high

    def doubled(self) -> float:
        """The share of all encoded tokens that are second encodings of a message."""
        return sum(game.tokens for game in self.games) / sum(game.encoded for game in self.games)

    def _of(self, part: str) -> list[Any]:
        return [getattr(game, part) for game in self.games]

    def fewer(self) -> float | None:
        """How many bits fewer a difference needs for the error of 8 bits. None if the encodings are equal up to the
        rounding of their forward passes."""
        direct, delta = (self.mean(part, BITS.index(8))[0] for part in ("direct", "delta"))
        return log2(direct / delta) if self.mean("size")[0] > EQUAL else None

    def lines(self) -> Iterator[str]:
        """The result as text."""
        mean, low, high = self.mean("size")
        yield f"{self.name}: {len(self.games)} games; {self.doubled():.1%} of the encoded tokens are second encodings"
        yield f"  difference of the two encodings, relative to their size: {mean:.3f} ({low:.3f}-{high:.3f})"
        for place, bound in enumerate(NEAR):
            yield f"  tokens that differ by less than {bound:.0%}: {self.mean('near', place)[0]:.1%}"
        for place, bits in enumerate(BITS):
            direct, delta = self.mean("direct", place)[0], self.mean("delta", place)[0]
            yield f"  error in {bits} bits: {direct:.5f} as it is, {delta:.5f} as a difference"
        if (fewer := self.fewer()) is not None:
            yield f"  a difference needs {fewer:.1f} bits fewer for the error of 8 bits"


def measure(engine: Engine, files: Sequence[Path], limit: int, tell: ProgressCallback) -> list[Found]:
    """Replay the first `limit` conversations of each file. `RecordError`: no message in a file has two encodings."""
    sets = {file.stem: read_traces(file)[:limit] for file in files}
    done, number, found = counted(tell, "games", sum(map(len, sets.values()))), 0, list[Found]()
    for name, workflows in sets.items():
        games = list[Delta]()
        for workflow in workflows:
            games += _game(engine, workflow)
            done(number := number + 1)
        if not games:
            raise RecordError(f"{name}: no message has two encodings; give conversations with private messages")
        found.append(Found(name, tuple(games)))
    return found


def _game(engine: Engine, workflow: Workflow) -> list[Delta]:
    with kept(engine):
        played = replay(workflow, engine, POLICY, logits=False)
        parts = [tokens(engine, *pair) for pair in pairs(played)]
    if not parts:
        return []
    author, other = (torch.cat([part[side] for part in parts]) for side in (0, 1))
    change, sizes = author - other, _size(author)
    apart = _size(change) / sizes
    return [
        Delta(
            size=apart.mean().item(),
            direct=tuple((_size(author - rounded(author, bits)) / sizes).mean().item() for bits in BITS),
            delta=tuple((_size(change - rounded(change, bits)) / sizes).mean().item() for bits in BITS),
            near=tuple((apart < bound).float().mean().item() for bound in NEAR),
            tokens=len(author),
            encoded=played.encoded,
        )
    ]


@contextmanager
def kept(engine: Engine) -> Iterator[None]:
    """Within the context, encodings are not given up at the end of a game."""
    late = list[EncodingId]()
    held: Any = engine
    held.release = late.extend
    try:
        yield
    finally:
        del held.release
        engine.release(late)


def pairs(played: Replayed) -> Iterator[tuple[EncodingId, EncodingId]]:
    """For each message with two encodings, its author's and its audience's."""
    made: dict[str, dict[str, EncodingRecord]] = {}
    for entry in played.entries:
        for record in entry.made:
            made.setdefault(record.message, {})[record.recipe] = record
    for recipes in made.values():
        author, audience = recipes.get("author"), recipes.get("audience")
        if author is not None and audience is not None:
            yield author.id, audience.id


def tokens(engine: Engine, author: EncodingId, audience: EncodingId) -> tuple[Tensor, Tensor]:
    """Both encodings as `[tokens, layers * 2, heads, dim]`, at the positions of the author's."""
    by = engine.receipt(author).start - engine.receipt(audience).start
    layers = [
        (keys, values, engine.proofs[layer].rotation.turn(other_keys, by), other_values)
        for layer, ((keys, values), (other_keys, other_values)) in enumerate(
            zip(engine.cached(author), engine.cached(audience), strict=True)
        )
    ]
    if layers[0][0].shape != layers[0][2].shape:
        raise AssertionError("the two encodings of a message have the same tokens")
    mine = torch.stack([each for keys, values, _, _ in layers for each in (keys, values)])
    others = torch.stack([each for _, _, keys, values in layers for each in (keys, values)])
    return mine.permute(2, 0, 1, 3), others.permute(2, 0, 1, 3)


def _size(vectors: Tensor) -> Tensor:
    """The root of the sum of squares of each token `[tokens]`."""
    found: Tensor = torch.linalg.vector_norm(vectors.flatten(1), dim=1)
    return found


def rounded(vectors: Tensor, bits: int) -> Tensor:
    """Vectors `[..., dim]` with each number rounded to this many bits, at a scale for each vector."""
    top = 2 ** (bits - 1) - 1
    largest = vectors.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).smallest_normal)
    found: Tensor = (vectors / largest * top).round() / top * largest
    return found


def to_json(found: Sequence[Found]) -> list[Mapping[str, Any]]:
    """The result as JSON."""
    return [
        {
            "name": each.name,
            "doubled": each.doubled(),
            "size": each.mean("size"),
            "near": {str(bound): each.mean("near", place)[0] for place, bound in enumerate(NEAR)},
            "bits": {
                str(bits): {"direct": each.mean("direct", place)[0], "delta": each.mean("delta", place)[0]}
                for place, bits in enumerate(BITS)
            },
            "fewer": each.fewer(),
            "games": [game._asdict() for game in each.games],
        }
        for each in found
    ]


def sentence(found: Mapping[str, Any]) -> str:
    """The conclusions from a result, for the page on memory."""
    told = []
    for each in found["sets"]:
        mean, low, high = each["size"]
        direct, delta = each["bits"]["8"]["direct"], each["bits"]["4"]["delta"]
        apart = (
            f"differ by {mean:.1%} ({low:.1%} to {high:.1%}) of their size. Rounded to 8 bits, the author's "
            f"has an error of {direct:.1%}; restored from a difference in 4 bits, one of {delta:.1%}. Compared with "
            f"bfloat16, the first would save {each['doubled'] / 2:.0%} of all keys and values, the second "
            f"{each['doubled'] * 3 / 4:.0%}, scales not counted"
            if mean > EQUAL
            else "are equal"
        )
        told.append(
            f"In {len(each['games'])} conversations of {each['name']}, {each['doubled']:.0%} of the encoded tokens are "
            f"second encodings. The two {apart}"
        )
    return (
        f"On {found['model']}, all words forced. {'. '.join(told)}. Measured on {found['machine']}, torch "
        f"{found['torch']}, at `{found['commit'][:12]}`: `{found['command']}`."
    )
