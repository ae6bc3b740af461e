"""The cast of a game: who has joined it under which name, and which system prompts are open.

Does not know: how messages come about, encodings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentcho.agent import Agent
from agentcho.calls.values import kind, text, whole
from agentcho.errors import AudienceError, RequestError, ScenarioError
from agentcho.message import SCENARIO, Metadata, cast_name

__all__ = ["SCENARIO", "Roster"]


class Roster:
    """One game's agents by the names of their seats, and their seats by nothing but which object they are: what an
    agent says of itself is not asked again. `find` turns a name of the library into a class (None: there is none)."""

    def __init__(self, find: Callable[[str], type[Agent]] | None = None) -> None:
        self.agents: dict[str, Agent] = {}
        self._find = find
        self._seats: dict[int, str] = {}
        self._briefs: dict[str, str] = {}
        self._own: dict[str, str] = {}

    def meet(
        self, agent: str | type[Agent] | Agent, name: str | None, attributes: Mapping[str, Any]
    ) -> tuple[Agent, str]:
        """Who is to `join`, and as whom: a class, the name of one in the library, or an instance. Names are never
        reused, and an agent sits once. `attributes` are for one that is made here. `AudienceError`: a name that
        cannot be one, or is taken, or an agent that sits already."""
        if isinstance(agent, str):
            if self._find is None:
                raise AudienceError(f"no library to find agent {agent!r} in", self.agents)
            agent = self._find(agent)
        if not isinstance(agent, Agent) and not (isinstance(agent, type) and issubclass(agent, Agent)):
            raise RequestError(f"what is cast is {kind(agent)}; give a subclass of Agent, its name, or an agent")
        if isinstance(agent, Agent) and attributes:
            given = ", ".join(attributes)
            raise RequestError(f"{given} for an agent that is made already; set that on it, or cast its class")
        player = agent if isinstance(agent, Agent) else agent(name or agent.role, **attributes)
        seat = cast_name(player.name if name is None else name)
        if seat in self.agents:
            raise AudienceError(f"an agent named {seat!r} has joined already", self.agents)
        whole(player.priority, f"the priority of {seat}")
        text(player.role, f"the role of {seat}")
        if player.system is not None:
            text(player.system, f"the system prompt of {seat}")
        taken = self.seat(player) or (player._game and player._game.seat(player))
        if taken is not None:
            raise AudienceError(f"this agent sits in a game already, as {taken!r}; cast a copy of it", self.agents)
        return player, seat

    def join(self, player: Agent, seat: str) -> None:
        """Give one a seat, under a name that `meet` gave."""
        self.agents[seat], self._seats[id(player)] = player, seat

    def seat(self, agent: Agent) -> str | None:
        """The name of its seat; None: it has none here."""
        return self._seats.get(id(agent))

    def seated(self, agent: Agent) -> str:
        """The name of its seat. `ScenarioError`: it has none here."""
        seat = self.seat(agent)
        if seat is None:
            raise ScenarioError(
                f"{agent._name} has no seat in this game; game.cast(...) gives it one, and an agent has one at most"
            )
        return seat

    # -- open system prompts -----------------------------------------------------------------------------

    def brief(self, words: str, said: Sequence[Metadata]) -> str | None:
        """The open system prompt with exactly these words among what was said; None: there is none yet."""
        return next((m.id for m in said if self._briefs.get(m.id) == words), None)

    def open(self, id: str, words: str) -> None:
        """A message is an open system prompt from now."""
        self._briefs[id] = words

    def give(self, seat: str, id: str) -> None:
        """A message is an agent's own system prompt, open or not."""
        self._own[seat] = id

    def own(self, seat: str | None) -> str | None:
        """The system prompt of an agent; None: it has none."""
        return None if seat is None else self._own.get(seat)

    def shown(self, seat: str, said: Sequence[Metadata]) -> tuple[Metadata, ...]:
        """Without the open system prompts of others: the words are no secret, but they are not for this agent."""
        return tuple(m for m in said if self.sees(seat, m.id))

    def sees(self, seat: str, id: str) -> bool:
        """Whether a message is no open system prompt of others."""
        return id not in self._briefs or id == self._own.get(seat)
