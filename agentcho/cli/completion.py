"""What a shell completes after Tab: names of scenarios and agents, runs, and models. Must import no scenario."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentcho.games.runs.discovery import Section

Completions = list[tuple[str, str]]
"""Words that begin with what was typed, each with a help text."""
MODELS = {
    "understudy": "the bundled model",
    "smollm2": "SmolLM2-135M-Instruct",
    "fake": "scripted answers without a model",
    "openai:": "a model behind an API",
}


def scenarios(incomplete: str) -> Completions:
    """Return the scenarios that `agentcho ls` lists."""
    return _matching(_listed("scenarios"), incomplete)


def scenarios_and_agents(incomplete: str) -> Completions:
    """Return the scenarios and agents that `agentcho ls` lists."""
    return _matching([*_listed("scenarios"), *_listed("agents")], incomplete)


def models(incomplete: str) -> Completions:
    """Return the models with names of their own."""
    return _matching(MODELS.items(), incomplete)


def runs(incomplete: str) -> Completions:
    """Return "last" and the runs in the default folder, the newest first."""
    return _matching([("last", "the newest run"), *((name, "") for name in sorted(_runs(), reverse=True))], incomplete)


def played(incomplete: str) -> Completions:
    """Return runs and scenarios, for commands that take either."""
    return [*runs(incomplete), *scenarios(incomplete)]


def _listed(section: Section) -> list[tuple[str, str]]:
    from agentcho.games.runs.discovery import Found, listing

    return [(found.name, found.summary) for found in listing(section) if isinstance(found, Found)]


def _runs() -> Iterator[str]:
    folder = Path("runs")
    return (file.parent.name for file in folder.glob("*/run.json")) if folder.is_dir() else iter(())


def _matching(words: Iterable[tuple[str, str]], incomplete: str) -> Completions:
    return [(word, told) for word, told in words if word.startswith(incomplete)]
