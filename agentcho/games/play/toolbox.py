"""The tools of one game: those that agents were given, and those of servers.

A server is connected when an agent first needs it, and disconnected when the game is over. Each connection has its own
task, which enters and leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import anyio
import anyio.abc

from agentcho.errors import AgentchoError, RequestError, ToolFailed
from agentcho.games.tools.tool import Tool, Toolset
from agentcho.protocol.value_checks import type_name

LEAVING = 5.0
"""Seconds that connections may take to close."""


class Connection:
    """A connection to a server of tools, for one agent or for all agents of a game."""

    def __init__(self, toolset: Toolset, agent: str) -> None:
        self._toolset, self._agent = toolset, agent
        self._ready, self._over = anyio.Event(), anyio.Event()
        self._tools: Sequence[Tool] = ()
        self._error: Exception | None = None

    async def keep(self) -> None:
        """Connect, and stay connected until `leave`. Raises nothing; `tools` raises the error."""
        try:
            async with self._toolset.connected(self._agent) as tools:
                self._tools = tools
                self._ready.set()
                await self._over.wait()
        except Exception as error:
            self._error = error
        finally:
            self._ready.set()

    async def tools(self) -> Sequence[Tool]:
        """Return its tools. Raises `ToolFailed` if the server is not available, or is gone."""
        await self._ready.wait()
        if isinstance(self._error, AgentchoError):
            raise self._error
        if self._error is not None:
            raise ToolFailed(f"a tool server has ended ({type(self._error).__name__})") from self._error
        return self._tools

    def leave(self) -> None:
        """Disconnect from the server."""
        self._over.set()


class Toolbox:
    """An async context manager within which agents have their tools."""

    def __init__(self) -> None:
        self._connections: dict[tuple[int, str | None], Connection] = {}

    async def __aenter__(self) -> Toolbox:
        self._group: anyio.abc.TaskGroup = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connections:
            for connection in self._connections.values():
                connection.leave()
            scope = self._group.cancel_scope
            scope.shield, scope.deadline = True, anyio.current_time() + LEAVING
        await self._group.__aexit__(None, None, None)

    async def tools(self, agent: str, given: Sequence[Tool | Toolset]) -> dict[str, Tool]:
        """Return the tools that an agent may call, by name.

        Raises `RequestError` if one is not a tool, or two have one name, and `ToolFailed` if a server is not available.
        """
        found: dict[str, Tool] = {}
        for each in given:
            for tool in [each] if isinstance(each, Tool) else await self._of(agent, each):
                if tool.name in found:
                    raise RequestError(f"{agent} has two tools named {tool.name}; give one of them another name")
                found[tool.name] = tool
        if not found:
            raise RequestError(f"the tool servers of {agent} offer no tools; give other servers, or none")
        return found

    async def _of(self, agent: str, toolset: Toolset) -> Sequence[Tool]:
        if not hasattr(toolset, "connected"):
            raise RequestError(
                f"one of the tools of {agent} is {type_name(toolset)}; give a function made with "
                "@agentcho.tool, or an MCPServer"
            )
        key = id(toolset), None if toolset.shared else agent
        if key not in self._connections:
            self._connections[key] = Connection(toolset, agent)
            self._group.start_soon(self._connections[key].keep)
        return await self._connections[key].tools()
