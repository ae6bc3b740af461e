"""Which part of a growing text is shown: never a header or a stop string, and in the end everything else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcho.integrations.endpoints.text import Growing

LETTERS = st.text("ab: ", max_size=12)


def grown(pieces: list[str], header: str = "", stops: tuple[str, ...] = ()) -> tuple[list[str], Growing]:
    growing = Growing(header, stops)
    shown = [growing.add(piece) for piece in pieces]
    return [*shown, growing.end()], growing


@settings(max_examples=50)
@given(
    st.lists(LETTERS, max_size=6),
    st.sampled_from(["", "a", "a:", "ab: ", " b"]),
    st.lists(LETTERS.filter(len), max_size=3),
)
def test_how_a_text_comes_in_pieces_changes_nothing(pieces: list[str], header: str, stops: list[str]) -> None:
    shown, growing = grown(pieces, header, tuple(stops))
    whole, alone = grown(["".join(pieces)], header, tuple(stops))
    assert "".join(shown) == growing.text == "".join(whole)
    assert growing.cut == alone.cut
    assert not any(stop in growing.text for stop in stops)


@settings(max_examples=50)
@given(st.lists(LETTERS, max_size=6))
def test_a_text_that_nothing_can_end_is_shown_at_once(pieces: list[str]) -> None:
    shown, _ = grown(pieces)
    assert shown == [*pieces, ""]


@pytest.mark.parametrize(
    ("said", "header", "text"),
    [
        ("To Bob: hi", "To Bob: ", "hi"),
        (" To Bob:hi", "To Bob: ", "hi"),
        ("To Bob: hi", "To Bob:", " hi"),
        ("To Bob", "To Bob: ", "To Bob"),
        ("To Bob: ", "To Bob: ", ""),
        ("hi", "To Bob: ", "hi"),
        ("November", "No", "November"),
        ("No. No", "No", ". No"),
        ("I To Bob: hi", "To Bob: ", "I To Bob: hi"),
    ],
)
def test_a_header_that_is_repeated_is_left_out_once(said: str, header: str, text: str) -> None:
    assert grown(list(said), header)[1].text == grown([said], header)[1].text == text


def test_a_stop_string_ends_a_text_before_it() -> None:
    shown, growing = grown(["one", " END", " END two"], stops=(" END two", "END"))
    assert (shown, growing.text, growing.cut) == (["one", " ", "", ""], "one ", True)


def test_a_stop_string_is_kept_where_it_is_asked_for() -> None:
    growing = Growing("", (" END two", "END"), kept=True)
    assert [growing.add(piece) for piece in ("one", " END", " END two")] == ["one", " END", ""]
    assert (growing.end(), growing.text, growing.cut) == ("", "one END", True)


def test_characters_in_halves_become_whole_or_are_marked() -> None:
    assert grown(["\ud83d", "\ude00!"])[0] == ["", "\U0001f600!", ""]
    assert grown(["a\ud83d"])[1].text == "a\ufffd"
    assert grown(["\ude00b"])[1].text == "\ufffdb"
