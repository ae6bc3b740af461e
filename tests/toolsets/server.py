"""An MCP server for tests, over standard streams or over HTTP on a loopback port."""

from __future__ import annotations

import os
import sys

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.types import BlobResourceContents, CallToolResult, EmbeddedResource, ResourceLink, TextContent
from mcp.types import TextResourceContents as Text

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


@server.tool()
async def embed() -> CallToolResult:
    """Two files, the second of which is no text."""
    files = (Text(uri="file:///a", text="rain"), BlobResourceContents(uri="file:///b", blob=""))
    return CallToolResult(content=[EmbeddedResource(type="resource", resource=each) for each in files])


@server.tool()
async def link() -> CallToolResult:
    """The address of a file."""
    return CallToolResult(content=[ResourceLink(type="resource_link", name="a", uri="file:///a")])


@server.tool()
async def structured() -> CallToolResult:
    """A value alone."""
    return CallToolResult(content=[], structured_content={"city": "Zürich"})


@server.tool()
async def nothing() -> CallToolResult:
    """An empty text."""
    return CallToolResult(content=[TextContent(type="text", text="")])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
