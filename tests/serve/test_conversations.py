"""What `previous_response_id` continues, for whom, and for how long."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest
from openai.types.responses import Response
from openai.types.responses.response_item_list import ResponseItemList

from agentcho.serve.api import items, responses
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Caller, QuotedMessage, ToolCall
from agentcho.serve.web import conversations
from agentcho.serve.web.conversations import EACH, ResponseStore, _owner

from .bodies import LIMITS, of_responses, refused
from .door import Door, Scripted, opened, play

ANN = Caller("lab", "talk", "ann", None, "k1")
OTHERS = {
    "tenant": ANN._replace(tenant="other"),
    "key": ANN._replace(key="k2"),
    "society": ANN._replace(society="walk"),
    "agent": ANN._replace(agent="bob"),
}
SAID = (QuotedMessage("user", "hello"), QuotedMessage("assistant", "good day"))


def absent(kept: ResponseStore, caller: Caller, id: str) -> str:
    with pytest.raises(ApiError) as caught:
        kept.get(caller, id)
    assert (caught.value.status, caught.value.param) == (404, "previous_response_id")
    return caught.value.message


@pytest.mark.parametrize("differs", OTHERS)
def test_somebody_elses_response_is_as_absent_as_one_that_is_not_there(differs: str) -> None:
    kept = ResponseStore(9, 999, 60)
    kept.keep(ANN, "r1", SAID)
    assert kept.get(ANN, "r1") == SAID
    assert absent(kept, OTHERS[differs], "r1") == absent(kept, ANN, "r9")


def test_what_is_kept_is_bounded_in_number_size_and_time() -> None:
    now = [0.0]
    kept = ResponseStore(2, 30 + 4 * EACH, 60, lambda: now[0])
    for id in ("r1", "r2"):
        kept.keep(ANN, id, SAID)
    kept.get(ANN, "r1")
    kept.keep(ANN, "r3", (QuotedMessage("user", "x"),))
    absent(kept, ANN, "r2")
    assert kept.get(ANN, "r1") == SAID
    kept.keep(ANN, "r4", (QuotedMessage("user", "x" * (25 + EACH)),))
    absent(kept, ANN, "r1")
    now[0] = 60.0
    absent(kept, ANN, "r4")
    kept.keep(ANN, "r5", (QuotedMessage("user", "x" * (31 + 3 * EACH)),))
    absent(kept, ANN, "r5")


def test_names_ids_and_messages_without_a_text_count_too() -> None:
    kept = ResponseStore(9, 3 * EACH, 60)
    kept.keep(ANN, "r1", 2 * (QuotedMessage("user", "", "x" * EACH),))
    absent(kept, ANN, "r1")
    kept.keep(ANN, "r2", 3 * (QuotedMessage("user", ""),))
    assert len(kept.get(ANN, "r2")) == 3
    kept.keep(ANN, "r3", (QuotedMessage("assistant", "", calls=3 * (ToolCall("f", "{}", "c"),)),))
    absent(kept, ANN, "r3")


CALLS = tuple(ToolCall("f", f'{{"n": {number}}}', f"call_a1_{number}") for number in range(2))
ANSWER = QuotedMessage("assistant", "Let me see.", id="a1", calls=CALLS)


def reference(id: str) -> QuotedMessage:
    return QuotedMessage("assistant", "", id=id, refers=True)


@pytest.mark.parametrize(
    ("items", "answer"),
    [
        (("msg_a1", "fc_a1_0", "fc_a1_1"), ANSWER),
        (("msg_a1",), ANSWER._replace(calls=())),
        (("fc_a1_1",), ANSWER._replace(text="", calls=CALLS[1:])),
    ],
)
def test_a_reference_stands_for_the_answer_or_the_part_of_it_that_it_names(
    items: tuple[str, ...], answer: QuotedMessage
) -> None:
    kept = ResponseStore(9, 9999, 60)
    kept.keep(ANN, "r1", (QuotedMessage("user", "hello"), ANSWER))
    given = [QuotedMessage("user", "hello"), *map(reference, items), QuotedMessage("tool", "3", call_id="call_a1_0")]
    assert kept.resolved(ANN, given) == [given[0], answer, given[-1]]


def test_references_are_found_without_a_look_at_each_stored_response(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, now, clocked = list[Caller](), 0.0, list[float]()

    def owner(caller: Caller) -> tuple[str, str, str, str]:
        looks.append(caller)
        return _owner(caller)

    def clock() -> float:
        clocked.append(now)
        return now

    monkeypatch.setattr(conversations, "_owner", owner)
    kept = ResponseStore(100, 999_999, 60, clock)
    for number in range(100):
        kept.keep(ANN, f"r{number}", (*SAID, QuotedMessage("assistant", str(number), id=f"a{number}")))
    looks.clear()
    clocked.clear()
    found = kept.resolved(ANN, [reference(f"msg_a{number}") for number in range(100)])
    assert [message.text for message in found] == [str(number) for number in range(100)]
    assert (len(looks), len(clocked)) == (1, 1)
    now = 60.0
    with pytest.raises(ApiError, match="there is no item"):
        kept.resolved(ANN, [reference("msg_a5")])


def test_a_reference_counts_as_a_use_of_its_response() -> None:
    kept = ResponseStore(2, 9999, 60)
    for number in range(2):
        kept.keep(ANN, f"r{number}", (QuotedMessage("assistant", str(number), id=f"a{number}"),))
    kept.resolved(ANN, [reference("msg_a0")])
    kept.keep(ANN, "r2", SAID)
    assert kept.get(ANN, "r0")
    absent(kept, ANN, "r1")


@pytest.mark.parametrize("differs", OTHERS)
def test_what_is_not_there_or_is_somebody_elses_is_not_referred_to(differs: str) -> None:
    kept = ResponseStore(9, 9999, 60)
    kept.keep(ANN, "r1", (QuotedMessage("user", "hello"), ANSWER))
    for caller, item in ((OTHERS[differs], "msg_a1"), (ANN, "msg_a2"), (ANN, "fc_a1_2"), (ANN, "a1")):
        with pytest.raises(ApiError, match="there is no item") as caught:
            kept.resolved(caller, [reference(item)])
        assert (caught.value.status, caught.value.param) == (404, "input")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_sends_references_to_what_the_server_stores(stream: bool) -> None:
    """As Vercel's AI SDK does by default."""
    model = Scripted()

    async def body() -> None:
        async with opened(model) as door:

            async def asked(status: int, input: Any, **more: Any) -> str:
                told = {"model": "m", "instructions": "Be brief.", "stream": stream, "input": input} | more
                answer = await door.client.post("/v1/responses", json=told)
                assert answer.status_code == status, answer.text
                return answer.text

            first = await asked(200, "hello")
            id = first[first.index("msg_") :].split('"')[0]
            said = [{"role": "user", "content": "hello"}, {"type": "item_reference", "id": "rs_1"}]
            said += [{"type": "item_reference", "id": id}, {"role": "user", "content": "and then?"}]
            await asked(200, said)
            quoted = model.asked[-1][1].messages
            assert [message.text for message in quoted] == ["Be brief.", "hello", "good day to you ", "and then?"]
            assert quoted[2].id == model.asked[0][1].ids[0]
            assert "msg_none" in await asked(404, [{"type": "item_reference", "id": "msg_none"}])
            unkept = await asked(200, "hello", store=False)
            await asked(404, [{"type": "item_reference", "id": unkept[unkept.index("msg_") :].split('"')[0]}])

    play(body)


def test_a_server_that_keeps_nothing_says_so() -> None:
    item = [{"type": "item_reference", "id": "msg_1"}]
    assert "stores no items" in refused("input", LIMITS._replace(conversations=0), responses, input=item).message
    off = LIMITS._replace(conversations=0)
    assert "conversations=0" in refused("previous_response_id", off, responses, previous_response_id="resp_1").message
    assert of_responses(off)[2].echo["store"] is False
    assert of_responses(store=False)[2].echo["store"] is False
    assert of_responses()[2].echo["store"] is True
    assert of_responses(previous_response_id="resp_1")[2].echo["previous_response_id"] == "resp_1"


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_goes_on_with_another(stream: bool) -> None:
    model, path = Scripted(), "/s/talk/ann/v1/responses"
    ann = {"model": "m", "instructions": "You are Ann.", "stream": stream}

    async def body() -> None:
        async with opened(model) as door:

            async def asked(status: int = 200, at: str = path, **more: Any) -> str:
                answer = await door.client.post(at, json=ann | more)
                assert answer.status_code == status, answer.text
                return answer.text

            first = await asked(input="hello")
            id = first[first.index("resp_") :].split('"')[0]
            assert '"store":true' in first.replace(" ", "")
            await asked(input="and then?", previous_response_id=id)
            texts = [message.text for message in model.asked[-1][1].messages]
            assert texts == ["You are Ann.", "hello", "good day to you ", "and then?"]
            assert model.asked[-1][1].messages[2].id == model.asked[0][1].ids[0]
            await asked(404, at="/s/talk/bob/v1/responses", input="and then?", previous_response_id=id)
            unkept = await asked(input="hello", store=False)
            await asked(404, input="more", previous_response_id=unkept[unkept.index("resp_") :].split('"')[0])

    play(body)


AT = "/s/talk/ann/v1/responses"


async def made(door: Door, input: Any = "hello", **more: Any) -> dict[str, Any]:
    """A response to Ann that is stored."""
    answer = await door.client.post(AT, json={"model": "m", "input": input} | more)
    found: dict[str, Any] = answer.json()
    return found


def test_a_stored_response_is_shown_and_deleted() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            whole = await made(door, instructions="Be brief.")
            at = f"{AT}/{whole['id']}"
            shown = (await door.client.get(at)).json()
            assert Response.model_validate(shown).output_text == "good day to you "
            assert shown | {"completed_at": 0} == whole | {"completed_at": 0}
            assert (await door.error(400, await door.client.get(f"{at}?stream=true")))["param"] == "stream"
            gone = await door.client.delete(at)
            assert gone.json() == {"id": whole["id"], "object": "response", "deleted": True}
            for method, path in (("GET", at), ("DELETE", at), ("GET", f"{at}/input_items")):
                assert (await door.error(404, await door.client.request(method, path)))["code"] == "response_not_found"
            continued = {"model": "m", "input": "more", "previous_response_id": whole["id"]}
            assert (await door.client.post(AT, json=continued)).status_code == 404

    play(body)


def test_a_request_for_a_stored_response_counts_for_the_limits() -> None:
    async def body() -> None:
        model = Scripted()
        async with opened(model, requests=1) as door, anyio.create_task_group() as group:
            at = f"{AT}/{(await made(door))['id']}"
            model.held, model.begun = anyio.Event(), anyio.Event()
            group.start_soon(made, door)
            await model.begun.wait()
            for method, path in (("GET", at), ("GET", f"{at}/input_items"), ("DELETE", at)):
                assert (await door.error(503, await door.client.request(method, path)))["code"] == "overloaded"
            model.held.set()

    play(body)


def test_a_society_that_ends_takes_its_stored_responses_with_it() -> None:
    async def body() -> None:
        model = Scripted()
        async with opened(model) as door:
            model.societies["", "talk"] = model.societies["", "walk"] = "enforce"
            other = "/s/walk/ann/v1/responses"
            ended = (await made(door))["id"]
            kept = (await door.client.post(other, json={"model": "m", "input": "hello"})).json()["id"]
            assert (await door.client.delete("/s/talk")).status_code == 200
            await door.error(404, await door.client.get(f"{AT}/{ended}"))
            assert (await door.client.get(f"{other}/{kept}")).status_code == 200
            del model.societies["", "walk"]
            assert (await door.client.delete("/s/walk")).status_code == 200, "its responses outlive it"
            await door.error(404, await door.client.delete("/s/walk"))

    play(body)


def test_a_stored_response_is_shown_to_nobody_else() -> None:
    async def body() -> None:
        async with opened(Scripted()) as door:
            id = (await made(door))["id"]
            for base in ("", "/s/talk", "/s/talk/bob", "/s/walk/ann"):
                for method, more in (("GET", ""), ("GET", "/input_items"), ("DELETE", "")):
                    await door.error(404, await door.client.request(method, f"{base}/v1/responses/{id}{more}"))
            named = {"x-agentcho-society": "talk", "x-agentcho-agent": "ann"}
            assert (await door.client.get(f"/v1/responses/{id}", headers=named)).status_code == 200

    play(body)


@pytest.mark.parametrize("differs", OTHERS)
def test_somebody_elses_response_cannot_be_shown_or_deleted(differs: str) -> None:
    kept = ResponseStore(9, 999, 60)
    kept.keep(ANN, "r1", SAID, "{}")
    for forbidden in (kept.shown, kept.delete):
        with pytest.raises(ApiError, match="there is no such response"):
            forbidden(OTHERS[differs], "r1")
    assert kept.shown(ANN, "r1").shown == "{}"
    kept.delete(ANN, "r1")
    absent(kept, ANN, "r1")


def test_what_is_shown_counts_as_kept() -> None:
    kept = ResponseStore(9, 30 + 2 * EACH, 60)
    kept.keep(ANN, "r1", SAID, "x" * 17)
    kept.keep(ANN, "r2", SAID, "x" * 18)
    absent(kept, ANN, "r1")
    absent(kept, ANN, "r2")


def test_an_answer_that_was_sent_again_has_an_id_of_its_own_in_lists() -> None:
    answer = QuotedMessage("assistant", "Hi", id="a", calls=(ToolCall("look", "{}", "call_a_0"),))
    listed = [item["id"] for item in items.written([answer, QuotedMessage("user", "x"), answer], "r")]
    assert listed == ["msg_a", "fc_a_0", "in_r_1", "in_r_2", "in_r_2_0"]


def test_the_input_of_a_stored_response_is_listed() -> None:
    call = {"type": "function_call", "call_id": "call_a_0", "name": "look", "arguments": "{}"}
    given = [{"role": "user", "content": "hello"}, call]
    given += [{"type": "function_call_output", "call_id": "call_a_0", "output": "tin"}]

    async def body() -> None:
        async with opened(Scripted()) as door:
            first = await made(door, given, instructions="Be brief.")
            second = await made(door, "and then?", previous_response_id=first["id"])

            async def listed(status: int = 200, **asked: Any) -> httpx.Response:
                answer = await door.client.get(f"{AT}/{second['id']}/input_items", params=asked)
                assert answer.status_code == status, answer.text
                return answer

            found = ResponseItemList.model_validate((await listed(order="asc")).json())
            types = ["message", "function_call", "function_call_output", "message", "message"]
            assert [each.type for each in found.data] == types
            assert found.data[1].id == "fc_a_0"
            assert found.data[3].id == first["output"][0]["id"]
            assert (found.has_more, found.first_id, found.last_id) == (False, found.data[0].id, found.data[-1].id)
            ids = [each.id for each in found.data]
            newest = (await listed(limit=2)).json()
            assert ([each["id"] for each in newest["data"]], newest["has_more"]) == ([ids[4], ids[3]], True)
            rest = (await listed(after=newest["last_id"])).json()
            assert ([each["id"] for each in rest["data"]], rest["has_more"]) == (ids[2::-1], False)
            assert (await listed(after=ids[0])).json()["data"] == []
            for wrong in ({"order": "up"}, {"limit": 0}, {"limit": "x"}, {"after": "x"}):
                assert (await listed(400, **wrong)).json()["error"]["param"] == next(iter(wrong))

    play(body)
