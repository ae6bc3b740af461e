"""An MCP server for tests, over standard streams or over HTTP on a loopback port."""

from __future__ import annotations

import os
import sys

import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("tests")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    print("a line of the log", file=sys.stderr)
    return a + b


@server.tool()
def process() -> int:
    """The process of the server."""
    return os.getpid()


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no such file")


@server.tool()
def long() -> str:
    """A megabyte."""
    return "x" * 1_000_000


@server.tool()
async def wait() -> str:
    """Half a second."""
    await anyio.sleep(0.5)
    return "waited"


@server.tool()
def die() -> str:
    """Ends the server."""
    os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
