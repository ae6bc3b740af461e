"""Runs `agentcho tune`: checks everything first, then trains an adapter, then reports."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentcho.audit.wording import many
from agentcho.cli.signals import INTERRUPTED
from agentcho.config import RunConfig
from agentcho.display.progress import Progress, progress
from agentcho.errors import TuneError
from agentcho.extras import require
from agentcho.games.runs import library, runtime
from agentcho.lab.collect import Interrupted
from agentcho.lab.tune.choice import UntracedGames
from agentcho.lab.tune.recipe import Recipe
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.files import check_folder, write_errors
from agentcho.records.writer_lock import NAME, WriterLock

if TYPE_CHECKING:
    from agentcho.lab.tune.training import Progress as Step

TIMED = 8
CHOSEN_BY = 50
"""The number of games that choose a checkpoint, if none was given."""


class TuneOptions(NamedTuple):
    """The arguments of the command. `choose_by`: the score that selects the checkpoint, over `choose_games` games.
    `keep_epochs`: the adapter of each epoch is kept."""

    scenario: str
    traces: Path
    recipe: Recipe
    config: RunConfig
    out: Path
    benchmark: bool = False
    choose_by: str | None = None
    choose_games: int | None = None
    keep_epochs: bool = False


def tune(asked: TuneOptions) -> int:
    """Train, write, and report. Returns the exit code: 0, or 130 after Ctrl-C; the training can be resumed."""
    require("to train adapters", "tune", "lab")
    kind = library.scenario(asked.scenario)
    if not asked.traces.is_file():
        raise TuneError(str(asked.traces), "the file does not exist; write it with `agentcho trace`")
    games = None
    if asked.choose_by is not None:
        games = UntracedGames.after(
            asked.traces, kind, asked.recipe, asked.config, asked.choose_by, asked.choose_games or CHOSEN_BY
        )
    check_folder(asked.out)
    with write_errors(asked.out):
        asked.out.mkdir(parents=True, exist_ok=True)
    with WriterLock(asked.out / NAME), progress("tune", sys.stderr) as told:
        return _train(asked, kind.name, games, told)


def _train(asked: TuneOptions, name: str, games: UntracedGames | None, told: Progress) -> int:
    engine: Any = runtime.load_engine(asked.config, told.tell)
    from agentcho.lab.plots import plot_training
    from agentcho.lab.tune.lessons import lessons, steps_of
    from agentcho.lab.tune.speed import speed
    from agentcho.lab.tune.training import Training

    found = lessons(asked.traces, name, engine, asked.recipe)
    training = Training(
        scenario=name,
        base=engine,
        lessons=found,
        recipe=asked.recipe,
        folder=asked.out,
        tell=_telling(told.tell),
        validation=None if games is None else games.on(engine).validation(lambda: engine, told.tell),
        keep_epochs=asked.keep_epochs,
    )
    told.clear()
    print(
        f"{len(found.train)} traces of {found.tokens:,} tokens, {len(found.dev)} held out, "
        f"{steps_of(found.train, asked.recipe)} steps"
    )
    if asked.benchmark:
        timed = training.speed = speed(training.engine, found.train[:TIMED], asked.recipe.tokens)
        print(
            f"{timed.whole:.1f} traces/s whole, {timed.by_calls:.1f} call by call: {timed.ratio.middle:.1f} x "
            f"({timed.ratio.least:.1f} to {timed.ratio.largest:.1f})"
        )
    try:
        trained = training.train()
    except (KeyboardInterrupt, Interrupted):
        told.clear()
        print("interrupted; to continue from the last checkpoint, repeat the command", file=sys.stderr)
        return INTERRUPTED
    told.clear()
    plot_training(training.log(), f"{name}, {asked.recipe.mode}, {asked.recipe.leakage}", asked.out / "loss.png")
    if trained.chosen is not None:
        print(f"{trained.chosen['score']} {trained.chosen['mean']:.3f} over {many(trained.chosen['games'], 'game')}")
    print(
        f"held-out loss {trained.before:.4f} → {trained.best:.4f} nats a word (step {trained.step}), "
        f"{trained.seconds:.0f} s\nwritten: {asked.out}; use it with --adapter {asked.out}"
    )
    return 0


def _telling(tell: ProgressCallback) -> Callable[[Step], None]:
    return lambda now: tell(f"steps (loss {now.loss:.4f}, {now.speed:.1f} traces/s)", now.step, now.steps)
