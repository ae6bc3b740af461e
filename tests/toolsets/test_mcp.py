"""Tools of MCP servers in games: real processes, over their standard streams and over HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

import agentcho
from agentcho import Agent, Game
from agentcho.errors import ExtraMissing, RequestError, ToolFailed
from agentcho.message import EVERYONE
from agentcho.testing import Rehearsal, play

FILE = str(Path(__file__).with_name("server.py"))


def server(**how: Any) -> agentcho.MCPServer:
    return agentcho.MCPServer(sys.executable, FILE, **{"audience": "nobody", **how})


def call(name: str, arguments: str = "{}") -> str:
    return f'{{"name": "{name}", "arguments": {arguments}}}'


def asking(tools: list[Any], *lines: str, backend: str = "asyncio") -> Rehearsal:
    async def script(game: Game) -> None:
        ann, bob = (game.cast(Agent, name, tools=tools) for name in ("ann", "bob"))
        for _ in lines:
            await ann.say("everyone")
            await bob.say("everyone")

    said = [text for line in lines for text in (line, "Done.")]
    return play(script, {"ann": said, "bob": said}, backend=backend)


def results(played: Rehearsal) -> list[str]:
    return [entry.message.text for entry in played.entries if entry.origin == "tool"]


def test_an_mcp_server_is_started_or_reached_and_declared_like_a_tool() -> None:
    with pytest.raises(RequestError, match="one of the two"):
        agentcho.MCPServer()
    with pytest.raises(RequestError, match="https://"):
        agentcho.MCPServer(url="file:///etc/passwd")
    with pytest.raises(RequestError, match="True or False"):
        server(trusted="yes")
    with pytest.raises(TypeError):
        server(owner="me")
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
    assert listing.audience == EVERYONE
    assert "fail" in log.read_text()


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
