"""The cast of a game: who has joined it under which name, and which system prompts are open.

Does not know: how messages come about, encodings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentcho.agent import Agent
from agentcho.errors import AudienceError
from agentcho.message import Metadata

SCENARIO = "scenario"
NAME = re.compile(r"[a-z][a-z0-9_-]*")


class Cast:
    """One game's agents by name. `find` turns a name of the library into a class (None: there is no library)."""

    def __init__(self, find: Callable[[str], type[Agent]] | None = None) -> None:
        self.agents: dict[str, Agent] = {}
        self._find = find
        self._briefs: dict[str, str] = {}

    def join(self, agent: str | type[Agent] | Agent, name: str | None, attributes: Mapping[str, Any]) -> Agent:
        """Take one in: a class, the name of one in the library, or an instance. Names are never reused.
        `AudienceError`: a name that cannot be one, or is taken."""
        if isinstance(agent, str):
            if self._find is None:
                raise AudienceError(f"no library to find agent {agent!r} in", self.agents)
            agent = self._find(agent)
        player = agent if isinstance(agent, Agent) else agent(name or agent.role, **attributes)
        self._check_name(player.name)
        self.agents[player.name] = player
        return player

    def _check_name(self, name: str) -> None:
        if not NAME.fullmatch(name) or name in {SCENARIO, "everyone"}:
            raise AudienceError(f"{name!r} cannot name an agent (lower-case letters, digits, - and _)", self.agents)
        if name in self.agents:
            raise AudienceError(f"an agent named {name!r} has joined already", self.agents)

    # -- open system prompts -----------------------------------------------------------------------------

    def brief(self, words: str, said: Sequence[Metadata]) -> str | None:
        """The open system prompt with exactly these words among what was said; None: there is none yet."""
        return next((m.id for m in said if self._briefs.get(m.id) == words), None)

    def open(self, id: str, words: str) -> None:
        """A message is an open system prompt from now."""
        self._briefs[id] = words

    def shown(self, agent: Agent, said: Sequence[Metadata]) -> tuple[Metadata, ...]:
        """Without the open system prompts of others: the words are no secret, but they are not for this agent."""
        return tuple(m for m in said if m.id == agent._brief or m.id not in self._briefs)
