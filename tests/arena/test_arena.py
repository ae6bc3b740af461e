"""Games run by an environment: audiences, repeated messages, endings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentcho import Agent, Audience
from agentcho.errors import ConfigError, ScenarioError
from agentcho.games.runs import library
from agentcho.integrations.textarena.environment import MoveResult, Observation
from agentcho.message import EVERYONE, audience
from agentcho.testing.rehearsal import Rehearsal

from .stage import CARDS, Cards, Hanging, Silent, arena, joined, played

WORDS = {"player-0": ["north"], "player-1": ["east"]}


def texts(rehearsal: Rehearsal, audience: Audience = EVERYONE) -> list[str]:
    found = [entry.message for entry in rehearsal.entries if entry.message.audience == audience]
    return [message.header + message.text for message in found]


def private(*names: str) -> Audience:
    return Audience(frozenset(names))


def test_what_each_is_told_only_it_may_read_and_a_move_that_is_passed_on_is_a_release() -> None:
    game = played(arena(Cards), replies=WORDS)
    assert joined(game) == ["player-0", "player-1"]
    assert texts(game, private("player-0")) == [
        "You are Player 0. Say a word.",
        f"You hold {CARDS[0]}.",
        "[Player 0] north",
    ]
    assert texts(game, private("player-1")) == [
        "You are Player 1. Say a word.",
        f"You hold {CARDS[1]}.",
        "[Player 1] east",
    ]
    assert [each for each in texts(game) if "praised" not in each] == ["[Player 0] north", "[Player 1] east"]
    released = [e.message for e in game.entries if e.message.author and e.message.kind == "prefill"]
    assert [(m.author, m.audience) for m in released] == [("player-0", EVERYONE), ("player-1", EVERYONE)]


def test_rewards_are_the_scores() -> None:
    over = played(arena(Cards), replies=WORDS).over
    assert over.score == {"player-0": 1.0, "player-1": -1.0, "player-0 invalid": 0.0, "player-1 invalid": 0.0}
    assert over.outcome is not None
    assert over.outcome["moves"] == 2


class Equal(Cards):
    """Deals all players the same card."""

    def __init__(self) -> None:
        super().__init__(cards=(CARDS[0], CARDS[0], CARDS[0]))

    def rules(self, player: int) -> Observation:
        return Observation(-1, player, "PROMPT", "Say a word.")


def test_equal_secrets_stay_apart() -> None:
    game = played(arena(Equal), replies=WORDS)
    dealt = [entry for entry in game.entries if CARDS[0] in entry.message.text]
    assert [entry.message.audience for entry in dealt] == [private("player-0"), private("player-1")]
    made = [
        record for entry in game.entries for record in entry.made if record.message in {e.message.id for e in dealt}
    ]
    assert len({record.id for record in made}) == len(made) == 2


class Routed(Cards):
    """Passes a word on in every possible way."""

    def told(self, player: int, text: str) -> list[Observation]:
        other = 1 - player
        return [
            Observation(player, player, "PLAYER_ACTION", text),
            Observation(player, other, "PLAYER_ACTION", f" {text}\n"),
            Observation(player, -1, "PLAYER_ACTION", f"{text}, or so"),
            Observation(player, other, "GAME_ACTION_DESCRIPTION", f"Player {player} takes {text}."),
            Observation(other, -1, "PLAYER_ACTION", f"as Player {other} once said"),
            Observation(other, -1, "PLAYER_ACTION", text),
            Observation(-1, other, "GAME_MESSAGE", "  "),
        ]


def test_words_go_to_whom_the_environment_sends_them_and_nobody_is_told_its_own_twice() -> None:
    game = played(arena(Routed), replies=WORDS)
    first = [e.message for e in game.entries if e.message.id.startswith("player-0")]
    both = private("player-0", "player-1")
    assert [(m.kind, m.audience, m.header + m.text) for m in first] == [
        ("decode", private("player-0"), "[Player 0] north"),
        ("prefill", both, "[Player 0] north"),
        ("prefill", EVERYONE, "[Player 0] north, or so"),
    ]
    voice = [e.message for e in game.entries if e.message.author is None]
    assert texts_to(voice, "player-1")[2:] == ["Player 0 takes north."]
    open_to_all = [m.text for m in voice if m.audience == EVERYONE]
    assert open_to_all == ["as Player 1 once said", "north", "as Player 0 once said", "east"]
    assert not any(m.text.isspace() for m in voice)


def texts_to(messages: Sequence[Any], agent: str) -> list[str]:
    return [m.text for m in messages if m.audience == private(agent)]


class Listing(Cards):
    """Lists three moves, refuses the first, and then reports only the refusal."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def card(self, player: int) -> Observation:
        return Observation(-1, player, "GAME_BOARD", "Valid moves: [a], [b], [c]")

    def step(self, text: str) -> MoveResult:
        self.asked.append(text)
        return super().step("bad" if self.asked == [text] else text)


def test_of_listed_moves_one_is_chosen_and_after_a_refusal_one_of_the_others() -> None:
    made = Listing()
    game = played(arena(lambda: made if made._next == 0 and not made.asked else Listing()))
    first = [e for e in game.entries if e.message.id.startswith("player-0") and e.message.kind == "decode"]
    assert next(e.act.choices for e in first) == ("[a]", "[b]", "[c]")
    assert set(first[1].act.choices) == {"[a]", "[b]", "[c]"} - {first[0].message.text}
    assert first[1].message.text in first[1].act.choices


class Open(Agent):
    """Speaks to everyone, and leaves its moves to the arena."""

    audience = "everyone"


def test_moves_are_private_whatever_the_audience_of_the_player_is() -> None:
    game = played(arena(Listing), Open)
    assert game.over.ended is None
    chosen = [entry for entry in game.entries if entry.act.choices]
    assert chosen
    assert all(entry.message.audience == audience(entry.message.author or "") for entry in chosen)
    assert not any(entry.act.unaddressed for entry in chosen)


def test_a_move_that_is_not_allowed_is_handled_by_the_environment_and_the_player_is_told_in_private() -> None:
    game = played(arena(Cards), replies={"player-0": ["bad", "north"], "player-1": ["east"]})
    assert "That is not allowed. Once more." in texts(game, private("player-0"))
    assert "[Player 0] bad" not in texts(game)
    assert game.over.score["player-0"] == 1.0


def test_a_game_that_is_cut_off_has_no_rewards() -> None:
    over = played(arena(Cards, moves=1), replies=WORDS).over
    assert over.score == {}
    assert over.outcome is not None
    assert over.outcome["rewards"] is None


class Strings(Cards):
    def rewards(self) -> Any:
        return {0: "won", 1: "lost"}


class Nothing(Cards):
    def rewards(self) -> Any:
        return None


class Written(Cards):
    def rewards(self) -> Any:
        return {0: "0.5", 1: 2}


def test_rewards_that_are_no_numbers_are_an_error_and_none_are_no_score() -> None:
    with pytest.raises(ScenarioError, match=r"textarena:here gave rewards that are not numbers by player \(str\)"):
        played(arena(Strings), replies=WORDS)
    assert played(arena(Nothing), replies=WORDS).over.score == {}
    assert played(arena(Written), replies=WORDS).over.score["player-0"] == 0.5


def test_a_step_that_does_not_come_back_ends_the_game_with_an_error() -> None:
    with pytest.raises(ScenarioError, match=r"textarena:here: its step did not come back within 0.3 s"):
        played(arena(Hanging, seconds=0.3), replies=WORDS)
    assert Hanging.ended.wait(5)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"players": 4},
            "does not allow 4 players: ValueError: from 2 to 3 players. It allows 2, 3; give --set players=2",
        ),
        ({"agents": "a,b,c,d"}, "does not allow 4 players"),
        ({"agents": "a,b", "players": 3}, "2 agents for 3 players; give one agent for all players, or one per player"),
        ({"agents": "a,,b"}, "agents is 'a,,b'; give names separated by commas"),
        ({"rounds": 2}, "there is no option 'rounds'.* Its options: agents"),
    ],
)
def test_what_cannot_be_played_is_told_before_anything_is(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        arena(Cards, **options)


def test_as_few_play_as_may_be_or_as_many_as_are_named() -> None:
    assert arena(Cards).count == 2
    assert arena(Cards, players=3).count == arena(Cards, agents="a,b,c").count == 3
    assert arena(Cards, agents="a, b").casts() == ("a", "b")


class Loud(Agent):
    async def move(self, label: str, moves: Sequence[str]) -> None:
        await self.say(to="everyone")


class Mute(Agent):
    async def move(self, label: str, moves: Sequence[str]) -> None:
        pass


def test_a_move_is_said_and_to_nobody() -> None:
    with pytest.raises(ScenarioError, match=r"player-0 \(Loud\) said its move to everyone; say it to nobody"):
        played(arena(Cards), Loud)
    with pytest.raises(ScenarioError, match=r"player-0 \(Mute\) said nothing in its turn"):
        played(arena(Cards), Mute)


def test_an_agent_that_knows_no_moves_says_its_own_in_private() -> None:
    game = played(arena(Cards), Agent, WORDS)
    assert "[Player 0] north" in texts(game, private("player-0"))
    assert next(e.act.choices for e in played(arena(Listing), Agent).entries if e.message.kind == "decode")


def test_the_player_thinks_in_private_and_reads_its_move_once() -> None:
    player = library.agent("player")
    game = played(arena(Cards), player, {"player-0": ["I think.", "north"], "player-1": ["Hm.", "east"]})
    assert [m.text for m in game.said("player-0")] == ["I think.", "north"]
    assert "[Player 0] north" in texts(game)
    later = [e.message for e in game.entries if e.message.author == "player-1" and e.message.kind == "decode"]
    assert "player-0.3" in later[0].parents
    assert not {"player-0.1", "player-0.2"} & set(later[0].parents)


def test_silent_is_what_it_says() -> None:
    assert [m.text for m in played(arena(Cards), Silent, WORDS).said()] == ["north", "east"]
