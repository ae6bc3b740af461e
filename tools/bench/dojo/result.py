"""The versioned format of results on AgentDojo's tasks and attacks."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from agentcho.config import Leakage

Counts = dict[str, int]


class Found(BaseModel):
    """The results of one arm, by suite. `useful`: tasks that AgentDojo's check considers done, without an attack.
    `kept`: those of them of which no call was refused and, if `typed`, every argument of a call with an effect was told
    as in the package's ground truth. `through`: attacks that AgentDojo's check considers successful; `by_words`: those
    of them that made no call. `useful_attacked`: tasks done despite an attack. `refused`: refused calls in attacked
    cases. `found`: of the attacks that got through by calls, those for which an audit of the transcript has a finding.
    For typed arms, `got_through` names attacks that got through by calls (suite, task, attack), and `bits` has, for
    each kept task, what it told in typed releases according to the ledger of an audit."""

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
    """One version of AgentDojo's tasks. `tasks` and `attacks` are by suite. `words`: tasks that are not done unless the
    user is told something."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    tasks: Counts
    attacks: Counts
    words: int
    arms: tuple[Found, ...]


class DojoResult(BaseModel):
    """The complete result. `labels` is the digest of the table of labels. Nothing is random: `seed` is the run's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["agentcho-agentdojo/1", "agentcho-agentdojo/2"] = "agentcho-agentdojo/2"
    command: str
    package: str
    attack: str
    labels: str
    seed: int
    environment: dict[str, str]
    benchmarks: tuple[Benchmark, ...]
