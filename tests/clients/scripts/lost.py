"""Two agents speak in turn; an engine process is killed in between."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import agentcho


class Speaker(agentcho.Agent):
    """Speaks to everyone."""

    role = "speaker"
    audience = "everyone"
    system = "You say one short sentence about the sea."


class Lost(agentcho.Scenario):
    """Two rounds. If a file named `bad` is in the working folder, a process of vLLM is killed in the second."""

    name = "lost"

    async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
        speakers = [game.cast(Speaker, f"s{number}") for number in range(2)]
        for round in range(2):
            for speaker in speakers:
                if round == 1 and Path("bad").exists():
                    for worker in multiprocessing.active_children():
                        assert worker.pid is not None
                        os.kill(worker.pid, signal.SIGKILL)
                        break
                await speaker.say(max_tokens=12, temperature=0)
        return self.Outcome()
