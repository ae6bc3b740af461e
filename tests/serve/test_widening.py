"""The audiences of messages in a prompt: private user messages, and a history that an agent declares as shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcho import RunConfig
from agentcho.serve.request import Answers, ServedMode, Sharing
from agentcho.serve.sharing.served import ServedModel, Serving
from agentcho.testing import FakeEngine
from tests.serve import door
from tests.serve.door import CHAT, Scripted, opened
from tests.serve.stage import agent, assistant, conclusion, play, saved, served, system, user

ANN, BEN, CAL = agent("ann"), agent("ben"), agent("cal")
BRIEF = "you are ann and you may pay thirty at most for the boat"
HISTORY = [user("agree on a price"), assistant("ten for all of it"), assistant("never less than twenty", "ben")]


PRIVATE = [("shared", None, 0), ("private", None, 1), ("shared", "private", 1), ("private", "shared", 0)]


def spared(answers: Answers) -> int:
    return answers.usage.exact + answers.usage.reused


def missed(answers: Answers) -> dict[str, int]:
    return dict(answers.usage.missed)


@pytest.mark.parametrize(
    ("server", "asked", "private"),
    [("shared", None, 0), ("private", None, 1), ("shared", "private", 1), ("private", "shared", 0)],
)
def test_user_messages_are_private_where_the_server_or_the_request_says_so(
    server: Sharing, asked: Sharing | None, private: int, tmp_path: Path
) -> None:
    async def body() -> None:
        async with served(tmp_path, user_messages=server) as at:
            how = {"user_messages": asked, "max_tokens": 2}
            await at.ask(user(BRIEF), who=ANN, **how)
            right = await at.ask(system("ben"), user(BRIEF), who=BEN, **how)
            wrong = await at.ask(system("cal"), user(BRIEF.replace("thirty", "forty")), who=CAL, **how)
            assert (spared(right) == spared(wrong)) == bool(private)
            own = await at.ask(system("as always"), user(BRIEF), who=ANN, **how)
            assert spared(own) >= len(BRIEF.split())

    play(body)
    assert conclusion(tmp_path) == "clean"
    brought = [e.message for e in saved(tmp_path).games()[0] if e.message.text == BRIEF]
    expected = [("ann", ["ann"]), ("ben", ["ben"])] if private else [(None, "everyone")]
    assert [(each.author, each.audience.to_json()) for each in brought] == expected


def test_answers_that_come_back_as_private_user_messages_are_shared_all_the_same(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, user_messages="private") as at:
            said = (await at.ask(user("go"), who=ANN, max_tokens=12)).answers[0].text
            heard = await at.ask(system("ben"), user(said), who=BEN, max_tokens=2)
            assert spared(heard) >= len(said.split())

    play(body)
    assert conclusion(tmp_path) == "clean"


@pytest.mark.parametrize("history", ["private", "shared"])
def test_a_history_that_no_model_said_here_is_shared_where_it_is_declared(history: Sharing, tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            await at.ask(*HISTORY, who=ANN, max_tokens=2, history=history)
            quoted = (HISTORY[0], user("ten for all of it"), HISTORY[2])
            ben = await at.ask(*quoted, who=BEN, max_tokens=2)
            assert ("not_said_here" in missed(ben)) == (history == "private")
            assert ("first_sent" in missed(ben)) == (history == "private")

    play(body)
    assert conclusion(tmp_path) == "clean"
    audiences = {
        e.message.audience.to_json() == "everyone"
        for e in saved(tmp_path).games()[0]
        if e.message.text == "ten for all of it"
    }
    assert (False in audiences) == (history == "private")


def test_an_agent_declares_what_it_brings_itself_and_finds_nothing_of_others_by_it(tmp_path: Path) -> None:
    """Ben's private history stays private: for an agent that declares the same words they are encoded anew."""

    async def body() -> None:
        async with served(tmp_path) as at:
            await at.ask(*HISTORY, who=BEN, max_tokens=2)
            guess = await at.ask(*HISTORY, who=ANN, max_tokens=2, history="shared")
            expected = {"not_said_here": sum(len(m.text.split()) for m in HISTORY[1:]) + 9}
            assert missed(guess) == expected
            cal = await at.ask(*HISTORY, who=CAL, max_tokens=2)
            assert not missed(cal)

    play(body)
    assert conclusion(tmp_path) == "clean"


@pytest.mark.parametrize("mode", ["enforce", "baseline"])
def test_what_an_agent_brought_in_private_it_can_declare_later_and_a_private_answer_it_cannot(
    mode: ServedMode, tmp_path: Path
) -> None:
    whisper = "the key lies under the mat by the door"

    async def body() -> None:
        async with served(tmp_path, FakeEngine(reply=lambda call, prompt: whisper), mode=mode) as at:
            await at.ask(*HISTORY, who=ANN, max_tokens=2)
            await at.ask(user("go"), who=ANN, audience=("ann",))
            await at.ask(*HISTORY, assistant(whisper), who=ANN, max_tokens=2, history="shared")
            told = await at.ask(*HISTORY, who=BEN, max_tokens=2)
            assert not missed(told)
            hidden = await at.ask(user(whisper), who=BEN, max_tokens=2)
            assert spared(hidden) == 0

    play(body)
    assert conclusion(tmp_path) == "clean"
    said = [entry.message for entry in saved(tmp_path).games()[0] if entry.message.text == whisper]
    assert [m.audience.to_json() for m in said if m.role == "assistant"] == [["ann"]]


@pytest.mark.parametrize("field", ["history", "user_messages"])
def test_a_body_or_a_header_says_whose_messages_are(field: str) -> None:
    async def body() -> None:
        model = Scripted()
        async with opened(model) as at:
            header = f"x-agentcho-{field.replace('_', '-')}"
            asked = door.ASKED | {"agentcho": {field: "private"}}
            assert (await at.client.post(CHAT, json=asked)).status_code == 200
            assert getattr(model.asked[-1][1], field) == "private"
            assert (await at.client.post(CHAT, json=door.ASKED, headers={header: "shared"})).status_code == 200
            assert getattr(model.asked[-1][1], field) == "shared"
            wrong = await at.error(400, await at.client.post(CHAT, json=door.ASKED, headers={header: "mine"}))
            assert header in wrong["message"]
            wrong = await at.error(400, await at.ask(agentcho={field: "mine"}))
            assert wrong["param"] == f"agentcho.{field}"

    door.play(body)


def test_usage_metrics_and_the_society_s_page_say_what_was_new_and_why() -> None:
    async def body() -> None:
        model = ServedModel("m", FakeEngine(), RunConfig(model="fake"), Serving())
        async with model.serving(), opened(model) as at:
            asked: dict[str, Any] = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "hello"}]}
            asked["messages"].append({"role": "assistant", "content": "nobody said this here"})
            first = (await at.client.post(f"/s/town/ann{CHAT}", json=asked)).json()["usage"]["prompt_tokens_details"]
            again = (await at.client.post(f"/s/town/ann{CHAT}", json=asked)).json()["usage"]["prompt_tokens_details"]
            told = {"unmatched_first_sent_tokens": 5, "unmatched_not_said_here_tokens": 8}
            assert {name: count for name, count in first.items() if name.startswith("unmatched")} == told
            assert not any(name.startswith("unmatched") for name in again)
            counts = (await at.client.get("/metrics")).text
            assert 'agentcho_unmatched_tokens_total{reason="not_said_here"} 8.0' in counts
            page = (await at.client.get("/s/town")).json()["models"][0]
            assert page["unmatched_tokens"] == {"first_sent": 5, "not_said_here": 8}

    door.play(body)


def test_one_agent_is_told_of_its_own_prompts_alone(tmp_path: Path) -> None:
    async def body() -> None:
        async with served() as at:
            await at.ask(system("you are ann"), who=ANN, max_tokens=2)
            await at.ask(*HISTORY, who=BEN, max_tokens=2)
            told = {"ann": {"first_sent"}, "ben": {"first_sent", "not_said_here"}, "cal": set[str]()}
            for name, reasons in told.items():
                info = at.model.society_info(agent(name))
                assert info is not None
                assert set(info["unmatched_tokens"]) == reasons

    play(body)
