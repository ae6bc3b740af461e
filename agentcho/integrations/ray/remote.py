"""The engine of remote workers as seen by a process that has games played on it and measures the results.

Provides its fingerprint and plays games; the tensors stay on the workers.
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
    """The engine that workers load for the games of a scenario. Reading `fingerprint` waits for the first worker."""

    def __init__(self, players: Players, scenario: Scenario, config: RunConfig) -> None:
        self._players = players
        self._request = RunRequest(scenario, config)
        self._config = config
        self._fingerprint: dict[str, str] | None = None

    @property
    def fingerprint(self) -> dict[str, str]:
        """The same as the fingerprint of a local engine."""
        if self._fingerprint is None:
            begun = self._players.driver.ready(work_of(self._players, self._request))
            self._fingerprint = named(begun, self._config).engine
        return self._fingerprint

    def adapted(self, adapter: str) -> RemoteEngine:
        """Return itself: workers load the adapter that the options of a game name."""
        return self

    def meet(self, header: str, text: str) -> None:
        """Register words that games will be forced to say. Only the fake engine needs them, because it knows no
        words."""
        if self._config.model == "fake":
            self._players.met[header, text] = None

    def play(self, request: RunRequest) -> RunResult:
        """Play games on the workers, as `games.runs.runtime.play` does on a local engine."""
        return play(self._players, request)

    def here(self, tell: ProgressCallback) -> EnginePort:
        """Stop the workers and load an engine in this process, to measure on it after the games."""
        self._players.driver.dismiss()
        return load_engine(self._config, tell)
