"""Socket, application and served model together, on the fake engine: cancelled requests leave nothing behind."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcho import RunConfig
from agentcho.audit.audit import audit_run
from agentcho.records.record import runs
from agentcho.serve.sharing.served import ServedModel, Serving
from agentcho.testing import FakeEngine
from tests.serve.door import ASKED, CHAT, Door, opened, play

LONG = "word " * 200_000


@asynccontextmanager
async def chain(engine: FakeEngine, record: Path | None = None, **limits: Any) -> AsyncIterator[Door]:
    """A served model on a real socket. Checks that nothing of it is left in the engine afterwards."""
    served = ServedModel("m", engine, RunConfig(model="fake"), Serving(record=record))
    async with served.serving() as model, opened(model, **limits) as door:
        yield door
        with anyio.fail_after(5):
            while engine.rows:
                await anyio.sleep(0.01)
    assert engine.rows == engine.pages == 0
    engine.check_integrity()


def endless() -> FakeEngine:
    return FakeEngine(lambda call, prompt: LONG, context=1 << 20)


class Given:
    """Notes the engine's step count whenever a request is cancelled."""

    def __init__(self, engine: FakeEngine, patch: pytest.MonkeyPatch) -> None:
        self.steps, self._engine, self._answer = list[int](), engine, ServedModel.answer
        patch.setattr(ServedModel, "answer", lambda model, *asked: self._heard(model, *asked))

    async def _heard(self, model: ServedModel, *asked: Any) -> Any:
        try:
            return await self._answer(model, *asked)
        except anyio.get_cancelled_exc_class():
            self.steps.append(self._engine.steps)
            raise

    async def rest(self) -> None:
        """Waits until no row runs. Checks that this took at most one more step after the cancellation, besides the step
        in progress."""
        with anyio.fail_after(5):
            while self._engine.rows or not self.steps:
                await anyio.sleep(0.01)
        assert self._engine.steps <= self.steps.pop() + 2


def asking(path: str, stream: bool) -> bytes:
    """A request for an endless answer."""
    most = {"max_tokens": 1 << 19} if path.endswith(CHAT) else {"max_output_tokens": 1 << 19, "input": "hello"}
    content = json.dumps((ASKED if path.endswith(CHAT) else {"model": "m"}) | most | {"stream": stream}).encode()
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content


@pytest.mark.parametrize("path", [f"{base}{api}" for base in ("", "/s/talk/bob") for api in (CHAT, "/v1/responses")])
def test_who_goes_away_frees_its_row_within_a_step_streamed_or_not(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        engine = endless()
        given = Given(engine, monkeypatch)
        async with chain(engine) as door:
            for stream in (True, False):
                with door.raw(asking(path, stream)), anyio.fail_after(5):
                    while not engine.rows:
                        await anyio.sleep(0.01)
                await given.rest()
            assert (await door.ask(max_tokens=2)).status_code == 200

    play(body)


@pytest.mark.parametrize("path", [CHAT, "/s/talk/bob/v1/responses"])
def test_a_reader_that_does_not_read_frees_its_row(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        engine = endless()
        given = Given(engine, monkeypatch)
        async with chain(engine, send_seconds=0.2) as door:
            with socket.socket() as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.connect(("127.0.0.1", door.port))
                deaf.sendall(asking(path, True))
                with anyio.fail_after(8):
                    while not engine.rows:
                        await anyio.sleep(0.01)
                    await given.rest()

    play(body)


def test_a_context_that_overflows_is_told_in_the_word_that_clients_know() -> None:
    async def body() -> None:
        async with chain(FakeEngine(context=64)) as door:
            long = [{"role": "user", "content": "many words " * 100}]
            for path in (CHAT, f"/s/talk{CHAT}"):
                for stream in (True, False):
                    answer = await door.ask(path, messages=long, stream=stream)
                    assert (await door.error(400, answer))["code"] == "context_length_exceeded"

    play(body)


LETTERS = "word " * 5000


@pytest.mark.parametrize(
    "said",
    [
        {"messages": [{"role": "user", "content": LETTERS}]},
        {"messages": [{"role": "user", "content": "look"}, {"role": "tool", "tool_call_id": "c", "content": LETTERS}]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": LETTERS}}], "tool_choice": "required"},
    ],
)
def test_a_long_text_that_fits_is_tokenised_beside_the_loop(
    said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        engine, here = FakeEngine(context=1 << 20), threading.get_ident()
        lengths = list[int]()
        encode = type(engine.framing.content).encode

        def heard(self: Any, text: str) -> list[int]:
            lengths.extend([len(text)] if threading.get_ident() == here else [])
            return encode(self, text)

        monkeypatch.setattr(type(engine.framing.content), "encode", heard)
        async with chain(engine) as door:
            for path in (CHAT, f"/s/talk/bob{CHAT}", f"/s/talk/bob{CHAT}"):
                assert (await door.ask(path, max_tokens=60, **said)).status_code == 200
        assert lengths
        assert max(lengths) < 1000

    play(body)


def test_three_agents_talk_by_their_base_urls_and_the_record_is_clean(tmp_path: Path) -> None:
    async def body() -> None:
        async with chain(FakeEngine(), tmp_path) as door:
            history: list[dict[str, str]] = [{"role": "user", "content": "begin"}]
            for turn in range(6):
                name = ("ann", "bob", "eve")[turn % 3]
                brief = {"role": "system", "content": f"You are {name}. Your secret is {turn % 3}."}
                answer = await door.ask(f"/s/talk/{name}{CHAT}", messages=[brief, *history], max_tokens=8)
                assert answer.status_code == 200, answer.text
                history.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
            counts = answer.json()["usage"]["prompt_tokens_details"]
            assert counts["message_reused_tokens"] > 0
            info = await door.client.get("/s/talk")
            assert info.json()["models"][0]["agents"] == ["ann", "bob", "eve"]
            assert (await door.client.delete("/s/talk")).status_code == 200
            assert (await door.client.get("/s/talk")).status_code == 404
        [run] = runs(tmp_path)
        assert run.status == "done"
        assert audit_run(run).conclusion == "clean"

    play(body)
