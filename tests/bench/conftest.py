"""A small model with a BOS token, a workflow in which a call waits for others, and made-up results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agentcho import Engine
from agentcho.lab.bench.result import Figures, Result
from agentcho.records.trace import Workflow, workflow
from tools.bench.targets import with_targets

from ..engine.families import Family
from ..engines import Engines


@pytest.fixture(scope="session")
def engine(engines: Engines) -> Engine:
    """A small engine with its own network, since peers replace the network's attention for a while."""
    return engines.own()


@pytest.fixture(scope="session")
def phi(engines: Engines) -> Engine:
    """A model whose chat template only writes each message in its frame."""
    return engines(Family("qwen2", "Qwen2", style="phi"))


def line(id: str, author: str, *parents: str, **changes: Any) -> dict[str, Any]:
    made = {"id": id, "kind": "prefill", "role": "user", "author": author, "audience": "everyone"}
    spoken = {"kind": "decode", "role": "assistant", "header": "Well: "} if changes.pop("spoken", False) else {}
    return made | spoken | {"parents": list(parents), "text": f"we know {id}"} | changes


@pytest.fixture
def tree() -> Workflow:
    """Three answers of different lengths side by side over one prompt, then a vote that reads them all."""
    told = [line("rules", "ann", role="system"), line("question", "ann", "rules")]
    texts = {"a1": "one", "a2": "one two three four", "a3": "seven eight"}
    said = [line(id, f"of {id}", "rules", "question", spoken=True, text=text) for id, text in texts.items()]
    vote = line("vote", "ann", "rules", *texts, spoken=True, text="the second is it")
    head = {
        "format": "agentcho-trace/1",
        "workflow": "tree",
        "id": "tree-0",
        "agents": ["ann", *(f"of {a}" for a in texts)],
    }
    return workflow(head | {"messages": [*told, *said, vote]})


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns off the repetition of measurements that are too short."""
    monkeypatch.setattr("agentcho.lab.bench.measure.STEADY", 0.0)


Values = Mapping[tuple[str, str], Mapping[str, Sequence[float]]]


def result(values: Values, **changes: Any) -> Result:
    """A result with these values by subject and arm, for the model shape that targets refer to."""
    figures = tuple(
        Figures(subject=subject, arm=arm, values={what: tuple(many) for what, many in measured.items()})
        for (subject, arm), measured in values.items()
    )
    machine = {"machine": "m", "torch": "t", "transformers": "t", "commit": "c"}
    fields: dict[str, Any] = {
        "bench": "workflows",
        "model": "shape:qwen3-0.6b",
        "dtype": "bfloat16",
        "device": "cpu",
        "seed": 1,
        "repeats": 3,
        "command": "agentcho bench workflows",
        "machine": machine,
    }
    return with_targets(Result(**(fields | {"figures": figures} | changes)))
