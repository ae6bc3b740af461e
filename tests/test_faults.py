"""The line of user code to which an error is attributed: the deepest one, whatever surrounds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import agentcho
from agentcho import Agent, Game, Scenario, View
from agentcho.errors import AgentchoError, AudienceError
from agentcho.games.play.game_faults import GameFault, fault, told
from agentcho.message import Metadata
from agentcho.protocol.call import Decode
from agentcho.testing import FakeEngine, play

HERE = "tests/test_faults.py"


class Blind(Agent):
    """An agent whose view fails inside a call from the library."""

    def view(self, readable: Sequence[Metadata]) -> View:
        raise KeyError("view")


async def deep(game: Game) -> None:
    """A helper that speaks."""
    await game.cast(Blind, name="blind").say()


def of(error: BaseException) -> GameFault:
    return fault(error)


def caught(call: Any) -> BaseException:
    with pytest.raises(BaseException) as info:  # noqa: PT011
        call()
    return info.value


def line(text: str) -> str:
    """ "file:line" of the only line here that contains a text, not counting calls of this function."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [n for n, each in enumerate(lines, start=1) if text in each and "line(" not in each]
    return f"{HERE}:{number}"


async def _talk(game: Game) -> None:
    await deep(game)


async def _round(game: Game) -> None:
    await game.together(deep(game))


def test_the_deepest_line_of_the_users_code_is_named() -> None:
    for talk in (_talk, _round):
        found = of(caught(lambda talk=talk: play(talk)))
        assert (found.where, found.error) == (line('KeyError("view")'), "KeyError: 'view'")


def test_an_error_of_ours_is_named_by_the_line_that_asked() -> None:
    async def stray(game: Game) -> None:
        await game.cast(Agent, name="ann").say(to="nobody there")

    error = caught(lambda: play(stray))
    assert isinstance(error, AudienceError)
    assert of(error).where == line('name="ann").say(to="nobody there")')
    assert told(error, of(error)).startswith("error: AudienceError: no agent named")


def test_libraries_and_made_up_code_are_passed_over() -> None:
    bad = lambda: json.loads("{")  # noqa: E731
    assert of(caught(bad)).where == line('json.loads("{")  # noqa')
    names: dict[str, Any] = {}
    exec(compile("def f(): raise ValueError('x')", "<string>", "exec"), names)
    outer = lambda: names["f"]()  # noqa: E731
    assert of(caught(outer)).where == line('names["f"]()  # noqa')
    assert of(ValueError("never raised")).where is None


def test_a_helper_module_beside_a_scenario_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helpers.py").write_text("\n\ndef help(): return {}['k']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    import helpers  # type: ignore[import-not-found]

    assert of(caught(helpers.help)).where == "helpers.py:3"
    monkeypatch.setattr("agentcho.games.play.game_faults.INSTALLED", frozenset({tmp_path.name}))
    assert fault(caught(helpers.help), package="helpers").where == "helpers.py:3"


def test_groups_tell_of_their_first_and_of_how_many() -> None:
    def raise_it() -> None:
        raise KeyError("first of all")

    first = caught(raise_it)
    assert isinstance(first, Exception)
    nested = ExceptionGroup("a", [ExceptionGroup("b", [first]), TypeError("c"), TypeError("d")])
    found = of(nested)
    assert (found.error, found.where) == ("KeyError: 'first of all' (and 2 more)", line('KeyError("first of all")'))
    assert "TypeError: d" in found.traceback


def test_the_words_of_foreign_errors_stay_out_of_what_is_told() -> None:
    error = ValueError("hunter2")
    assert told(error, of(error)) == "error: ValueError"


def test_an_error_of_any_shape_is_told() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("mute")

    deep_: Exception = Mute()
    for _ in range(5000):
        deep_ = ExceptionGroup("in", [deep_])
    found = of(deep_)
    assert found.error == "Mute: (its message cannot be shown: KeyError)"
    assert found.traceback
    found = of(OSError(2, "No such file", "caf\udce9"))
    assert "caf\\udce9" in found.what
    (found.what + found.traceback).encode()


THOUGHT = "meet me at the old mill at nine, and bring the red book with you"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            f"no agent named '{THOUGHT[:58]}…: an audience is 'everyone'",
            "no agent named '……: an audience is 'everyone'",
        ),
        (f"bob's view names '{THOUGHT}', which has not been said", "bob's view names '…', which has not been said"),
        (f"no agent named \"{THOUGHT}\"; give one of 'ann'", "no agent named \"…\"; give one of 'ann'"),
        ("no agent named 'mill'; give one of 'ann', 'old'", "no agent named '…'; give one of 'ann', 'old'"),
        (f"b'{THOUGHT}' cannot name an agent", "b'…' cannot name an agent"),
        ("the cast's names are 'ann' and 'bob'", "the cast's names are 'ann' and 'bob'"),
    ],
)
def test_quoted_pieces_of_private_words_are_left_out_of_what_is_told(text: str, shown: str) -> None:
    error = AgentchoError(text)
    assert told(error, of(error), [THOUGHT, "ann"], ["ann", "old"]) == f"error: AgentchoError: {shown}"


def test_an_error_that_quotes_what_was_said_in_private_is_told_without_it(tmp_path: Path) -> None:
    class Misled(Scenario):
        """Passes the words of a thought where a name belongs."""

        name = "misled"

        async def play(self, game: Game) -> Scenario.Outcome:
            ann, _ = game.cast(Agent, name="ann"), game.cast(Agent, name="bob")
            if game.index:
                await ann.say(to="bop")
            thought = await ann.think("Whom?", max_tokens=8)
            await ann.say(to=thought.text)
            return self.Outcome()

    def reply(call: Decode, prompt: str) -> str:
        return "the cellar 'door'\nis bob"

    agentcho.run(Misled(), engine=FakeEngine(reply, answer=reply), games=2, out=tmp_path, display="none")
    (outcomes,) = tmp_path.glob("*/outcomes.jsonl")
    ended = {over["game"]: over["ended"] for over in map(json.loads, outcomes.read_text().splitlines())}
    assert ended[0].startswith('error: AudienceError: no agent named "…"')
    assert ended[1].startswith("error: AudienceError: no agent named 'bop'")
