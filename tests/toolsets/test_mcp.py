"""Tools of MCP servers in games: real processes, over standard streams and over HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
import trio.testing

import agentcho
from agentcho import Agent, Game, RunConfig, Scenario
from agentcho.errors import ExtraMissing, RequestError, ToolFailed
from agentcho.games.runs import runtime
from agentcho.games.runs.request import RunRequest
from agentcho.games.tools import running
from agentcho.games.tools.mcp_server import CONNECTING
from agentcho.testing import FakeEngine, Rehearsal, play

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

FILE = str(Path(__file__).with_name("server.py"))


def server(**how: Any) -> agentcho.MCPServer:
    return agentcho.MCPServer(sys.executable, FILE, **{"audience": "nobody", **how})


def call(name: str, arguments: str = "{}") -> str:
    return f'{{"name": "{name}", "arguments": {arguments}}}'


def asking(tools: list[Any], *lines: str, backend: str = "asyncio") -> Rehearsal:
    async def script(game: Game) -> None:
        ann, bob = (game.cast(Agent, name, tools=tools) for name in ("ann", "bob"))
        for _ in lines:
            await ann.say(to="everyone")
            await bob.say(to="everyone")

    said = [text for line in lines for text in (line, "Done.")]
    return play(script, {"ann": said, "bob": said}, backend=backend)


def results(played: Rehearsal) -> list[str]:
    return [entry.message.text for entry in played.entries if entry.origin == "tool"]


class Here(agentcho.MCPServer):
    """A server in this process; None: one that never answers."""

    def __init__(self, there: MCPServer | None, **declaring: Any) -> None:
        super().__init__("here", name="here", audience="nobody", **declaring)
        self._there = there

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        from mcp.client._memory import InMemoryTransport

        yield _silent() if self._there is None else InMemoryTransport(self._there)


@asynccontextmanager
async def _silent() -> AsyncIterator[Any]:
    from mcp.shared.memory import create_client_server_memory_streams

    async with create_client_server_memory_streams() as (ours, _):
        yield ours


def slow(seconds: float) -> MCPServer:
    """A server with one tool, which takes this many seconds."""
    from mcp.server.mcpserver import MCPServer

    made = MCPServer("slow")

    @made.tool()
    async def wait() -> str:
        await anyio.sleep(seconds)
        return "waited"

    return made


def on_a_clock_of_its_own(toolset: agentcho.MCPServer) -> running.Returned:
    """The result of its only tool, under a simulated clock that jumps ahead when all tasks wait."""

    async def ask() -> running.Returned:
        async with toolset.connected("ann") as tools:
            return await running.call(tools[0], "{}")

    clock = trio.testing.MockClock(autojump_threshold=0)
    return anyio.run(ask, backend="trio", backend_options={"clock": clock})


@pytest.mark.slow  # importing the server takes seconds
@pytest.mark.parametrize(
    ("timeout", "seconds", "told"),
    [
        (60, CONNECTING + 3, "waited"),
        (None, 100 * CONNECTING, "waited"),
        (60, 61, "Error: wait took longer than 60 seconds, and was given up"),
    ],
)
def test_a_call_may_take_as_long_as_is_declared_of_its_tool(timeout: float | None, seconds: float, told: str) -> None:
    assert on_a_clock_of_its_own(Here(slow(seconds), timeout=timeout)).text == told


@pytest.mark.slow
def test_a_server_that_never_answers_is_given_up() -> None:
    with pytest.raises(ToolFailed, match="here did not list its tools within 30 seconds; give log=FILE"):
        on_a_clock_of_its_own(Here(None))


def test_an_mcp_server_is_started_or_reached_and_declared_like_a_tool() -> None:
    with pytest.raises(RequestError, match="either a command that starts it or a url"):
        agentcho.MCPServer()
    with pytest.raises(RequestError, match="https://"):
        agentcho.MCPServer(url="file:///etc/passwd")
    with pytest.raises(RequestError, match="True or False"):
        server(trusted="yes")
    with pytest.raises(TypeError, match="no declaration 'owner'"):
        server(owner="me")
    with pytest.raises(TypeError, match="isolate does not apply to an MCP server"):
        server(isolate=True)
    named = agentcho.MCPServer(url="https://user:secret@example.org/mcp?key=secret")
    assert repr(named) == "<MCPServer example.org>"
    assert "secret" not in repr(agentcho.MCPServer("tool", "--key", "secret"))


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.extras._installed", lambda module: module != "mcp")
    with pytest.raises(ExtraMissing, match=r"agentcho\[mcp\]"):
        agentcho.MCPServer("tool")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_agent_has_a_process_of_its_own_which_is_gone_with_the_game(
    capfd: pytest.CaptureFixture[str], backend: str
) -> None:
    played = asking([server()], call("add", '{"a": 1, "b": 2}'), call("process"), backend=backend)
    first, second, ann, bob = results(played)
    assert (first, second) == ("3", "3")
    assert ann != bob
    for process in (ann, bob):
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)
    uses = [entry.act.use for entry in played.entries if entry.act.use is not None]
    clients = {use.client for use in uses}
    assert {str(client).rpartition("/")[2] for client in clients} == {"ann", "bob"}
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_one_may_be_shared_and_says_so() -> None:
    played = asking([server(shared=True, name="common", only=["process"])], call("process"))
    ann, bob = results(played)
    assert ann == bob
    assert {entry.act.use.client for entry in played.entries if entry.act.use is not None} == {"common"}


@pytest.mark.slow
def test_what_a_server_says_is_wrong_is_told_to_the_model(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tools = [server(log=log, declare={"add": {"audience": "world", "effect": False}})]
    played = asking(tools, call("fail"), call("long"))
    failed, _, long, _ = results(played)
    assert failed.startswith("Error: ")
    assert "is the most" in long
    listing = next(entry.message for entry in played.entries if entry.message.id == "ann.tools0")
    assert listing.audience.members == frozenset({"ann"}), "one of its tools tells nobody"
    assert "fail" in log.read_text()


@pytest.mark.slow  # importing the server takes seconds
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("embed", "rain\n[resource file:///b]"),
        ("link", "[resource_link file:///a]"),
        ("structured", '{"city": "Zürich"}'),
        ("nothing", ""),
    ],
)
def test_a_result_is_told_as_its_texts_or_its_value(name: str, told: str) -> None:
    from .server import server as there

    assert on_a_clock_of_its_own(Here(there, only=[name])).text == told


class Listing:
    """A server with one tool that can never be called and one that can."""

    async def list_tools(self, cursor: str | None = None) -> Any:
        odd = {"type": "object", "properties": {"n": {"enum": []}}, "required": ["n"]}
        good = {"type": "object", "properties": {"p": {"type": "string", "format": "uri-reference"}}}
        tools = [
            SimpleNamespace(name=name, description=None, input_schema=schema)
            for name, schema in {"odd": odd, "good": good}.items()
        ]
        return SimpleNamespace(tools=tools, next_cursor=None)


def test_one_odd_tool_of_a_server_takes_no_other_down(caplog: pytest.LogCaptureFixture) -> None:
    def offered(server: agentcho.MCPServer) -> list[str]:
        found = anyio.run(server._tools, cast(Any, Listing()), "ann", set())
        return [tool.name for tool in found]

    with caplog.at_level("WARNING", "agentcho"):
        assert offered(agentcho.MCPServer("x", name="files")) == ["good"]
    assert "files is left out: the tool odd can never be called" in caplog.text
    assert "#/properties/n" in caplog.text
    assert offered(agentcho.MCPServer("x", only=["good"])) == ["good"]
    for named in (agentcho.MCPServer("x", only=["odd"]), agentcho.MCPServer("x", declare={"odd": {"effect": False}})):
        with pytest.raises(ToolFailed, match="cannot be used: the tool odd can never be called"):
            offered(named)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ([agentcho.MCPServer("no-such-command")], "cannot be reached"),
        ([agentcho.MCPServer(sys.executable, "-c", "print('hello')")], "cannot be reached"),
        ([agentcho.MCPServer(url="http://127.0.0.1:1/mcp")], "cannot be reached"),
        ([agentcho.MCPServer(sys.executable, FILE, only=["sub"])], "has no tool sub; it has add"),
    ],
)
def test_a_server_that_is_not_there_ends_the_game(tools: list[Any], told: str) -> None:
    with pytest.raises(ToolFailed, match=told):
        asking(tools, call("add"))


@pytest.mark.slow
def test_a_server_that_dies_ends_the_game() -> None:
    with pytest.raises(ToolFailed, match="is gone"):
        asking([server()], call("die"))


class Apart(Scenario):
    """Game 0 needs a server, game 1 does not."""

    name = "apart"

    def __init__(self, server: agentcho.MCPServer) -> None:
        super().__init__()
        self._server = server

    async def play(self, game: Game) -> Scenario.Outcome:
        ann, bob = game.cast(Agent, "ann"), game.cast(Agent, "bob")
        await bob.say(to="everyone")
        if game.index == 0:
            await ann.say(to="everyone", tools=[self._server], tool_choice="required")
        await bob.say(to="everyone")
        return self.Outcome()


def check_the_game_beside(server: agentcho.MCPServer, told: str) -> None:
    """Checks that one game ends with an error while the other is unaffected."""
    config = RunConfig(model="fake", games=2, max_tokens=64)
    both = runtime.play(RunRequest(Apart(server), config, engine=FakeEngine()))
    assert {game: type(failed.error) for game, failed in both.errors.items()} == {0: ToolFailed}
    assert told in str(both.errors[0].error)
    assert [over.ended for over in both.games if over.game == 1] == [None]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections but never answers."""
    with socket.socket() as heard:
        heard.bind(("127.0.0.1", 0))
        heard.listen()
        yield f"http://127.0.0.1:{heard.getsockname()[1]}/mcp"


@pytest.mark.slow
def test_a_server_that_dies_ends_no_other_game() -> None:
    check_the_game_beside(server(only=["die"]), "is gone")


@pytest.mark.slow
@pytest.mark.parametrize("over", ["streams", "http"])
def test_one_that_never_answers_is_given_up_and_ends_no_other_game(
    monkeypatch: pytest.MonkeyPatch, silent: str, over: str
) -> None:
    monkeypatch.setattr("agentcho.games.tools.mcp_server.CONNECTING", 0.3)
    mute = agentcho.MCPServer(sys.executable, "-c", "import sys; sys.stdin.read()")
    began = monotonic()
    check_the_game_beside(
        mute if over == "streams" else agentcho.MCPServer(url=silent), "did not list its tools within 0.3 s"
    )
    assert monotonic() - began < 20


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, FILE, str(number)], **quiet) as process:  # type: ignore[call-overload]
        until = monotonic() + 30
        while monotonic() < until:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", number)) == 0:
                    break
            sleep(0.05)
        yield number
        process.kill()


@pytest.mark.server
def test_over_http_agents_may_share_it_and_a_server_that_dies_ends_the_game(port: int) -> None:
    web = agentcho.MCPServer(url=f"http://127.0.0.1:{port}/mcp", audience="nobody", timeout=20)
    played = asking([web], call("add", '{"a": 1, "b": 2}'))
    assert results(played) == ["3", "3"]
    assert {entry.act.use.client for entry in played.entries if entry.act.use is not None} == {f"127.0.0.1.{port}"}
    with pytest.raises(ToolFailed, match="is gone"):
        asking([web], call("die"))


@pytest.mark.server
def test_over_http_one_that_dies_ends_no_other_game(port: int) -> None:
    check_the_game_beside(agentcho.MCPServer(url=f"http://127.0.0.1:{port}/mcp", only=["die"]), "is gone")


@pytest.mark.server
def test_over_http_an_answer_is_waited_for_as_long_as_its_call_may_take(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setattr("mcp.shared._httpx_utils.MCP_DEFAULT_SSE_READ_TIMEOUT", 0.1)
    web = agentcho.MCPServer(url=f"http://127.0.0.1:{port}/mcp", audience="nobody", timeout=20)
    assert results(asking([web], call("wait"))) == ["waited", "waited"]
