"""Plays one workflow with every text forced, in the deterministic profile, and hashes each agent's logits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from agentcho.config import Leakage, Mode
from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.measure.stage import UNENCODABLE, why_not
from agentcho.protocol.call import EnginePort
from agentcho.records.trace import Workflow

FLOAT = np.dtype("<f4")


class Hashed(NamedTuple):
    """The digest of one agent's logits, and their number of rows."""

    digest: str
    rows: int


class Played(NamedTuple):
    """One play: each agent's digest, and the seconds to the first token summed over all `decodes`."""

    agents: dict[str, Hashed]
    waited: float
    decodes: int


class Unplayable(Exception):
    """A workflow cannot be played in this mode. Never raised out of this package."""


def played(
    workflow: Workflow, engine: EnginePort, stride: int, leakage: Leakage, mode: Mode = "choreographed"
) -> Played:
    """Play the workflow. `Unplayable`: this workflow cannot be played; its text says why. Other errors pass."""
    try:
        replayed = replay(workflow, engine, mode=mode, leakage=leakage, deterministic=True, stride=stride)
    except UNENCODABLE as error:
        raise Unplayable(why_not(error)) from None
    authors = {message.author for message in workflow.messages if message.kind == "decode" and message.author}
    order = [message.id for message in workflow.messages if message.kind == "decode"]
    agents = {
        agent: hashed(replayed, [id for id in order if replayed[id].entry.message.author == agent]) for agent in authors
    }
    return Played(agents, sum(one.ttft for one in replayed.values()), len(replayed))


def hashed(replayed: Replayed, decodes: Iterable[str]) -> Hashed:
    """SHA-256 over the logits of these messages, in order."""
    digest, rows = hashlib.sha256(), 0
    for id in decodes:
        logits = np.ascontiguousarray(np.asarray(replayed[id].logits, dtype=FLOAT))
        digest.update(logits.tobytes())
        rows += len(logits)
    return Hashed(digest.hexdigest(), rows)
