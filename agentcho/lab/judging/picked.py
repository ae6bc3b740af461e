"""Finds the candidates that judges pick in one reading mode: the one with the most likely words, with every text
forced.

All modes see the same words. The tokens that a mode encodes anew are those it feeds beyond plain reuse, for any reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.config import Leakage, ReusePolicy
from agentcho.errors import ConfigError
from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.judging.cases import Case, Written, written
from agentcho.lab.judging.result import Block
from agentcho.lab.stats import log_softmax
from agentcho.reuse.registry import parsed_repair

BASELINE, REUSE = "baseline", "reuse"
AT_ONCE = 1 << 20
"""A stride longer than any text."""


class Way(NamedTuple):
    """One mode of reading the judged messages."""

    name: str
    policy: ReusePolicy

    @property
    def plain(self) -> bool:
        """Whether nothing is repaired."""
        return self.name in (BASELINE, REUSE)


def way(name: str, leakage: Leakage) -> Way:
    """`baseline`, `reuse`, or a repair by name, used only in judges' views. `ConfigError`: unknown name."""
    reused = ReusePolicy("choreographed", leakage, "never")
    if name == BASELINE:
        return Way(name, ReusePolicy("baseline", leakage))
    if name == REUSE:
        return Way(name, reused)
    try:
        return Way(name, reused._replace(judge=parsed_repair(name)))
    except ValueError as error:
        raise ConfigError(f"unknown way {name!r}: {error}") from None


def picked(engine: Any, task: str, cases: Sequence[Case], ways: Sequence[Way]) -> dict[str, Block]:
    """The picks in each mode, by its name. Plain reuse is always played, as the reference for cost."""
    plain, judging = written(task, cases, judging=False), written(task, cases, judging=True)
    reuse = way(REUSE, ways[0].policy.leakage)
    base = _played(engine, plain, reuse)
    read = sum(_length(base, id) for heard in plain.read for id in heard)
    found = {REUSE: _block(engine=engine, scenes=plain, played=base, anew=0, read=read)}
    for each in (each for each in ways if each.name != REUSE):
        scenes = plain if each.plain else judging
        said = _played(engine, scenes, each)
        anew = read if each.name == BASELINE else said.encoded - base.encoded
        found[each.name] = _block(engine=engine, scenes=scenes, played=said, anew=anew, read=read)
    return found


def _played(engine: Any, scenes: Written, each: Way) -> Replayed:
    return replay(scenes.workflow, engine, each.policy, stride=AT_ONCE)


def _length(played: Replayed, id: str) -> int:
    return next(len(entry.message.tokens) for entry in played.entries if entry.message.id == id)


def _block(engine: Any, scenes: Written, played: Replayed, anew: int, read: int) -> Block:
    texts = {message.id: message.text for message in scenes.workflow.messages}
    encode = engine.framing.content.encode
    scores = [[_score(played, id, encode(texts[id])) for id in ballots] for ballots in scenes.ballots]
    picks = [max(range(len(each)), key=each.__getitem__) for each in scores]
    ordered = [sorted(each) for each in scores]
    margins = tuple(each[-1] - each[-2] for each in ordered)
    return Block(picks=tuple(picks), margins=margins, anew=anew, read=read)


def _score(played: Mapping[str, Any], id: str, ids: Sequence[int]) -> float:
    """The log-probability of a text, in nats."""
    rows: NDArray[np.float32] = log_softmax(np.asarray(played[id].logits, dtype=np.float32))
    return float(rows[np.arange(len(ids)), list(ids)].sum(dtype=np.float64))
