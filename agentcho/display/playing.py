"""Plays a run with a screen that shows its events."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import IO

from agentcho.display import Kind, Screen, heading, screen
from agentcho.display.progress import Progress
from agentcho.display.withheld import withheld
from agentcho.errors import RecordError
from agentcho.events import Event, Sink
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.resume import folder_option
from agentcho.games.runs.runtime import RunResult


def play_shown(
    request: RunRequest,
    play: Callable[[RunRequest], RunResult],
    display: Kind | None,
    told: Progress | None = None,
    listen: Callable[[Sink], Sink | None] = lambda sink: sink,
) -> RunResult:
    """Play a run by `play` with a screen that shows its events. A resumed run's earlier games are in the tables too.

    `told` shows how many games are over; `listen` turns the screen's sink into the one that the run gets. If people
    play, nothing else is shown before the end. Raises `RecordError` if the reader of standard output has closed it.
    """
    told, title, games = told or Progress(), heading(request.scenario.name, request.config), request.config.numbers
    kept = "nothing was started"
    try:
        if request.people:
            showing = withheld(display, title, sys.stdout)
        else:
            showing = screen(display, title, len(games), sys.stdout)
        with showing as shown:
            kept = _kept(request)
            if request.resume is not None:
                shown.remember(request.resume.saved)
            played = play(replace(request, sink=listen(_both(shown, told, len(games)))))
            told.clear()
        kept = "all games are over" + ("" if played.record is None else f": {played.record}")
        shown.close(played)
    except BrokenPipeError:
        silence(sys.stdout)
        raise unread(kept) from None
    return played


def _kept(request: RunRequest) -> str:
    """Return what is recorded of a run that is being played, and how it continues."""
    out = request.out if request.resume is None else request.resume.saved.path.parent
    if out is None:
        return "nothing of this run is recorded"
    return f"everything said so far is recorded; continue with `agentcho run --resume last{folder_option(out)}`"


def unread(kept: str) -> RecordError:
    """Return the error for standard output that its reader has closed; `kept` says what is recorded all the same."""
    return RecordError(f"the reader of standard output has closed it; {kept}", code=1)


def silence(stream: IO[str]) -> None:
    """Send the rest of a stream that is no longer read to the null device, because otherwise the interpreter prints an
    error when it flushes the stream at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _both(shown: Screen, told: Progress, games: int) -> Sink:
    """Return a sink for the screen and for the progress, which shows nothing if the screen is live."""

    def hear(event: Event) -> None:
        if shown.moves:
            told.clear()
        shown.hear(event)
        if not shown.moves:
            told.tell("games", len(shown.games), games)

    return hear
