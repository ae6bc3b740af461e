"""Displays a run: live in a terminal, plain elsewhere, or not at all. The only package that imports rich.

Independent of how a run is played: it receives its events and shows its result.
"""

from __future__ import annotations

from typing import IO, Literal

from rich.console import Console

from agentcho.config import RunConfig, served
from agentcho.display.live import LiveGames, LiveTalk
from agentcho.display.plain import PlainGames, PlainTalk
from agentcho.display.safe import inline
from agentcho.display.screen import NoScreen, Screen

__all__ = ["Kind", "Screen", "heading", "screen"]

Kind = Literal["rich", "plain", "none"]


def heading(scenario: str, config: RunConfig) -> str:
    """Return one line that says what is played."""
    mode = config.mode if config.mode == "baseline" else f"{config.mode}, {config.leakage}"
    mode = f"texts, {config.leakage}" if served(config.model) else mode
    games = "" if config.games == 1 else f" · {config.games} games"
    part = "" if config.part is None else f" · part {config.part}"
    models = ", ".join((config.model, *(f"{name} ({each.model})" for name, each in config.models.items())))
    return inline(f"{scenario} · {models} · {mode} · seed {config.seed}{games}{part}")


def screen(kind: Kind | None, title: str, games: int, file: IO[str]) -> Screen:
    """Return the screen for a run. `kind` None: live on a terminal, plain elsewhere."""
    if kind == "none":
        return NoScreen()
    console = Console(file=file, highlight=False, emoji=False, markup=False)
    if kind is None:
        kind = "rich" if console.is_terminal else "plain"
    if kind == "plain":
        return PlainTalk(title, file) if games == 1 else PlainGames(title, file)
    return LiveTalk(title, console) if games == 1 else LiveGames(title, console, games)
