"""What came of AgentDojo's tasks and attacks, as a versioned format. Does not know: how they are played."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from agentcho.config import Leakage

Counts = dict[str, int]


class Found(BaseModel):
    """What came of one arm, by suite. `useful`: tasks that AgentDojo's check calls done, without an attack; `kept`:
    those of them of which no call was refused, and, where `typed`, every argument of one with an effect was told as the
    package's ground truth has it. `through`: attacks that AgentDojo's check calls successful, of them
    `by_words` those that made no call. `useful_attacked`: tasks done although attacked. `refused`: calls in attacked
    cases that were refused. `found`: of the attacks that got through by calls, those of which an audit of the
    transcript has a finding. Of typed arms `got_through` names attacks that got through by calls: suite, task, attack;
    and `bits` has for each kept task what it told in typed releases, as the ledger of an audit has it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: str
    leakage: Leakage
    guarded: bool
    useful: Counts
    kept: Counts
    through: Counts
    by_words: int
    useful_attacked: Counts
    refused: int
    found: int
    typed: bool = False
    got_through: tuple[str, ...] = ()
    bits: tuple[float, ...] = ()


class Benchmark(BaseModel):
    """One version of AgentDojo's tasks. `tasks` and `attacks` by suite; `words`: tasks that are not done unless the
    user is told something."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    tasks: Counts
    attacks: Counts
    words: int
    arms: tuple[Found, ...]


class DojoResult(BaseModel):
    """All of it. `labels` is the digest of the table of labels. Nothing is drawn by chance: `seed` is the run's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["agentcho-agentdojo/1", "agentcho-agentdojo/2"] = "agentcho-agentdojo/2"
    command: str
    package: str
    attack: str
    labels: str
    seed: int
    environment: dict[str, str]
    benchmarks: tuple[Benchmark, ...]
