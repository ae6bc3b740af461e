"""Positional leaks: the positions of messages must not reveal what is hidden."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho.provenance.views import Act, After

from .transcripts import Talk


def felt(talk: Talk, reader: str = "bob") -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(edge.verdict, edge.secrets, edge.path) for edge in talk.edges(reader)]


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "start", "verdict"),
    [(0, 3, 6, "clean"), (1, 4, 7, "positional"), (0, 4, 7, "positional"), (0, 3, 7, "positional")],
)
def test_an_audience_encoding_must_be_compact(bos: bool, first: int, second: int, start: int, verdict: str) -> None:
    talk = Talk(bos=bos)
    one, two = talk.say("alice.0", "everyone"), talk.say("alice.1", "everyone")
    talk.say("alice.2", "everyone")
    shift = int(bos)
    gap = talk.also("alice.2", [(one, first + shift), (two, second + shift)], start=start + shift)
    talk.say("bob.0", "everyone", [gap])
    assert felt(talk) == [(verdict, (), ("alice.2",) if verdict == "positional" else ())]


def test_a_place_after_what_is_hidden_is_felt_by_those_it_is_hidden_from() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"])
    public = talk.say("alice.1", "everyone")
    placed = talk.say("alice.2", "everyone", [public], act=Act(None, (After("alice.0"), None)))
    talk.say("bob.0", "everyone", [placed])
    talk.say("alice.3", "everyone", [placed])
    assert felt(talk) == [("positional", ("alice.0",), ("alice.2", "alice.0"))]
    assert {verdict for verdict, _, _ in felt(talk, "alice")} == {"clean"}


def test_a_place_after_what_nobody_said_is_felt_by_all() -> None:
    talk = Talk()
    placed = talk.say("alice.0", "everyone", act=Act(None, (After("alice.9"),)))
    talk.say("bob.0", "everyone", [placed])
    assert felt(talk) == [("positional", ("alice.9",), ("alice.0", "alice.9"))]


PLACES: list[tuple[int, int, Act, dict[str, Any], str]] = [
    (4, 7, Act(), {}, "clean"),
    (9, 12, Act(), {}, "positional"),
    (9, 12, Act(None, (None, 9, None)), {}, "clean"),
    (9, 13, Act(None, (None, 9, None)), {}, "positional"),
    (9, 40, Act(None, (None, 9, 40)), {}, "clean"),
    (9, 12, Act(None, (None, 8, None)), {}, "positional"),
    (6, 9, Act(None, (None, After("alice.0", 2), None)), {}, "clean"),
    (7, 10, Act(None, (None, After("alice.0", 2), None)), {}, "positional"),
    (4, 5, Act(None, (None, None, After("alice.1", -2))), {}, "clean"),
    (0, 4, Act(None, (None, 0, "rightmost")), {}, "clean"),
    (0, 3, Act(None, (None, 0, "rightmost")), {}, "clean"),
    (0, 5, Act(None, (None, 0, "rightmost")), {}, "positional"),
    (9, 12, Act(None, (None, 9, "rightmost")), {}, "clean"),
    (4, 7, Act(None, (None, "rightmost", None)), {}, "clean"),
    (7, 10, Act(None, (None, "rightmost", None)), {}, "positional"),
    (4, 6, Act(None, (None, None, After("alice.1", -2))), {}, "positional"),
    (9, 12, Act(None, (None, 9)), {}, "positional"),
    (9, 12, Act(None, (None, 9, None)), {"parents": ("alice.1", "alice.0")}, "positional"),
    (9, 12, Act(), {"offsets": (None, 9)}, "clean"),
    (9, 20, Act(), {"offsets": (None, 9), "new_offset": 20}, "clean"),
    (9, 20, Act(), {"offsets": (None, 8), "new_offset": 20}, "positional"),
    (9, 12, Act(None, (None, None, 7)), {"offsets": (None, 9)}, "positional"),
]


@pytest.mark.parametrize(("second", "start", "act", "changes", "verdict"), PLACES)
def test_an_authors_positions_are_the_default_or_asked_for(
    second: int, start: int, act: Act, changes: dict[str, Any], verdict: str
) -> None:
    talk = Talk()
    one, two = talk.say("alice.0", "everyone"), talk.say("alice.1", "everyone")
    placed = talk.say("alice.2", "everyone", [one, (two, second)], start=start, act=act, **changes)
    talk.say("bob.0", "everyone", [placed])
    assert felt(talk) == [(verdict, (), ("alice.2",) if verdict == "positional" else ())]


def test_a_prompt_of_ones_own_asks_for_no_positions() -> None:
    talk = Talk()
    one = talk.say("alice.0", "everyone", recipe="baseline", caller="bob")
    act = Act(None, (9, None))
    talk.say("bob.0", "everyone", [(one, 9)], recipe="baseline", caller="bob", act=act)
    assert felt(talk) == [("positional", (), ("alice.0",))]


def test_a_call_feels_where_it_places_things_itself() -> None:
    talk = Talk()
    one, two = talk.say("alice.0", "everyone"), talk.say("alice.1", "everyone")
    talk.say("bob.0", "everyone", [one, (two, 30)])
    assert [verdict for verdict, _, _ in felt(talk)] == ["clean", "positional"]
    talk.say("carol.0", "everyone", [one, two], start=50)
    assert [verdict for verdict, _, _ in felt(talk, "carol")] == ["positional", "positional"]


def test_an_odd_position_is_felt_through_all_that_stands_on_it_unless_worse_is() -> None:
    talk = Talk()
    one = talk.say("alice.0", "everyone")
    odd = talk.say("alice.1", "everyone", [(one, 8)])
    over = talk.say("carol.0", "everyone", [odd])
    talk.say("bob.0", "everyone", [over])
    assert felt(talk) == [("positional", (), ("carol.0", "alice.1"))]
    secret = talk.say("alice.2", ["alice"])
    talk.say("dan.0", "everyone", [talk.say("alice.3", "everyone", [odd, secret])])
    assert felt(talk, "dan") == [("transitive", ("alice.2",), ("alice.3", "alice.2"))]


@pytest.mark.parametrize(
    ("second", "asked", "verdict"),
    [
        (4, (None, None, None), {"clean"}),
        (9, (None, 9, None), {"clean"}),
        (9, (None, None, None), {"positional"}),
        (9, (None, 8, None), {"positional"}),
        (7, (None, After("alice.0", 3), None), {"clean"}),
        (8, (None, After("dan.0", 4), None), {"positional"}),
    ],
)
def test_what_is_repaired_stands_where_a_call_of_its_reader_asked(
    second: int, asked: tuple[Any, ...], verdict: set[str]
) -> None:
    talk = Talk()
    talk.say("dan.0", ["dan"])
    one, two = talk.say("alice.0", "everyone"), talk.say("alice.1", "everyone")
    repaired = talk.also("alice.1", [one], "repaired", "bob", start=second)
    over: list[int | tuple[int, int]] = [one, (repaired, second)]
    talk.say("bob.0", "everyone", over, act=Act(None, asked))
    talk.say("bob.1", "everyone", [one, two])
    assert {found for found, _, _ in felt(talk) if found != "clean"} == verdict - {"clean"}
