"""Predicts what a workflow takes on absent hardware, by mode: first tokens, end to end, tokens a second, memory, and
how many agents fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from agentcho.errors import ConfigError
from agentcho.games.runs.replay import replay
from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE, OURS
from agentcho.lab.plan.clock import ClockEngine
from agentcho.lab.plan.hardware import Hardware
from agentcho.lab.plan.shape import CostShape
from agentcho.lab.plan.subjects import Subject
from agentcho.records.trace import Workflow

MODES: Mapping[str, str] = {"baseline": BASELINE, "audit": AUDIT, "enforce": ENFORCE}
KEPT_FREE = 0.1
"""The share of a machine's memory that is left for activations and everything else."""


class Prediction(BaseModel):
    """One workflow in one mode on one of `gpus` machines, each of which plays workflows of its own.

    `ttft`: mean seconds from the submission of a call to its first token. `rate`: tokens a second, on all machines.
    `weights` and `keys`: bytes on one machine. `fit`: agents whose KV caches fit on all machines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: str
    mode: str
    agents: int
    ttft: float
    seconds: float
    rate: float
    encoded: int
    forwards: int
    weights: int
    keys: int
    fit: int


class Plan(BaseModel):
    """All predictions for one machine and shape."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["agentcho-plan/1"] = "agentcho-plan/1"
    hardware: Hardware
    shape: str
    gpus: int
    machine: dict[str, str] = {}
    predicted: tuple[Prediction, ...]

    def of(self, subject: str, mode: str) -> Prediction:
        """One prediction. KeyError: there is none."""
        for each in self.predicted:
            if (each.subject, each.mode) == (subject, mode):
                return each
        raise KeyError(subject, mode)


def mode_of(name: str) -> Mapping[str, Any]:
    """The options of a replay in this mode. Raises `ConfigError` for an unknown mode."""
    if name not in MODES:
        raise ConfigError(f"unknown mode {name!r}; give one or more of {', '.join(MODES)}")
    return OURS[MODES[name]]


def predict(
    subject: str,
    workflow: Workflow,
    mode: str,
    machine: Hardware,
    model: CostShape,
    gpus: int = 1,
    stride: int = 1,
) -> Prediction:
    """Play one workflow on a virtual clock. Raises `ConfigError` if the weights do not fit, and what `replay`
    raises."""
    weights = model.stored * model.bytes
    room = machine.memory * (1 - KEPT_FREE) - weights
    if room <= 0:
        raise ConfigError(
            f"{model.name} has {weights / 1e9:.1f} GB of weights, which do not fit in the "
            f"{machine.memory / 1e9:.0f} GB of {machine.name}; give a smaller --shape or a larger --gpu"
        )
    engine = ClockEngine(machine, model)
    played = replay(workflow, engine, logits=False, stride=stride, **mode_of(mode))
    ids = [said.entry.own.id for said in played.values() if said.entry.own is not None]
    said = sum(len(one.entry.message.tokens) for one in played.values())
    first = [engine.first[id] - engine.submitted[id] for id in ids if id in engine.first]
    seconds = max((engine.ended[id] for id in ids), default=engine.seconds)
    keys = engine.highest * model.token_bytes
    agents = len(workflow.agents)
    return Prediction(
        subject=subject,
        mode=mode,
        agents=agents,
        ttft=sum(first) / max(1, len(first)),
        seconds=seconds,
        rate=gpus * said / seconds,
        encoded=played.encoded,
        forwards=played.steps,
        weights=weights,
        keys=keys,
        fit=gpus * int(room * agents / max(1, keys)),
    )


def plan(
    subjects: Sequence[Subject],
    modes: Sequence[str],
    machine: Hardware,
    model: CostShape,
    gpus: int = 1,
) -> Plan:
    """Predict every workflow in every mode. Raises what `predict` raises."""
    found = [
        predict(subject=each.name, workflow=each.workflow, mode=mode, machine=machine, model=model, gpus=gpus)
        for each in subjects
        for mode in modes
    ]
    return Plan(hardware=machine, shape=model.name, gpus=gpus, predicted=tuple(found))
