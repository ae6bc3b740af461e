"""What goes to the log, under `agentcho`: ids, counts, times and classes of errors, and no word that anybody said.

Whoever uses the package decides where it goes. Does not know: files, levels, the terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from agentcho.calls.call import StepResult
from agentcho.events import Began, Ended, Event, Joined, Over

RUN = logging.getLogger("agentcho.run")
GAME = logging.getLogger("agentcho.game")
ENGINE = logging.getLogger("agentcho.engine")


def hear(event: Event) -> None:
    """One event of a game."""
    match event:
        case Joined(game=game, agent=agent):
            GAME.debug("game %d: %s joined", game, agent)
        case Began(game=game, id=id):
            GAME.debug("game %d: %s began", game, id)
        case Ended(entry=entry):
            told = entry.message
            GAME.debug(
                "game %d: %s ended, %s, %d tokens, %d fed, %d reused, first token %.3f s, %.3f s",
                told.game,
                told.id,
                told.words.stopped or told.kind,
                len(told.words.tokens),
                entry.usage.encoded,
                entry.usage.reused,
                entry.usage.ttft,
                entry.usage.seconds,
            )
        case Over(game=game, ended=ended, seconds=seconds):
            why = "at its end" if ended is None else f"early ({ended.partition(':')[0]})"
            GAME.info("game %d over %s, %.1f s", game, why, seconds)


def failed(game: int, kind: str, where: str | None) -> None:
    """An error ended a game, or an attempt at it: its class, and the line of the user's code."""
    GAME.error("game %d: %s at %s", game, kind, where or "no line of the user's")


def stepped(number: int, result: StepResult) -> None:
    """One step of the engine."""
    ENGINE.debug(
        "step %d: %d tokens fed, %d sampled, %d done, %d failed",
        number,
        result.encoded,
        len(result.spoken),
        len(result.finished),
        len(result.failed),
    )
    for failure in result.failed:
        ENGINE.warning("encoding %d failed: %s", failure.id, type(failure.error).__name__)


@contextmanager
def loading(model: str) -> Iterator[None]:
    """Around the loading of a model."""
    began = perf_counter()
    ENGINE.info("loading %s", model)
    try:
        yield
    except Exception as error:
        ENGINE.error("%s was not loaded: %s", model, type(error).__name__)
        raise
    ENGINE.info("loaded %s, %.1f s", model, perf_counter() - began)
