"""The record of a server's society as a page, complete or as one agent may read it."""

from __future__ import annotations

from pathlib import Path

from agentcho.viewer.page_content import target

from ..serve.stage import agent, play, saved, served, system, user
from .pages import blocks, page_of

ANN, BOB = agent("ann"), agent("bob")
CANARY = "the canary sings at nine"


def test_a_society_of_a_server_is_a_page_and_each_sees_its_own(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            one = await at.ask(system(CANARY), user("shall we build a bridge"), who=ANN, max_tokens=8)
            said = user(one.answers[0].text, "ann")
            await at.ask(system("you are bob"), user("shall we build a bridge"), said, who=BOB, max_tokens=8)

    play(body)
    run = saved(tmp_path)
    assert [each.path for each in target(str(run.path), tmp_path)] == [run.path]
    whole = page_of(run)
    talk = blocks(whole)["talk-0"]
    assert {"ann", "bob"} <= {each["name"] for each in talk["agents"]}
    assert talk["costs"][-1]["calls"] == 2
    assert all(sum(each["prompt"]) > 0 for each in talk["messages"] if "prompt" in each)
    assert CANARY in whole
    assert CANARY in page_of(run, "ann")
    assert CANARY not in page_of(run, "bob")
