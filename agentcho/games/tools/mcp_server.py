"""The tools of an MCP server, through the package `mcp`, over standard streams of a process or over HTTP.

By default each agent of each game has its own connection, and over standard streams its own process. Agents that share
a connection can tell each other anything through it, and no audit sees that. Independent of agents and games.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio

from agentcho.errors import AgentchoError, ArgumentError, RequestError, ToolFailed, shown
from agentcho.extras import require
from agentcho.games.tools.tool import Tool, ToolRaised, check_callable, checked_name, declared
from agentcho.protocol.value_checks import checked_bool

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import Transport
    from mcp.types import CallToolResult, ContentBlock

LOG = logging.getLogger(__name__)
CONNECTING = 30.0
"""Seconds within which a server must be connected and have listed its tools. The duration of a call is limited only by
its tool's declaration."""
PAGES = 100


class MCPServer:
    """A server of tools, for `tools` of an agent or of `say`.

    It is connected when an agent first speaks with it, and disconnected when the game ends. What a server says about
    its own tools is not trusted.

    Args:
        command: Program that starts the server. Give this or `url`.
        *arguments: Arguments of the program.
        url: Address of a running server.
        name: Name of the server in records. None derives it from the command or address.
        env: Environment variables of the program, beside a few of this process.
        cwd: Working folder of the program. None means the current one.
        headers: HTTP headers for `url`.
        only: Names of the tools to offer. None offers all.
        declare: Declarations of single tools by name, which override `declaring`, as in `{"read": {"effect": False}}`.
        shared: Whether all agents of a game share one connection, and so one process. Audits report it.
        log: A file that the log of the program is appended to. None drops the log.
        **declaring: Declarations of all tools of the server, as `agentcho.tool` takes them, but for `isolate`.

    Raises:
        RequestError: Neither or both of `command` and `url` are given, or a declaration is wrong.
        ArgumentError: There is no such declaration.
        ExtraMissing: The package `mcp` is not installed.

    Example::

        files = agentcho.MCPServer("npx", "-y", "@modelcontextprotocol/server-filesystem", "/data", audience="nobody")
        web = agentcho.MCPServer(url="https://example.org/mcp", only=["search"])
    """

    def __init__(
        self,
        command: str | None = None,
        *arguments: str,
        url: str | None = None,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        headers: Mapping[str, str] | None = None,
        only: Iterable[str] | None = None,
        declare: Mapping[str, Mapping[str, Any]] | None = None,
        shared: bool = False,
        log: str | Path | None = None,
        **declaring: Any,
    ) -> None:
        if (command is None) == (url is None):
            raise RequestError("an MCP server needs either a command that starts it or a url; give one of them")
        if "isolate" in declaring:
            raise ArgumentError("isolate does not apply to an MCP server, which is another process; leave it out")
        require("to connect MCP servers", "mcp")
        self._command = command or ""
        self._arguments = arguments
        self._url = url
        self._env, self._cwd = dict(env or {}), cwd
        self._headers = dict(headers or {})
        self._log = log
        self.shared = checked_bool(shared, "shared")
        self.name = _name(command, arguments, url) if name is None else checked_name(name)
        self._only = None if only is None else frozenset(only)
        self._declared = declared(**declaring, isolate=False)
        self._apart = {tool: declared(**{**declaring, **more}) for tool, more in (declare or {}).items()}

    def __repr__(self) -> str:
        return f"<MCPServer {self.name}>"

    @asynccontextmanager
    async def connected(self, agent: str) -> AsyncIterator[Sequence[Tool]]:
        """A context with the tools of the server, connected for one agent. It must be entered and left in one task.

        Args:
            agent: The agent's name.

        Yields:
            The tools.

        Raises:
            ToolFailed: The server cannot be reached, dies, or has a tool that cannot be offered.
        """
        from mcp import Client

        there, under_way = False, set[anyio.CancelScope]()
        try:
            with anyio.fail_after(CONNECTING) as connecting:
                async with self._transport() as transport, Client(transport) as client:
                    tools = await self._tools(client, agent, under_way)
                    there, connecting.deadline = True, inf
                    yield tools
        except Exception as error:  # errors of the library come in groups, and their text may be secret
            first = _first(error)
            if isinstance(first, AgentchoError):
                raise first from error
            what = f"is gone: the connection was lost ({type(first).__name__})" if there else _unreached(first)
            raise ToolFailed(f"the MCP server {self.name} {what}{self._look()}") from error
        finally:
            for scope in under_way:  # the library may leave calls waiting for a server that is gone
                scope.cancel()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Transport]:
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        if self._url is not None:
            async with create_mcp_http_client(headers=self._headers) as http:
                http.timeout = CONNECTING, None, CONNECTING, CONNECTING  # an answer may take as long as its call
                yield streamable_http_client(self._url, http_client=http)
            return
        start = StdioServerParameters(
            command=self._command, args=[*self._arguments], env=self._env or None, cwd=self._cwd
        )
        with open(os.devnull if self._log is None else self._log, "a") as log:
            yield stdio_client(start, errlog=log)

    async def _tools(self, client: Client, agent: str, under_way: set[anyio.CancelScope]) -> list[Tool]:
        """Return the tools of the server that are offered.

        One that cannot be offered is left out with a warning, unless it was requested by name.
        """
        found, cursor = list[Any](), None
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            if (cursor := page.next_cursor) is None:
                break
        names = {tool.name for tool in found}
        if missing := sorted(((self._only or frozenset()) | self._apart.keys()) - names):
            there = ", ".join(sorted(names)) or "none"
            raise ToolFailed(f"the MCP server {self.name} has no tool {', '.join(missing)}; it has {there}")
        wanted = [each for each in found if self._only is None or each.name in self._only]
        offered = list[Tool]()
        for each in wanted:
            try:
                offered.append(self._tool(client, each, agent, under_way))
            except RequestError as error:
                if self._only is not None or each.name in self._apart:
                    told = f"the MCP server {self.name} has a tool that cannot be used: {error}"
                    raise ToolFailed(told) from error
                LOG.warning("a tool of the MCP server %s is left out: %s", self.name, error)
        return offered

    def _tool(self, client: Client, found: Any, agent: str, under_way: set[anyio.CancelScope]) -> Tool:
        async def call(**arguments: Any) -> str:
            with anyio.CancelScope() as scope:
                under_way.add(scope)
                try:
                    return await self._call(client, found.name, arguments)
                finally:
                    under_way.discard(scope)
            raise self._gone("EndOfStream")

        whose = self.name if self.shared or self._url is not None else f"{self.name}/{agent}"
        of = self._apart.get(found.name, self._declared)
        made = Tool(
            name=found.name,
            description=found.description or "",
            schema=dict(found.input_schema),
            function=call,
            declared=of,
            source=self.name,
            client=whose,
        )
        check_callable(made.name, made.schema)
        return made

    async def _call(self, client: Client, name: str, arguments: dict[str, Any]) -> str:
        """Make one call.

        Raises `ToolRaised` if the server says that it failed, and `ToolFailed` if the server is gone.
        """
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        try:
            result = await client.call_tool(name, arguments)
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise ToolRaised(error.message) from error
            raise self._gone(type(error).__name__) from error
        except (OSError, RuntimeError) as error:
            raise self._gone(type(error).__name__) from error
        if result.is_error:
            raise ToolRaised(_text(result))
        return _text(result)

    def _gone(self, why: str) -> ToolFailed:
        return ToolFailed(f"the MCP server {self.name} is gone: the connection was lost ({why}){self._look()}")

    def _look(self) -> str:
        if self._url is not None:
            return "; check that it is running there"
        return "; give log=FILE to see its output" if self._log is None else f"; see {self._log}"


def _name(command: str | None, arguments: Sequence[str], url: str | None) -> str:
    """Return the default name of a server, without its arguments and without keys in its address, which may be
    secret."""
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(f"the url of an MCP server is {shown(url)}; give an https:// or http:// address")
        return f"{parts.hostname}{'' if parts.port is None else f'.{parts.port}'}"
    digest = hashlib.blake2b(repr((command, *arguments)).encode(), digest_size=3).hexdigest()
    return f"{Path(str(command)).name}-{digest}"


def _first(error: BaseException) -> BaseException:
    """Return the error, or the first in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _unreached(error: BaseException) -> str:
    """Return why a server cannot be connected."""
    if isinstance(error, TimeoutError):
        return f"did not list its tools within {CONNECTING:g} seconds"
    return f"cannot be reached ({type(error).__name__})"


def _text(result: CallToolResult) -> str:
    """Return the texts of a result, with the kind and address of each part that is not text. A result without parts is
    its value as JSON."""
    if not result.content and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(map(_told, result.content))


def _told(part: ContentBlock) -> str:
    """Return the text of a part, which may be that of an embedded resource."""
    source = getattr(part, "resource", part)
    text, address = (getattr(source, name, None) for name in ("text", "uri"))
    if text is not None:
        return str(text)
    return f"[{part.type}]" if address is None else f"[{part.type} {address}]"
