"""The subjects of a plan: the paper's workflows, the same with other numbers of agents, trace files, and several games
side by side. Independent of machines and models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.errors import ConfigError
from agentcho.lab.bench.plans import readers
from agentcho.lab.bench.recorded import KINDS, WORDS_A_TOKEN, recorded
from agentcho.records.trace import Workflow, read_traces, workflow

COUNTED = {"parallel-debate": "agents", "tree-of-thoughts": "branches"}
"""Workflows with a variable number of agents, with the option that sets it."""
PANELS = "readers"
"""The name of the sweep of readers by documents, as in `agentcho bench workflows --sweep`."""


class Subject(NamedTuple):
    """A workflow and the name of its row."""

    name: str
    workflow: Workflow


def subjects(asked: str, counts: Sequence[int] = (), games: int = 1, seed: int = 1, limit: int = 1) -> list[Subject]:
    """One of the paper's workflows at the paper's lengths, for each number of agents, or panels that read documents, or
    the first `limit` workflows of a trace file. `games` of each are played side by side.

    Raises `ConfigError` if there is no such workflow, or its number of agents is fixed, and what `read_traces` raises.
    """
    file = Path(asked)
    if asked not in KINDS and asked != PANELS and not file.exists():
        known = ", ".join([*KINDS, PANELS])
        raise ConfigError(f"no workflow or trace file {asked!r}; give one of {known}, or a file")
    if counts and asked not in COUNTED:
        raise ConfigError(f"{asked} has a fixed number of agents; --agents works with {' and '.join(COUNTED)}")
    if asked == PANELS:
        panels = zip(*(readers(seed + game, 1 / WORDS_A_TOKEN) for game in range(games)), strict=True)
        return [Subject(same[0].name, beside([each.workflow for each in same])) for same in panels]
    if asked not in KINDS:
        return [
            Subject(f"{each.workflow} {each.id}", beside([_told_apart(each, game) for game in range(games)]))
            for each in read_traces(file)[:limit]
        ]
    if not counts:
        return [Subject(asked, beside([_recorded(asked, seed + game) for game in range(games)]))]
    option = COUNTED[asked]
    return [
        Subject(
            name=f"{asked}, {count} {option}",
            workflow=beside([_recorded(asked, seed + game, **{option: count}) for game in range(games)]),
        )
        for count in counts
    ]


def _told_apart(whole: Workflow, game: int) -> Workflow:
    """The workflow for one of several games. In all but the first, each text that begins a prompt begins with the
    number of the game, so that no game can reuse the prompts of another; there are no recorded positions or tokens."""
    if not game:
        return whole
    begins = {message.parents[0] for message in whole.messages if message.kind == "decode" and message.parents}
    dropped = {"offsets", "new_offset", "tokens", "tokenizer", "content"}
    lines = [
        {key: value for key, value in message.to_json().items() if key not in dropped}
        | ({"text": f"{game} {message.text}"} if message.id in begins else {})
        for message in whole.messages
    ]
    return workflow({**whole.to_json(), "messages": lines})


def _recorded(name: str, seed: int, **options: Any) -> Workflow:
    return recorded(name, seed, 1 / WORDS_A_TOKEN, **options)


def beside(games: Sequence[Workflow]) -> Workflow:
    """One workflow with all of these, none of which reads anything of another."""
    if len(games) == 1:
        return games[0]
    lines: list[dict[str, Any]] = []
    agents: list[str] = []
    for number, game in enumerate(games):
        prefix = f"g{number}-"
        own = [prefix + agent for agent in game.agents]
        agents += own
        for message in game.messages:
            line = message.to_json()
            line["id"] = prefix + message.id
            line["parents"] = [prefix + parent for parent in message.parents]
            if line.get("author") is not None:
                line["author"] = prefix + line["author"]
            audience = line["audience"]
            line["audience"] = own if audience == "everyone" else [prefix + reader for reader in audience]
            lines.append(line)
    return workflow({**games[0].to_json(), "agents": agents, "messages": lines})
