"""The workloads of a benchmark: the paper's six workflows, three sweeps, or games of a trace file. Independent of
engines and arms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agentcho.errors import ConfigError
from agentcho.lab.bench.recorded import KINDS, WORDS_A_TOKEN, recorded
from agentcho.lab.bench.result import Sweep
from agentcho.lab.bench.workflows import Layout, panel
from agentcho.records.trace import Workflow, workflow

BRANCHES, VOTERS = (2, 4, 8, 16), (1, 8)
"""The paper's Figure 4: branches by voters of a tree of thoughts."""
DEBATE = "parallel-debate"
AGENTS = (2, 4, 8, 16)
"""The sizes of a parallel debate: what the baseline encodes grows with their square."""
DOCUMENTS, READERS = (1024, 4096), (2, 8)
"""Tokens per document, and the number of agents that read it."""
LAYOUTS: Mapping[Layout, str] = {
    "system-first": "system first",
    "document-first": "document first",
    "documents-reordered": "reordered",
}
"""What prompts begin with, and the corresponding end of a workload's name."""
TRACE = "trace "
"""The prefix of the name of a workload from a trace file."""
UNNAMED = ", unnamed"
"""The suffix of the name of a workload in which no prompt begins with its agent's name."""
WARM = 0.05
"""The share of each text that is used in the warm-up."""


class Workload(NamedTuple):
    """A workflow, the name of its figures, and a short workflow of the same shape to warm up with."""

    name: str
    workflow: Workflow
    warm: Workflow


def paper(names: Sequence[str], seed: int, scale: float) -> list[Workload]:
    """The scenarios at the paper's sizes. `ConfigError`: unknown name."""
    for name in names:
        if name not in KINDS:
            raise ConfigError(f"unknown workflow {name!r}; give one of {', '.join(KINDS)}")
    subjects = [(_subject(name, recorded(name, seed, scale)), name) for name in names]
    return [each for subject, name in subjects for each in (subject, *_unnamed(subject, name, seed, scale))]


def branches(seed: int, scale: float) -> list[Workload]:
    """Trees of thoughts, by branches and voters."""
    sizes = [{"branches": wide, "voters": votes} for votes in VOTERS for wide in BRANCHES]
    return [_swept("tree-of-thoughts", seed, scale, options) for options in sizes]


def agents(seed: int, scale: float) -> list[Workload]:
    """Parallel debates of three rounds, with solvers that are told their names first, and solvers that are not."""
    return [each for count in AGENTS for each in debate(count, seed, scale)]


def readers(seed: int, scale: float) -> list[Workload]:
    """Panels that read documents, by document length, number of readers, and what prompts begin with."""
    return [
        _subject(
            f"{tokens} tokens, {count} readers, {ends}",
            panel(tokens=tokens, readers=count, layout=layout, seed=seed, words_a_token=WORDS_A_TOKEN * scale),
        )
        for tokens in DOCUMENTS
        for count in READERS
        for layout, ends in LAYOUTS.items()
    ]


def debate(count: int, seed: int, scale: float) -> list[Workload]:
    """One parallel debate of `count` agents, with and without names."""
    subject = _swept(DEBATE, seed, scale, {"agents": count})
    return [subject, *_unnamed(subject, DEBATE, seed, scale, agents=count)]


def _unnamed(subject: Workload, name: str, seed: int, scale: float, **options: Any) -> list[Workload]:
    """The same debate with one system prompt for all solvers, as the scenario has it without names. The prompt is one
    public message: a baseline with a prefix cache encodes it and the question once, and under `enforce` nothing that a
    solver says was computed over text that another may not read."""
    if name != DEBATE:
        return []
    return [_subject(subject.name + UNNAMED, recorded(name, seed, scale, names=False, **options))]


def traced(workflows: Iterable[Workflow], scale: float) -> list[Workload]:
    """Workflows of trace files, each shortened to `scale` of its words. If several have one name, all but the first get
    a numeric suffix."""
    seen, found = Counter[str](), list[Workload]()
    for each in workflows:
        name = f"{TRACE}{each.workflow} {each.id}"
        seen[name] += 1
        apart = name if seen[name] == 1 else f"{name}#{seen[name]}"
        found.append(_subject(apart, each if scale == 1 else shortened(each, scale)))
    return found


def _swept(name: str, seed: int, scale: float, options: dict[str, Any]) -> Workload:
    return _subject(
        ", ".join(f"{count} {what}" for what, count in options.items()), recorded(name, seed, scale, **options)
    )


def _subject(name: str, whole: Workflow) -> Workload:
    return Workload(name, whole, shortened(whole, WARM))


def shortened(whole: Workflow, share: float) -> Workflow:
    """The same messages with the first words of each text, at least one if it has any; without positions."""
    lines = []
    for message in whole.messages:
        words = message.text.split(" ")
        dropped = {"offsets", "new_offset", "tokens", "tokenizer"}
        line = {key: value for key, value in message.to_json().items() if key not in dropped}
        lines.append(line | {"text": " ".join(words[: max(1, round(share * len(words)))])})
    return workflow({**whole.to_json(), "messages": lines})


SWEEPS: Mapping[Sweep, Callable[[int, float], list[Workload]]] = {
    "branches": branches,
    "agents": agents,
    "readers": readers,
}
"""The workloads of each sweep, by a seed and a scale."""
