"""Verbs take `to` by name, and until 0.6 also by position, with a warning at the caller's line."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest

from agentcho import Agent, Game, Sampling
from agentcho.errors import AgentchoError, AudienceError, RequestError

from .stage import Play, Talker, game

OWN = {
    "think": ["prompt"],
    "say": [],
    "stream": [],
    "choose": ["choices", "prompt"],
    "ask": ["prompt", "choices"],
    "answer": ["model", "prompt"],
    "tell": ["text"],
    "release": ["message"],
}
"""What each verb takes by position."""


def test_all_verbs_take_by_position_what_they_are_about_and_the_prompt() -> None:
    for verb, names in OWN.items():
        parameters = inspect.signature(getattr(Agent, verb)).parameters.values()
        assert [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD] == ["self", *names], verb
    told = inspect.signature(Game.announce).parameters.values()
    assert [each.name for each in told if each.kind is each.POSITIONAL_OR_KEYWORD] == ["self", "text"]


async def by_position(game: Game, ann: Any) -> None:
    """Give all that verbs once took by position so."""
    host: Any = game
    await ann.say("ben", "Greet Ben.")
    await ann.choose(["a", "b"], "Which?", "ben", "I say ", ".")
    await ann.ask("Which?", ["a", "b"], "ben", "I say ", ".")
    await ann.release(await ann.think(), "ben")
    await ann.tell("Known.", "ben", "user")
    async with ann.stream("ben", "Again.") as pieces:
        [_ async for _ in pieces]
    await host.announce("To Ben.", "ben", "system")


async def named(game: Game, ann: Agent) -> None:
    """The same, by name."""
    await ann.say(to="ben", prompt="Greet Ben.")
    await ann.choose(["a", "b"], "Which?", to="ben", opening="I say ", closing=".")
    await ann.ask("Which?", ["a", "b"], to="ben", opening="I say ", closing=".")
    await ann.release(await ann.think(), to="ben")
    await ann.tell("Known.", to="ben", role="user")
    async with ann.stream(to="ben", prompt="Again.") as pieces:
        [_ async for _ in pieces]
    await game.announce("To Ben.", to="ben", role="system")


def test_arguments_by_position_mean_what_they_did_and_warn_at_the_line_of_the_call(play: Play) -> None:
    said = {}
    for way in (by_position, named):

        async def script(game: Game, way: Any = way) -> None:
            ann, _ = game.cast(Talker, "ann"), game.cast(Talker, "ben")
            await way(game, ann)

        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            entries, [over] = game(play, script)
        assert over.ended is None
        said[way] = [(e.message.id, e.message.text, e.message.audience, e.message.role) for e in entries]
        if way is named:
            assert not found
            continue
        assert {each.category for each in found} == {FutureWarning}
        first, last = by_position.__code__.co_firstlineno, by_position.__code__.co_firstlineno + 12
        assert [(each.filename, first < each.lineno < last) for each in found] == [(__file__, True)] * 7
        assert len({each.lineno for each in found}) == 7
        assert str(found[0].message) == (
            "Agent.say() takes `to` and `prompt` by name: give to=…, prompt=…. Positional values are accepted until "
            "agentcho 0.6"
        )
    assert said[by_position] == said[named]


def test_what_was_never_taken_is_refused_as_python_does(play: Play) -> None:
    async def script(game: Game) -> None:
        ann: Any = game.cast(Talker, "ann")
        with pytest.raises(TypeError, match="positional argument"):
            await ann.say("ann", "Hello", "header")
        with pytest.warns(FutureWarning), pytest.raises(TypeError, match="multiple values for keyword argument 'to'"):
            await ann.say("ann", to="ann")

    _, [over] = game(play, script)
    assert over.ended is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("who", "before"), [("ann", ()), ("host", ("Hi.",))])
def test_words_in_place_of_an_audience_are_refused_without_advice_on_audiences(
    play: Play, who: str, before: tuple[str, ...]
) -> None:
    async def script(game: Game) -> None:
        act: Any = game.cast(Talker, "ann").say if who == "ann" else game.announce
        for words in ("Say hello", "Hello!"):
            with pytest.raises(AudienceError, match="for the agent to answer as prompt=…"):
                await act(*before, words)

    _, [over] = game(play, script)
    assert over.ended is None


@pytest.mark.parametrize(
    ("verb", "args", "options", "told"),
    [
        ("say", (), {"max_token": 4}, "ann.say() takes no argument 'max_token'; did you mean 'max_tokens'?"),
        ("think", (), {"promt": "Think."}, "'promt'; did you mean 'prompt'?"),
        ("say", (), {"audience": "ann"}, "'audience'; give the audience as to=…"),
        ("tell", ("Hi.",), {"audience": "ann"}, "'audience'; give the audience as to=…"),
        ("release", ("Hi.",), {"zoo": 1}, "'zoo'; give message, to, view"),
        ("ask", ("Which?", ["a"]), {"zoo": 1}, "opening, closing, header, view, or options of Sampling"),
        ("choose", ("ab",), {}, "the choices must be a list, not a value of type str"),
        ("choose", (None,), {}, "the choices must be a list, not None"),
        ("release", ("x",), {}, "ann cannot release a value of type str; give one of the agent's own messages"),
        ("answer", (dict,), {}, "the model of an answer is the class dict; give a pydantic model class"),
    ],
)
def test_wrong_arguments_of_a_verb_are_told_with_the_right_ones(
    play: Play, verb: str, args: tuple[Any, ...], options: dict[str, Any], told: str
) -> None:
    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        with pytest.raises(AgentchoError, match=re.escape(told)):
            await getattr(ann, verb)(*args, **options)

    entries, [over] = game(play, script)
    assert (over.ended, entries) == (None, [])


def test_so_they_are_of_announce_and_of_stream(play: Play) -> None:
    async def script(game: Game) -> None:
        ann: Any = game.cast(Talker, "ann")
        host: Any = game
        with pytest.raises(
            TypeError, match=r"game\.announce\(\) takes no argument 'audience'; give the audience as to="
        ):
            await host.announce("Hi.", audience="ann")
        with pytest.raises(RequestError, match="'temperatur'; did you mean 'temperature'"):
            ann.stream(temperatur=1)

    _, [over] = game(play, script)
    assert over.ended is None


def test_options_of_sampling_that_do_not_exist_are_told_with_the_nearest() -> None:
    options: Any = {"temperatur": 1, "heat": 1}
    with pytest.raises(RequestError) as refused:
        Sampling(**options)
    assert str(refused.value) == (
        "temperatur: there is no such option; did you mean 'temperature'? heat: there is no such option; see Sampling "
        "for the options and their ranges"
    )
    with pytest.raises(RequestError, match=r"did you mean 'max_tokens'\? See Sampling"):
        Sampling(max_token=4)  # type: ignore[call-arg]
    with pytest.raises(RequestError, match=r"^stop must be a list, not a value of type str; see"):
        Sampling(stop="x")  # type: ignore[arg-type]
