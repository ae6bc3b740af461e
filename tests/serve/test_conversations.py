"""What `previous_response_id` continues, for whom, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho.serve.api import responses
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Caller, QuotedMessage
from agentcho.serve.web.conversations import ResponseStore

from .bodies import LIMITS, of_responses, refused
from .door import Scripted, opened, play

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
    kept = ResponseStore(2, 30, 60, lambda: now[0])
    for id in ("r1", "r2"):
        kept.keep(ANN, id, SAID)
    kept.get(ANN, "r1")
    kept.keep(ANN, "r3", (QuotedMessage("user", "x"),))
    absent(kept, ANN, "r2")
    assert kept.get(ANN, "r1") == SAID
    kept.keep(ANN, "r4", (QuotedMessage("user", "x" * 25),))
    absent(kept, ANN, "r1")
    now[0] = 60.0
    absent(kept, ANN, "r4")
    kept.keep(ANN, "r5", (QuotedMessage("user", "x" * 31),))
    absent(kept, ANN, "r5")


def test_a_server_that_keeps_nothing_says_so() -> None:
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
