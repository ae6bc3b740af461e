"""A tool may repeat its arguments: results that others read are words that could be anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

import agentcho
from agentcho import Agent, Game, RunConfig, View
from agentcho.errors import LeakageError
from agentcho.testing import Rehearsal, play
from tests.audit.test_words import audited

given: list[str] = []


@agentcho.tool(audience="nobody", results="everyone", trusted=True)
def echo(words: str) -> str:
    """Says it again."""
    given.append(words)
    return words


@agentcho.tool(effect=False, results="everyone", trusted=True)
def search(words: str) -> str:
    """The world learns of the words, and what it answers may everyone read."""
    given.append(words)
    return "It rains."


def talk(words: Any, tool: Any = echo, open_to: bool = False, **how: Any) -> Rehearsal:
    """Alice, who was told a word in private, calls a tool whose results are public."""
    given.clear()

    async def script(game: Game) -> None:
        alice, _ = game.cast(Agent, "alice"), game.cast(Agent, "bob")
        await game.announce("The word is xyzzy.", to=["alice"])
        await game.announce("What is the weather?")
        view = View.open_to(game.said, "everyone") if open_to else None
        await alice.say(to=(), view=view, tools=[tool], tool_choice=tool.name, max_calls=1, **how)

    lines = {"alice": [json.dumps({"name": tool.name, "arguments": {"words": "xyzzy"}}), "So be it."]}
    return play(script, lines, config=RunConfig(model="fake", words=words, max_tokens=64))


def test_a_call_over_a_secret_is_refused_where_others_read_its_result() -> None:
    with pytest.raises(LeakageError, match=r"a tool whose result others are to read.*scenario\.0") as refused:
        talk("refuse")
    assert not given, "it did not run"
    assert "xyzzy" not in str(refused.value)


def test_a_call_over_what_they_may_read_is_in_nobodys_way() -> None:
    report = audited(talk("refuse", search, open_to=True).entries)
    assert given == ["xyzzy"]
    assert report.words is not None
    assert (report.words.rows, report.words.unaccounted) == ((), 0)


@pytest.mark.parametrize(("words", "how", "counts"), [("track", {}, (1, 0)), ("refuse", {"release": True}, (0, 1))])
def test_what_may_be_told_so_has_no_bound_in_the_ledger(words: Any, how: Any, counts: tuple[int, int]) -> None:
    report = audited(talk(words, **how).entries, words)
    assert given == ["xyzzy"]
    assert report.words is not None
    told = {(row.owner, row.reader): (row.free, row.passed) for row in report.words.rows}
    assert told == {("alice", "bob"): counts, ("alice", "carol"): counts, ("alice", "everyone"): counts}
    assert not any(row.bounded for row in report.words.rows)


@pytest.mark.parametrize("charged", ["nothing", "words"])
def test_a_result_that_does_not_account_for_itself_is_never_0_bits(charged: str) -> None:
    entries = list(talk("track").entries)
    place = next(place for place, entry in enumerate(entries) if entry.act.call is not None)
    if charged == "nothing":
        entries[place] = entries[place]._replace(act=entries[place].act._replace(charge=None))
    report = audited(entries, "refuse")
    assert report.words is not None
    assert report.words.unaccounted == 1
    assert report.conclusion == "inconclusive"
