"""The cast of a game: who has joined under which name, and which system prompts are public.

Agents are identified by the name under which they were cast, not by their own `name`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentcho.agent import Agent
from agentcho.errors import AudienceError, RequestError, ScenarioError
from agentcho.message import SCENARIO, Metadata, cast_name
from agentcho.protocol.value_checks import checked_int, checked_text, type_name

__all__ = ["SCENARIO", "Roster"]


class Roster:
    """One game's agents by name.

    An agent's name is looked up by object identity, so that the agent's own attributes are not read again. `find`
    returns the class for a library name (None if there is no library).
    """

    def __init__(self, find: Callable[[str], type[Agent]] | None = None) -> None:
        self.agents: dict[str, Agent] = {}
        self._find = find
        self._names: dict[int, str] = {}
        self._open: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self._hidden: set[str] = set()

    def candidate(
        self, agent: str | type[Agent] | Agent, name: str | None, attributes: Mapping[str, Any]
    ) -> tuple[Agent, str]:
        """Return the agent that is to `join`, and its name. `agent` is a class, a library name, or an instance.

        Names are never reused, and an agent joins once. `attributes` are for an agent that is made here. Raises
        `AudienceError` for an invalid or taken name, and for an agent that is already in a game.
        """
        if isinstance(agent, str):
            if self._find is None:
                raise AudienceError(
                    f"agent {agent!r} is given by name, but this game has no library to find it in; cast its class"
                )
            agent = self._find(agent)
        if not isinstance(agent, Agent) and not (isinstance(agent, type) and issubclass(agent, Agent)):
            raise RequestError(
                f"an agent to cast is {type_name(agent)}; give a subclass of Agent, its name, or an agent"
            )
        if isinstance(agent, Agent) and attributes:
            given = ", ".join(attributes)
            raise RequestError(f"{given} cannot be given for an existing agent; set it on the agent, or cast its class")
        player = agent if isinstance(agent, Agent) else agent(name or agent.role, **attributes)
        given = player.name if name is None else name
        if (given == "" and name is None) or (player is not agent and not player._name):
            raise ScenarioError(
                f"{type(player).__name__} has no name: call super().__init__(name) in its __init__ (of a dataclass, in "
                "__post_init__), or cast an instance under a name: game.cast(agent, name)"
            )
        new = cast_name(given)
        if new in self.agents:
            raise AudienceError(f"an agent named {new!r} has already joined; give another name")
        checked_int(player.priority, f"the priority of {new}")
        checked_text(player.role, f"the role of {new}")
        if player.system is not None:
            checked_text(player.system, f"the system prompt of {new}")
        taken = self.name_of(player) or (player._game and player._game.name_of(player))
        if taken is not None:
            raise AudienceError(f"this agent is already in a game, as {taken!r}; cast a copy of it")
        return player, new

    def join(self, player: Agent, name: str) -> None:
        """Let a `candidate` join under its name."""
        self.agents[name], self._names[id(player)] = player, name

    def name_of(self, agent: Agent) -> str | None:
        """Return the name under which an agent joined, or None if it has not."""
        return self._names.get(id(agent))

    def member(self, agent: Agent) -> str:
        """Return the name under which an agent joined. Raises `ScenarioError` if it has not."""
        name = self.name_of(agent)
        if name is None:
            raise ScenarioError(
                f"{agent._name} is not in this game; cast it with game.cast(...) (an agent can be in one game only)"
            )
        return name

    # -- system prompts ----------------------------------------------------------------------------------

    def open_prompt(self, words: str, said: Sequence[Metadata]) -> str | None:
        """Return the public system prompt with exactly these words among what was said, or None."""
        return next((m.id for m in said if self._open.get(m.id) == words), None)

    def add_open_prompt(self, id: str, words: str) -> None:
        """Note that a message is a public system prompt."""
        self._open[id] = words

    def set_system_prompt(self, name: str, id: str) -> None:
        """Note that a message is an agent's own system prompt, public or not."""
        self._own[name] = id

    def system_prompt(self, name: str | None) -> str | None:
        """Return the id of an agent's system prompt, or None if it has none."""
        return None if name is None else self._own.get(name)

    def hide(self, id: str) -> None:
        """Leave a message out of every view, such as the list of tools, or the choice whether to call one."""
        self._hidden.add(id)

    def sees(self, name: str, id: str) -> bool:
        """Return whether a message is neither hidden nor another agent's public system prompt."""
        return id not in self._hidden and (id not in self._open or id == self._own.get(name))
