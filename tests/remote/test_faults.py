"""Faults of servers: which are retried, which are errors at once, and what the errors say."""

from __future__ import annotations

import socket
import ssl
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import httpx2
import openai
import pytest

from agentcho import Sampling
from agentcho.errors import AgentchoError, AnswerInvalid, EndpointFailed
from agentcho.integrations.endpoints.wire import _failed
from agentcho.protocol.text_calls import PromptMessage, TextCall, TextReply, TokensSpent

from .faulty import USAGE, Answer, event, faulty, head, holds, piece, refuses, repeats, says, sends, told

# The client leaves its generators to the garbage collector, about which trio warns.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
SECRET = "swordfish"
CALL = TextCall((PromptMessage("user", "bob", f"The word is {SECRET}."),), sampling=Sampling(max_tokens=8))
LIMITED = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}
OVERFLOW = {"error": {"message": "too long", "code": "context_length_exceeded"}}


Run = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


def on(backend: str) -> Run:
    """Runs a coroutine function on an event loop; one that hangs fails."""

    async def guarded(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with anyio.fail_after(20):
            return await work()

    return lambda work: anyio.run(guarded, work, backend=backend)


run = on("asyncio")


@pytest.fixture(params=["asyncio", "trio"])
def both(request: pytest.FixtureRequest) -> Run:
    """Each of the two event loops."""
    return on(request.param)


async def asked(*answers: Answer, call: TextCall = CALL, **config: Any) -> tuple[TextReply, int]:
    """The reply to a call, and the number of requests it took."""
    async with faulty(*answers) as server, server.asked(**config) as port:
        return await port.ask(call), len(server.requests)


async def failed(*answers: Answer, call: TextCall = CALL, **config: Any) -> tuple[AgentchoError, int]:
    """The error of a call, and the number of requests it took."""
    async with faulty(*answers) as server, server.asked(**config) as port:
        with pytest.raises(AgentchoError) as found:
            await port.ask(call)
        return found.value, len(server.requests)


def test_an_answer_has_its_text_what_ended_it_and_what_it_took(both: Run) -> None:
    reply, requests = both(lambda: asked(says("good ", "day")))
    assert reply[:3] == ("good day", "stop", (7, None, 3, 1, None))
    assert 0 < reply.first <= reply.seconds
    assert requests == 1


@pytest.mark.parametrize(
    "fault",
    [
        refuses(429, LIMITED),
        refuses(429, LIMITED, retry_after="0"),
        refuses(500),
        refuses(503, {"detail": "loading"}),
        refuses(408),
        refuses(409),
        sends(),
        sends(head()),
        sends(head(), piece("go")),
        sends(head(), piece("go"), b"data: [DONE]\n\n"),
        sends(head(), b"data: {nonsense\n\n"),
        sends(head(), event({"error": {"message": "out of memory"}})),
        sends(head(), event({"error": "out of memory"})),
        sends(head(transfer_encoding="chunked"), b"5\r\ndata:\r\n"),
        sends(head(), piece("go", finish="abort")),
    ],
)
def test_what_may_pass_is_asked_again(fault: Answer) -> None:
    reply, requests = run(lambda: asked(fault, fault, says("good day")))
    assert (reply.text, reply.spent.requests, requests) == ("good day", 3, 3)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 301, 307])
def test_what_does_not_pass_is_asked_once(status: int) -> None:
    error, requests = run(lambda: failed(refuses(status, LIMITED, location="http://127.0.0.1:9/v1")))
    assert isinstance(error, EndpointFailed)
    assert (error.status, error.transient, requests) == (status, False, 1)


@pytest.mark.parametrize(
    "fault",
    [
        refuses(429, {"error": {"code": "insufficient_quota", "message": "pay"}}),
        refuses(500, OVERFLOW),
        sends(head(), event(OVERFLOW)),
        sends(head(), piece("no", finish="content_filter")),
        sends(head(), piece("no", delta={"refusal": "I may not"})),
        sends(head(), piece(finish="tool_calls")),
        sends(head(), piece(finish="no word, but words")),
        sends(head(), piece("one"), piece("two", index=1)),
        sends(head(), event({"choices": "none"})),
        sends(head(), event({"choices": [{"delta": {"content": 5}}]})),
        sends(head(), event([1, 2])),
        sends(head(content_encoding="gzip"), b"\x1f\x8b"),
        repeats(head(), piece("la" * 50)),
        repeats(head(), b"x" * 65536),
        repeats(head(), b"data: 1\n" * 8192),
        repeats(head(500), b"x\n\n" * 20000),
        refuses(429, LIMITED, retry_after="121"),
    ],
)
def test_what_no_waiting_mends_is_an_error_at_once(fault: Answer) -> None:
    error, requests = run(lambda: failed(fault))
    assert isinstance(error, EndpointFailed)
    assert requests == 1


def test_a_wait_that_is_too_long_says_so_and_that_it_will_pass() -> None:
    error, _ = run(lambda: failed(refuses(429, LIMITED, retry_after="121")))
    assert error.transient
    assert "121 seconds" in str(error)


def test_attempts_end(both: Run) -> None:
    error, requests = both(lambda: failed(refuses(500), retries=3))
    assert (error.transient, requests) == (True, 4)


def test_a_slow_first_byte_ends_after_the_timeout(both: Run) -> None:
    error, requests = both(lambda: failed(holds(), timeout=0.05, retries=1))
    assert (error.transient, requests) == (True, 2)
    assert "0.05 seconds" in str(error)


def test_a_stream_that_does_not_end_ends_after_the_timeout(both: Run) -> None:
    error, requests = both(lambda: failed(holds(head(), piece("go")), timeout=0.1, retries=0))
    assert (error.transient, requests) == (True, 1)


def test_a_stream_that_is_not_closed_after_its_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.integrations.endpoints.wire.LINGERING", 0.02)
    reply, requests = run(lambda: asked(holds(head(), piece("go"), piece(finish="stop"))))
    assert (reply.text, reply.stopped, reply.spent.completion, requests) == ("go", "stop", None, 1)


@pytest.mark.parametrize(
    "after",
    [
        event({"choices": None, "usage": USAGE}),
        event({"choices": 5}),
        event({"error": {"message": "overloaded"}}),
        b"data: {nonsense\n\n",
    ],
)
def test_nothing_that_comes_after_its_end_undoes_an_answer(after: bytes) -> None:
    reply, requests = run(lambda: asked(sends(head(), piece("go"), piece(finish="stop"), after, told())))
    assert (reply.text, reply.stopped, requests) == ("go", "stop", 1)
    assert reply.spent.completion == (None if b"error" in after or b"nonsense" in after else 3)


@pytest.mark.parametrize(
    ("cause", "told", "again"),
    [
        (ssl.SSLCertVerificationError("self-signed"), "certificate that is not trusted; set SSL_CERT_FILE", False),
        (socket.gaierror("no such name"), "its name has no address; check base_url", True),
        (httpx2.ProxyError("407"), "through the proxy; check HTTPS_PROXY", True),
        (OSError("refused"), "does not answer or broke the connection; check that it is running", True),
    ],
)
def test_what_stands_between_us_and_a_server_is_told(cause: Exception, told: str, again: bool) -> None:
    error = openai.APIConnectionError(request=httpx2.Request("POST", "https://h/v1"))
    error.__cause__ = httpx2.ConnectError("failed")
    error.__cause__.__context__ = cause
    found = _failed(error, [])
    assert told in found.what
    assert found.again is again


@pytest.mark.parametrize(
    ("param", "words"), [("stop", "[bad] stop: Unsupported parameter: … is not"), (SECRET, "[bad] Unsupported")]
)
def test_a_refusal_names_the_field_that_it_is_about_if_it_was_sent(param: str, words: str) -> None:
    body = {"error": {"message": "Unsupported parameter: 'stop' is not supported", "param": param, "code": "bad"}}
    call = TextCall(CALL.messages, sampling=Sampling(max_tokens=8, stop=("x",)))
    error, _ = run(lambda: failed(refuses(400, body), call=call))
    assert words in str(error)
    assert SECRET not in str(error)
    error, _ = run(lambda: failed(sends(head(), event(body)), call=call, retries=0))
    assert words in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize("options", [{"choices": ("yes", "no")}, {"json_schema": {"type": "integer"}}])
def test_a_thought_that_uses_up_the_limit_is_told_and_not_paid_for_again(options: dict[str, Any]) -> None:
    call = TextCall(CALL.messages, sampling=Sampling(max_tokens=8, **options))
    error, requests = run(lambda: failed(sends(head(), piece(finish="length"), told()), call=call))
    assert isinstance(error, AnswerInvalid)
    assert "used up max_tokens (8) before its answer began" in str(error)
    assert requests == 1


def test_an_empty_message_of_a_used_up_limit_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with faulty(sends(head(), piece(finish="length"), told())) as server, server.asked() as port:
            for _ in range(2):
                assert (await port.ask(CALL)).text == ""

    run(work)
    (line,) = caplog.messages
    assert "used up max_tokens (8) before its answer began" in line


def test_what_was_paid_for_no_answer_is_told() -> None:
    lost = list[TokensSpent]()
    call = TextCall(CALL.messages, sampling=Sampling(max_tokens=8, choices=("yes", "no")), on_spent=lost.append)
    run(lambda: failed(says("maybe"), call=call))
    assert lost == [TokensSpent(prompt=21, cached=None, completion=9, requests=3, cost=None)]
    run(lambda: asked(says("yes"), call=call))
    assert len(lost) == 1


def test_a_server_that_is_not_there_is_an_error_that_may_pass(both: Run) -> None:
    async def work() -> AgentchoError:
        async with faulty() as server:
            pass
        async with server.asked(retries=1) as port:
            with pytest.raises(EndpointFailed, match="does not answer") as found:
                await port.ask(CALL)
            return found.value

    assert both(work).transient


def test_nothing_is_asked_again_once_somebody_has_heard_of_it(both: Run) -> None:
    heard = list[str]()
    call = TextCall(CALL.messages, sampling=CALL.sampling, on_text=heard.append)
    error, requests = both(lambda: failed(sends(head(), piece("go"), piece("od")), says("good day"), call=call))
    assert (heard, requests, error.transient) == (["go", "od"], 1, True)


def test_an_error_of_who_hears_it_stays_what_it_is_and_closes_the_connection(both: Run) -> None:
    async def work() -> None:
        async with faulty(holds(head(), piece("go"))) as server, server.asked() as port:
            with pytest.raises(ZeroDivisionError):
                await port.ask(TextCall(CALL.messages, on_text=lambda text: print(1 / 0)))
            await server.gone.wait()

    both(work)


def test_a_call_that_is_cancelled_closes_its_connection(both: Run) -> None:
    async def work() -> None:
        async with faulty(holds(head(), piece("go"))) as server, server.asked() as port:
            async with anyio.create_task_group() as group:
                call = TextCall(CALL.messages, on_text=lambda text: group.cancel_scope.cancel())
                group.start_soon(port.ask, call)
            await server.gone.wait()

    both(work)


@pytest.mark.parametrize(
    "fault",
    [
        refuses(400, {"error": {"message": f"no template for The word is {SECRET}. Sorry", "code": "bad_template"}}),
        refuses(422, {"detail": [{"msg": "Extra", "input": SECRET}]}),
        refuses(400, {"message": f"I do not like '{SECRET}'", "code": "bad_template"}),
        refuses(401, {"error": {"message": f"Incorrect key k-123456: {SECRET}"}}),
        sends(head(), event({"error": {"message": f"failed at {SECRET} with k-123456", "code": "400"}})),
    ],
)
def test_no_error_tells_the_key_or_the_prompt(fault: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "k-123456")
    error, _ = run(lambda: failed(fault, key_env="FAR_KEY", retries=0))
    shown = "".join(traceback.format_exception(error))
    assert SECRET not in shown
    assert "k-123456" not in shown
    assert "http://127.0.0.1:" in str(error)


def test_an_error_cannot_move_a_terminal_or_fill_it() -> None:
    body = {"error": {"message": "one\x1b[31m two\r\n\u202ethree" + "!" * 9999, "code": "a\x1bb"}}
    error, _ = run(lambda: failed(refuses(400, body)))
    assert str(error).isprintable()
    assert "one [31m two three!" in str(error)
    assert len(str(error)) < 500


def test_an_error_tells_what_the_server_says() -> None:
    body = {"error": {"message": "This model's maximum is 4096 positions.", "code": "context_length_exceeded"}}
    error, _ = run(lambda: failed(refuses(400, body)))
    assert "context_length_exceeded" in str(error)
    assert "maximum is 4096 positions" in str(error)


@pytest.mark.parametrize("count", [None, -1, 10**400, 1 << 63, 1.5, "7", True])
def test_a_report_that_is_none_is_no_report(count: object) -> None:
    """A count that is invalid in a record would make the run's record unreadable."""
    usage = None if count is None else USAGE | {"prompt_tokens": count}
    reply, _ = run(lambda: asked(says("good day", usage=usage), tokens_per_minute=1000))
    assert reply.spent == (None, None, None, 1, None)


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        ({}, None),
        ({"price_in": 2.0, "price_out": 10.0}, (7 * 2 + 3 * 10) / 1e6),
        ({"price_in": 2.0, "price_cached": 0.5, "price_out": 10.0}, (3 * 2 + 4 * 0.5 + 3 * 10) / 1e6),
    ],
)
def test_a_call_has_a_price(prices: dict[str, Any], cost: float | None) -> None:
    usage = USAGE | {"prompt_tokens_details": {"cached_tokens": 4}}
    reply, _ = run(lambda: asked(says("good day", usage=usage), **prices))
    assert reply.spent[:4] == (7, 4, 3, 1)
    assert reply.spent.cost == (cost if cost is None else pytest.approx(cost))


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a_thought_is_told_from_the_text(field: str) -> None:
    thoughts = (event({"choices": [{"index": 0, "delta": {field: text}}]}) for text in ("so ", "it is"))
    answer = sends(head(), *thoughts, piece("Yes."), piece(finish="stop"), told())
    reply, _ = anyio.run(asked, answer)
    assert (reply.thought, reply.text) == ("so it is", "Yes.")


def test_what_broken_answers_took_counts_too() -> None:
    reply, _ = run(lambda: asked(sends(head(), piece("go"), told()), says("good day")))
    assert reply.spent[:4] == (14, None, 6, 2)
