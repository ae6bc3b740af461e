"""The engine of workers, as one process knows it that has games played on it and measures something on them: what it
is, and how games are played there. Its numbers are on the workers.

Does not know: what is measured.
"""

from __future__ import annotations

from agentcho.config import RunConfig
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, load_engine
from agentcho.integrations.ray.runs import Players, named, play, work_of
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback
from agentcho.scenario import Scenario


class RemoteEngine:
    """The engine that workers load for a scenario's games. Asking for its `fingerprint` waits for the first of them."""

    def __init__(self, players: Players, scenario: Scenario, config: RunConfig) -> None:
        self._players = players
        self._request = RunRequest(scenario, config)
        self._config = config
        self._fingerprint: dict[str, str] | None = None

    @property
    def fingerprint(self) -> dict[str, str]:
        """As an engine's of one's own."""
        if self._fingerprint is None:
            begun = self._players.driver.ready(work_of(self._players, self._request))
            self._fingerprint = named(begun, self._config).engine
        return self._fingerprint

    def adapted(self, adapter: str) -> RemoteEngine:
        """The same: workers take the adapter that the options of a game name."""
        return self

    def meet(self, header: str, text: str) -> None:
        """Words that games will be forced to say: workers of an engine that knows none (the fake) hear of them."""
        if self._config.model == "fake":
            self._players.met[header, text] = None

    def play(self, request: RunRequest) -> RunResult:
        """Play games by the workers, as `games.runs.runtime.play` does on an engine."""
        return play(self._players, request)

    def here(self, tell: ProgressCallback) -> EnginePort:
        """An engine of this process, once the workers have gone: games are over, and something is measured on it."""
        self._players.driver.dismiss()
        return load_engine(self._config, tell)
