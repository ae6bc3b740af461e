"""What clients of the server get over a real socket: routes, keys, errors, streams."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import anyio
import httpx
import pytest

from agentcho.errors import CallFailed, ContextOverflow, EngineClosed, EngineFailed, Overloaded, RequestError, StoreFull
from agentcho.serve.request import Caller
from agentcho.serve.web.keys import ApiKey
from tests.serve.door import ASKED, CHAT, Door, Scripted, opened, play

CANARY = "wolverine-7731"
RESPONSES = {"model": "m", "input": "hello"}


def key(word: str, tenant: str = "red", **fields: object) -> ApiKey:
    return ApiKey.model_validate({"sha256": sha256(word.encode()).hexdigest(), "tenant": tenant, **fields})


async def events(door: Door, path: str = CHAT, asked: dict[str, Any] = ASKED) -> list[str]:
    async with door.client.stream("POST", path, json=asked | {"stream": True}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        return [line.removeprefix("data: ") async for line in stream.aiter_lines() if line.startswith("data: ")]


def test_a_plain_answer_and_a_stream_of_it_by_both_apis() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            answer = await door.ask()
            assert answer.json()["choices"][0]["message"]["content"] == "good day to you "
            assert answer.json()["model"] == "m"
            *said, last = await events(door)
            deltas = [each["choices"][0]["delta"] for each in map(json.loads, said)]
            assert "".join(each.get("content") or "" for each in deltas) == "good day to you "
            assert last == "[DONE]"
            whole = (await door.client.post("/v1/responses", json=RESPONSES)).json()
            assert whole["output"][0]["content"][0]["text"] == "good day to you "
            *_, last = await events(door, "/v1/responses", RESPONSES)
            assert json.loads(last)["type"] == "response.completed"

    play(body)


def test_what_is_said_is_sent_as_it_is_said() -> None:
    async def body() -> None:
        model = Scripted()
        model.held = anyio.Event()
        async with opened(model) as door, door.client.stream("POST", CHAT, json=ASKED | {"stream": True}) as stream:
            lines = stream.aiter_lines()
            async for line in lines:
                if "good" in line:
                    break
            model.held.set()
            assert [line async for line in lines][-2] == "data: [DONE]"

    play(body)


@pytest.mark.parametrize(
    ("error", "status", "code", "after"),
    [
        (ContextOverflow(9000, 4096), 400, "context_length_exceeded", None),
        (RequestError("temperature: too hot"), 400, None, None),
        (StoreFull(10, 5), 503, "overloaded", "1"),
        (Overloaded(5), 503, "overloaded", "1"),
        (EngineClosed(), 503, "shutting_down", "5"),
        (EngineFailed.of(RuntimeError(CANARY)), 500, "engine_failed", None),
        (CallFailed.of(RuntimeError(CANARY)), 500, "call_failed", None),
        (CallFailed.sampling(), 400, None, None),
        (CallFailed.constraint(CANARY), 400, None, None),
        (RuntimeError(CANARY), 500, "internal_error", None),
    ],
)
def test_errors_have_the_one_shape_plain_before_a_stream_and_in_its_midst(
    error: Exception, status: int, code: str | None, after: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        model = Scripted()
        model.fault = error
        async with opened(model) as door:
            for stream in (False, True):
                answer = await door.ask(stream=stream)
                assert (await door.error(status, answer))["code"] == code
                assert answer.headers.get("retry-after") == after
            model.late = True
            *_, last = await events(door)
            assert "good" not in last
            assert json.loads(last)["error"]["code"] == code
            assert CANARY not in last + answer.text
            told = f'agentcho_requests_total{{route="chat/completions",status="{status}"}} 3.0'
            assert told in (await door.client.get("/metrics")).text

    with caplog.at_level(logging.DEBUG):
        play(body)
    assert CANARY not in caplog.text


def test_a_path_or_a_method_that_is_not_there() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            await door.error(404, await door.client.get("/v1/models/"))
            for path in ("/", "/v1", "/v1/completions", "/s/a/b/c/v1/models"):
                told = await door.error(404, await door.client.get(path))
                assert told["code"] == "unknown_url"
                assert "offers POST /v1/chat/completions" in told["message"]
            for base in ("", "/s/talk"):
                told = await door.error(404, await door.client.post(f"{base}/v1/embeddings", json={}))
                assert told["message"].startswith("this server computes no embeddings;")
            answer = await door.client.get(CHAT)
            assert (await door.error(405, answer))["code"] == "method_not_allowed"
            assert answer.headers["allow"] == "POST"
            assert (await door.error(404, await door.ask(model="other")))["code"] == "model_not_found"

    play(body)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe{}",
        b'{"model": NaN}',
        b'{"model": "m", "messages": []}',
        b"[" * 100_000,
        b"1" * 5000,
    ],
)
def test_a_body_that_cannot_be_read(content: bytes) -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            await door.error(400, await door.client.post(CHAT, content=content))
            packed = {"content-encoding": "gzip"}
            await door.error(400, await door.client.post(CHAT, content=content, headers=packed))
            assert (await door.ask()).status_code == 200

    play(body)


def test_a_body_that_is_too_long_whether_it_says_so_or_not() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 1_000_000

    async def body() -> None:
        async with opened(Scripted()) as door:
            error = await door.error(413, await door.client.post(CHAT, content=b" " * 10_000_001))
            assert error["code"] == "request_too_large"
            await door.error(413, await door.client.post(CHAT, content=pieces()))
            most = json.dumps(ASKED | {"metadata": {"a": "a" * 9_990_000}}).encode()
            assert (await door.client.post(CHAT, content=most)).status_code == 200

    play(body)


def test_bodies_that_are_too_many_bytes_together_are_refused_until_the_others_are_read() -> None:
    async def body() -> None:
        async with opened(Scripted(), buffered_bytes=1000) as door:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900\r\n\r\n".encode()
            with door.raw(head + b" " * 899):
                while door.site.admission.buffered < 899:
                    await anyio.sleep(0.01)
                answer = await door.client.post(CHAT, content=b" " * 200)
                assert (await door.error(503, answer))["code"] == "overloaded"
                assert answer.headers["retry-after"] == "1"
            while door.site.admission.buffered:
                await anyio.sleep(0.01)
            assert (await door.ask()).status_code == 200

    play(body)


def test_a_text_of_millions_of_letters_is_refused_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        model, threads = Scripted(), set[int]()
        content = model.frames.framing.content

        def encode(text: str) -> list[int]:
            threads.add(threading.get_ident())
            return [0] * len(text)

        monkeypatch.setattr(type(content), "encode", lambda self, text: encode(text))
        async with opened(model) as door:
            long = [{"role": "user", "content": "a" * 2_000_000}]
            assert (await door.error(400, await door.ask(messages=long)))["code"] == "context_length_exceeded"
            assert (await door.error(400, await door.ask(messages=long, stream=True)))[
                "code"
            ] == "context_length_exceeded"
            assert not model.asked
            assert threads
            assert threading.get_ident() not in threads

    play(body)


def test_the_id_of_a_request_is_the_client_s_or_a_fresh_one() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            named = await door.client.get("/health", headers={"x-request-id": "mine-1"})
            assert named.headers["x-request-id"] == "mine-1"
            other = await door.client.get("/health", headers={"x-request-id": "a b" * 100})
            assert other.headers["x-request-id"].startswith("req_")
            assert (await door.ask()).headers["x-request-id"] != other.headers["x-request-id"]

    play(body)


def test_pages_and_models() -> None:
    async def body() -> None:
        async with opened(Scripted(), Scripted(name="m+mild")) as door:
            assert (await door.client.get("/health")).json() == {"status": "ok"}
            assert (await door.client.get("/version")).json()["name"] == "agentcho"
            ids = [each["id"] for each in (await door.client.get("/s/talk/v1/models")).json()["data"]]
            assert {"m", "m@enforce", "m+mild", "m+mild@baseline"} <= set(ids)
            assert (await door.client.get("/v1/models/m@audit")).json()["id"] == "m@audit"
            await door.error(404, await door.client.get("/v1/models/none"))

    play(body)


def test_the_metrics_count_routes_tokens_and_what_was_ignored_and_never_who() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            await door.ask(f"/s/{CANARY}{CHAT}", user="me", store=False)
            await door.client.get(f"/{CANARY}")
            text = (await door.client.get("/metrics")).text
            assert 'agentcho_requests_total{route="chat/completions",status="200"} 1.0' in text
            assert 'agentcho_requests_total{route="unknown",status="404"} 1.0' in text
            assert 'agentcho_tokens_total{kind="reused"} 3.0' in text
            assert 'agentcho_ignored_parameters_total{parameter="user"} 1.0' in text
            assert "agentcho_first_token_seconds_count 1.0" in text
            assert CANARY not in text

    play(body)


def test_with_keys_nobody_gets_in_without_one_but_to_health() -> None:
    async def body() -> None:
        async with opened(Scripted(), keys=[key("a"), key("b", metrics=True)]) as door:
            for path in ("/v1/models", "/version", "/metrics", "/s/talk", "/none", CHAT):
                answer = await door.client.get(path)
                assert (await door.error(401, answer))["type"] == "authentication_error"
                assert answer.headers["www-authenticate"] == "Bearer"
            await door.error(401, await door.ask(key="c"))
            await door.error(401, await door.client.get("/version", headers={"authorization": "Basic a"}))
            assert (await door.client.get("/health")).status_code == 200
            assert (await door.ask(key="a")).status_code == 200
            pages = [await door.client.get("/metrics", headers={"authorization": f"Bearer {who}"}) for who in "ab"]
            assert [page.status_code for page in pages] == [403, 200]
            await door.error(403, pages[0])

    play(body)


def test_without_keys_no_page_of_another_site_is_served() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            for headers in ({"host": "evil.example:80"}, {"origin": "http://evil.example"}, {"origin": "null"}):
                await door.error(403, await door.client.post(CHAT, json=ASKED, headers=headers))
            near = {"host": "localhost:1", "origin": "http://127.0.0.1:3000"}
            assert (await door.client.post(CHAT, json=ASKED, headers=near)).status_code == 200

    play(body)


PAGE, OTHER = "https://chat.example", "https://evil.example"
ALLOWED = "access-control-allow-origin"


@pytest.mark.parametrize("keys", [(), (key("a"),)])
def test_a_page_of_an_allowed_origin_asks_first_and_is_served(keys: tuple[ApiKey, ...]) -> None:
    async def body() -> None:
        async with opened(Scripted(), keys=keys, origins=[PAGE]) as door:
            asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
            first = await door.client.options(CHAT, headers={"origin": PAGE, **asks})
            assert (first.status_code, first.headers[ALLOWED]) == (200, PAGE)
            assert "authorization" in first.headers["access-control-allow-headers"]
            near = {"origin": PAGE, **asks, "access-control-request-private-network": "true"}
            assert (await door.client.options(CHAT, headers=near)).headers[
                "access-control-allow-private-network"
            ] == "true"
            sent = {"origin": PAGE, "authorization": "Bearer a"}
            answer = await door.client.post(CHAT, json=ASKED, headers=sent)
            assert (answer.status_code, answer.headers[ALLOWED]) == (200, PAGE)
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
            wrong = await door.client.post(CHAT, content=b"{", headers=sent)
            assert (wrong.status_code, wrong.headers[ALLOWED]) == (400, PAGE)
            other = await door.client.options(CHAT, headers={"origin": OTHER, **asks})
            assert ALLOWED not in other.headers
            refused = await door.client.post(CHAT, json=ASKED, headers={"origin": OTHER})
            await door.error(401 if keys else 403, refused)
            assert ALLOWED not in refused.headers
            if not keys:
                rebound = await door.client.post(CHAT, json=ASKED, headers=sent | {"host": "evil.example"})
                await door.error(403, rebound)

    play(body)


def test_no_page_is_allowed_unless_its_origin_is_given() -> None:
    async def body() -> None:
        async with opened(Scripted(), keys=[key("a")]) as door:
            asks = {"origin": PAGE, "access-control-request-method": "POST"}
            assert ALLOWED not in (await door.client.options(CHAT, headers=asks)).headers
            sent = {"origin": PAGE, "authorization": "Bearer a"}
            assert ALLOWED not in (await door.client.post(CHAT, json=ASKED, headers=sent)).headers

    play(body)


def test_society_and_agent_come_by_path_header_or_model_and_are_never_two() -> None:
    async def body() -> None:
        model = Scripted()
        async with opened(model) as door:
            headers = {b"x-agentcho-society": b"talk", b"x-agentcho-agent": "Jörg".encode()}
            await door.ask(f"/s/talk/bob{CHAT}")
            await door.client.post(CHAT, json=ASKED, headers=headers)
            await door.ask(model="m@audit#talk/bob")
            await door.ask()
            found = [(caller.society, caller.agent, caller.mode) for caller, _ in model.asked]
            assert found == [
                ("talk", "bob", None),
                ("talk", "Jörg", None),
                ("talk", "bob", "audit"),
                (None, None, None),
            ]
            two = await door.client.post(f"/s/other{CHAT}", json=ASKED, headers=headers)
            await door.error(400, two)
            wrong = await door.client.post(CHAT, json=ASKED, headers={b"x-agentcho-society": b"\xff"})
            await door.error(400, wrong)
            for path in ("/s/talk/%ff", "/s/talk/%fe"):  # undecodable names would all become the same agent
                assert "UTF-8" in (await door.error(400, await door.ask(f"{path}{CHAT}")))["message"]
            await door.error(400, await door.client.post(CHAT, json=ASKED, headers={"x-agentcho-agent": "bob"}))
            heard = {"x-agentcho-society": "talk", "x-agentcho-audience": "bob, carol"}
            await door.client.post(CHAT, json=ASKED, headers=heard)
            assert model.asked[-1][1].audience == ("bob", "carol")

    play(body)


@pytest.mark.parametrize("name", ["x-agentcho-society", "x-agentcho-agent", "x-agentcho-audience"])
def test_a_header_that_says_where_a_request_belongs_comes_once(name: str) -> None:
    """Otherwise a client could override the header that a proxy adds."""

    async def body() -> None:
        model = Scripted()
        async with opened(model) as door:
            headers = [("x-agentcho-society", "talk"), (name, "talk"), (name, "other")]
            first = int(name == "x-agentcho-society")
            error = await door.error(400, await door.client.post(CHAT, json=ASKED, headers=headers[first:]))
            assert error["message"] == f"header {name}: it is given twice; send it once"
            assert not model.asked

    play(body)


def test_two_keys_are_none() -> None:
    async def body() -> None:
        async with opened(Scripted(), keys=[key("a"), key("b", "blue")]) as door:
            headers = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
            error = await door.error(401, await door.client.get("/v1/models", headers=headers))
            assert error["code"] == "invalid_api_key"

    play(body)


def test_a_key_speaks_for_its_tenant_society_and_agent_alone() -> None:
    async def body() -> None:
        model = Scripted()
        keys = [key("a"), key("b", society="talk", agent="bob"), key("c", "blue"), key("d", agent="dora")]
        async with opened(model, keys=keys) as door:
            assert (await door.ask(key="b")).status_code == 200
            assert (await door.ask(key="d")).status_code == 200
            await door.error(404, await door.ask(f"/s/other{CHAT}", "b"))
            await door.error(403, await door.ask(f"/s/talk/carol{CHAT}", "b"))
            await door.error(403, await door.ask(f"/s/talk/bob{CHAT}", "a"))
            assert (await door.ask(f"/s/talk/bob{CHAT}", "c")).status_code == 200
            bob, dora, blue = [caller for caller, _ in model.asked]
            assert bob == Caller("red", "talk", "bob", None, keys[1].name, bound=True)
            assert dora == Caller("red", None, None, None, keys[3].name, bound=True)
            assert blue == Caller("blue", "talk", "bob", None, keys[2].name)

    play(body)


def test_the_key_of_one_agent_has_no_society_read_otherwise_for_all() -> None:
    async def body() -> None:
        model = Scripted()
        async with opened(model, keys=[key("a"), key("b", society="talk", agent="bob")]) as door:
            path = f"/s/talk/bob{CHAT}"
            refused = await door.ask(path, "b", model=f"{model.name}@audit")
            assert (await door.error(403, refused))["param"] == "model"
            assert (await door.ask(path, "b", model=f"{model.name}@enforce")).status_code == 200
            assert (await door.ask(f"/s/talk{CHAT}", "a", model=f"{model.name}@audit")).status_code == 200

    play(body)


def test_another_tenant_s_society_is_as_absent_as_one_that_is_not_there() -> None:
    async def body() -> None:
        model = Scripted()
        model.societies = {("red", "talk"): "enforce"}
        async with opened(model, keys=[key("a"), key("b", "blue"), key("e", agent="eve")]) as door:

            async def at(method: str, society: str, who: str) -> httpx.Response:
                return await door.client.request(method, f"/s/{society}", headers={"authorization": f"Bearer {who}"})

            for method in ("GET", "DELETE"):
                answers = [await at(method, "talk", "b"), await at(method, "none", "b"), await at(method, "none", "a")]
                assert len({each.text for each in answers}) == 1
                await door.error(404, answers[0])
            assert (await at("GET", "talk", "a")).json()["models"] == [{"society": "talk", "mode": "enforce"}]
            await door.error(403, await at("DELETE", "talk", "e"))
            assert (await at("DELETE", "talk", "a")).json()["deleted"] is True
            await door.error(404, await at("GET", "talk", "a"))

    play(body)


def test_a_society_of_several_models_ends_in_all_of_them_or_in_none() -> None:
    async def body() -> None:
        one, other = Scripted(), Scripted(name="m+mild")
        for model in (one, other):
            model.societies = {("", "talk"): "enforce"}
        async with opened(one, other) as door:
            other.busy = True
            await door.error(409, await door.client.delete("/s/talk"))
            assert len((await door.client.get("/s/talk")).json()["models"]) == 2
            other.busy = False
            assert (await door.client.delete("/s/talk")).json()["deleted"] is True
            await door.error(404, await door.client.get("/s/talk"))

    play(body)


def test_only_a_key_that_may_is_served_before_others() -> None:
    async def body() -> None:
        async with opened(Scripted(), keys=[key("a"), key("b", priority=True)]) as door:
            assert (await door.error(403, await door.ask(key="a", priority=-1)))["param"] == "priority"
            assert (await door.ask(key="a", priority=1)).status_code == 200
            assert (await door.ask(key="b", priority=-1)).status_code == 200

    play(body)


def test_a_full_server_refuses_at_once_and_health_is_never_refused() -> None:
    async def body() -> None:
        model = Scripted()
        model.held = anyio.Event()
        async with opened(
            model, requests=2, tenant_requests=1, keys=[key("a"), key("b", "blue"), key("c", "sea")]
        ) as door:
            async with anyio.create_task_group() as group:
                group.start_soon(door.ask, CHAT, "a")
                await model.begun.wait()
                many = await door.ask(key="a")
                assert (await door.error(429, many))["type"] == "rate_limit_error"
                assert many.headers["retry-after"] == "1"
                group.start_soon(door.ask, CHAT, "b")
                while len(model.asked) < 2:
                    await anyio.lowlevel.checkpoint()
                full = await door.ask(key="c")
                await door.error(503, full)
                assert full.headers["retry-after"] == "1"
                assert (await door.client.get("/health")).status_code == 200
                model.held.set()
            assert (await door.ask(key="c")).status_code == 200

    play(body)


def test_a_rate_is_refused_with_the_time_after_which_there_is_one_more() -> None:
    async def body() -> None:
        async with opened(Scripted(), keys=[key("a", requests_per_minute=1)]) as door:
            assert (await door.ask(key="a")).status_code == 200
            answer = await door.ask(key="a")
            await door.error(429, answer)
            assert 58 <= int(answer.headers["retry-after"]) <= 60

    play(body)


@pytest.mark.parametrize("stream", [False, True])
def test_who_goes_away_is_answered_no_more(stream: bool) -> None:
    async def body() -> None:
        model = Scripted()
        model.held = anyio.Event()
        async with opened(model) as door:
            content = json.dumps(ASKED | {"stream": stream}).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
            with door.raw(head.encode() + content):
                await model.begun.wait()
            while door.site.admission.running:
                await anyio.sleep(0)
            assert model.cancelled == 1
            assert 'status="499"' in (await door.client.get("/metrics")).text

    play(body)


def test_no_words_no_keys_and_no_societies_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with opened(Scripted(CANARY), keys=[key(CANARY)]) as door:
            asked = [{"role": "user", "content": CANARY}]
            assert (await door.ask(f"/s/{CANARY}{CHAT}", CANARY, messages=asked)).status_code == 200
            assert (await door.ask(f"/s/{CANARY}{CHAT}", CANARY, messages=[{"role": CANARY}])).status_code == 400

    with caplog.at_level(logging.DEBUG, "agentcho"):
        play(body)
    assert "chat/completions 200" in caplog.text
    assert CANARY not in caplog.text
