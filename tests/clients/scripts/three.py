"""Three agents speak in turn, each with its own model."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import agentcho


class Speaker(agentcho.Agent):
    """Speaks to everyone."""

    role = "speaker"
    audience = "everyone"
    system = "You say one short sentence about the sea."


class Three(agentcho.Scenario):
    """Two rounds. If a file named `bad` is in the working folder, the process is killed in the second."""

    name = "three"
    models = ("default", "other", "far")

    async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
        speakers = [game.cast(Speaker, f"s{number}", model=model) for number, model in enumerate(self.models)]
        for round in range(2):
            for speaker in speakers:
                if round == 1 and Path("bad").exists():
                    os.kill(os.getpid(), signal.SIGKILL)
                await speaker.say(max_tokens=12, temperature=0)
        return self.Outcome()
