"""A scenario that creates a file and then waits, in one of several ways, until a file `go` exists."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import anyio

import agentcho


def until_it_may() -> str:
    """Creates a file `under-way`, then waits for a file `go`."""
    Path("under-way").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return "done"


@agentcho.tool(audience="nobody", idempotent=True)
def in_thread() -> str:
    """Waits in a thread."""
    return until_it_may()


@agentcho.tool(audience="nobody", idempotent=True, isolate=True)
def in_process() -> str:
    """Waits in another process."""
    return until_it_may()


class Halting(agentcho.Scenario):
    """Ann speaks, the scenario waits, Ann speaks again."""

    name = "halting"

    class Options(agentcho.Scenario.Options):
        """Where it waits."""

        at: Literal["wait", "speech", "thread", "process"] = "wait"

    class Outcome(agentcho.Scenario.Outcome):
        """The last message."""

        last: str

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        ann = game.cast(agentcho.Agent, name="ann", audience="everyone")
        await ann.say()
        match self.options.at:
            case "wait":
                Path("under-way").touch()
                while not Path("go").exists():
                    await anyio.sleep(0.01)
            case "speech":
                for number in range(300):
                    await ann.say()
                    if number == 3:
                        Path("under-way").touch()
            case "thread":
                await ann.say(tools=[in_thread], tool_choice="required", max_calls=1)
            case "process":
                await ann.say(tools=[in_process], tool_choice="required", max_calls=1)
        return self.Outcome(last=(await ann.say()).text)
