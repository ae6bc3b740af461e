"""Sweeps of a scenario with known scores, on the fake engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentcho import Agent, Game, Scenario
from agentcho.lab.sweep.axes import Value
from agentcho.lab.sweep.folder import Folder
from agentcho.lab.sweep.grid import Fixed
from agentcho.lab.sweep.plan import planned
from agentcho.lab.sweep.result import SweepResult
from agentcho.lab.sweep.run import SweepOptions, prepared, swept
from agentcho.protocol.call import Decode
from agentcho.protocol.progress import no_progress
from agentcho.testing import FakeEngine


class Speaker(Agent):
    """Says something."""

    audience = "everyone"


class Known(Scenario):
    """One message, scored by options and task. After `left` games it raises KeyboardInterrupt."""

    name = "known"
    tasks = "arithmetic"

    class Options(Scenario.Options):
        """Options that change the score."""

        plus: float = 0.0
        fails: tuple[int, ...] = ()
        many: int = 1
        seed: int = 0

    class Outcome(Scenario.Outcome):
        """The scores."""

        score: float
        right: bool

    options: Options
    left: ClassVar[int] = 10**6

    def draws(self) -> int:
        return self.options.many

    async def play(self, game: Game) -> Outcome:
        tasks = game.draw()
        ann = game.cast(Speaker, "ann")
        await ann.say()
        Known.left -= 1
        if Known.left < 0:
            raise KeyboardInterrupt
        if game.index in self.options.fails:
            raise ValueError("this game fails")
        hard = len(tasks[0].question) % 7
        return self.Outcome(score=self.options.plus + hard, right=hard + self.options.plus > 4)

    def score(self, outcome: Outcome) -> dict[str, float]:
        return {"score": outcome.score, "right": float(outcome.right)}


class Counts(FakeEngine):
    """Counts decodes, and refuses more than `left` of them."""

    def __init__(self, left: int = 10**6) -> None:
        super().__init__()
        self.left, self.decodes = left, 0

    def submit(self, calls: Any, turn: Any = None) -> Any:
        for call in calls:
            if isinstance(call, Decode):
                self.decodes += 1
                assert self.decodes <= self.left, "this was played before"
        return super().submit(calls, turn)


def asked(
    out: Path | None, grid: Mapping[str, Sequence[Any]], games: int = 4, models: Sequence[Value] = (), **more: Any
) -> SweepOptions:
    """A request for a sweep of `Known`."""
    run = {"games": games, **({} if models else {"model": "fake"}), **more.pop("run", {})}
    fixed = Fixed(more.pop("own", {}), run)
    return SweepOptions(Known, grid, models, fixed, out=out, **more)


def sweep(out: Path, grid: Mapping[str, Sequence[Any]], games: int = 4, **more: Any) -> SweepResult:
    """Plays the sweep to its end."""
    mine = asked(out, grid, games, **more)
    found = prepared(mine)
    return swept(mine, found, planned(found, Folder(out)), no_progress)[0]
