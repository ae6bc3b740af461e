"""The terminal display of a run: complete, safe, with private words set apart."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agentcho.config import RunConfig
from agentcho.display import Kind, heading, screen
from agentcho.display.live import LiveTalk
from agentcho.display.safe import visible
from agentcho.display.screen import summary
from agentcho.display.speech import MessageView, Palette, rich
from agentcho.display.speech import plain as plain_speech
from agentcho.display.text_table import TextTable, plain, table
from agentcho.display.totals import costs, outcomes, second_encodings, share
from agentcho.events import Began, Ended, Event, GameOver, Joined, Token
from agentcho.games.runs.runtime import RunResult
from agentcho.message import EVERYONE, Audience
from agentcho.protocol.call import Receipt
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.transcript import MessageUsage, TranscriptEntry
from tests.said import message as said

ALONE = Audience(frozenset({"ada"}))


def entry(number: int, text: str, audience: Audience = EVERYONE, **changes: Any) -> TranscriptEntry:
    """A message decoded by ada: five tokens, three of them sampled, in half a second."""
    fields: dict[str, Any] = {"kind": "decode", "role": "assistant", "author": "ada", "sampled": (1, 4)} | changes
    message = said(
        id=f"ada.{number}", game=0, audience=audience, parents=(), header="To Ben: ", text=text,
        tokens=(1, 2, 3, 4, 5), content=(1, 4), **fields,
    )  # fmt: skip
    record = EncodingRecord(number, message.id, "ada", "author", Receipt((), 0, False), frozenset({message.id}))
    return TranscriptEntry(message, number, (record,), (), MessageUsage(5, 7, 0.1, 0.5))


def shown(*events: Event, kind: Kind = "rich", games: int = 1, terminal: bool = True) -> str:
    """Everything that a display writes for these events."""

    class File(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    file = File()
    with screen(kind, "the title", games, file) as display:
        for event in events:
            display.hear(event)
    display.close(RunResult(tuple(display.games.values()), 9, False, {}, None))
    return file.getvalue()


def test_control_characters_become_visible() -> None:
    text = "a\x1b[31mb\x07\r\n\tc\x7f\x9b1m\u202eevil\u2028\ud800[bold]"
    assert visible(text) == "a␛[31mb␇␍\n\tc␡\\x9b1m\\u202eevil\\u2028\\ud800[bold]"


@given(st.text())
def test_nothing_shown_can_control_a_terminal(text: str) -> None:
    safe = visible(text)
    assert not [char for char in safe if char not in "\n\t" and (char < " " or "\x7f" <= char < "\xa0")]
    assert visible(safe) == safe
    safe.encode()


def test_the_time_of_a_run_is_told_though_no_game_is_over() -> None:
    assert "2.5 s, 34 engine steps" in summary(RunResult((), 34, True, {}, None, 2.5))


@pytest.mark.parametrize("kind", ["rich", "plain"])
def test_words_are_never_markup(kind: Kind) -> None:
    said = entry(0, "[bold]x[/bold] [/] :smile: \x1b[2J")
    out = shown(Joined(0, "ada", "r"), Ended(said), kind=kind)
    assert "[bold]x[/bold] [/] :smile: ␛[2J" in out
    assert "\x1b[2J" not in out


@pytest.mark.parametrize(
    ("changes", "heading_"),
    [
        ({"audience": EVERYONE}, "ada → everyone"),
        ({"audience": ALONE}, "ada (private)"),
        ({"audience": Audience(frozenset({"ada", "ben"}))}, "ada (private) → ben"),
        ({"audience": Audience(frozenset({"ada", "ben", "cy"}))}, "ada (private) → ben, cy"),
        (
            {"author": None, "audience": Audience(frozenset({"ben"})), "kind": "prefill", "role": "user"},
            "scenario (private user) → ben",
        ),
        ({"audience": ALONE, "kind": "prefill", "role": "system"}, "ada (private system)"),
        ({"author": None, "kind": "prefill", "role": "user"}, "scenario (user) → everyone"),
    ],
)
def test_a_heading_says_who_speaks_to_whom(changes: dict[str, Any], heading_: str) -> None:
    audience = changes.pop("audience", EVERYONE)
    assert MessageView.of(entry(0, "Hi.", audience, **changes)).heading == heading_


def test_private_words_are_dim_and_behind_a_bar() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=20, color_system="truecolor", _environ={})
    speech = MessageView.of(entry(0, "one two three four five", ALONE))
    console.print(rich(speech, Palette()))
    lines = [line for line in console.file.getvalue().splitlines()[1:] if "┊" in line]  # type: ignore[attr-defined]
    assert len(lines) == 3, "the bar stands before every wrapped line"
    assert all("\x1b[2" in line for line in lines)


@pytest.mark.parametrize(
    ("changes", "hushed"),
    [
        ({}, False),
        ({"audience": ALONE}, True),
        ({"audience": Audience(frozenset({"ada", "ben"}))}, True),
        ({"author": None, "kind": "prefill", "role": "user"}, False),
        ({"kind": "prefill", "role": "system"}, False),
        ({"author": None, "kind": "prefill", "audience": Audience(frozenset({"ben"}))}, True),
    ],
)
def test_what_is_dim_and_barred_is_what_not_everyone_may_read(changes: dict[str, Any], hushed: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system="truecolor", _environ={})
    console.print(rich(MessageView.of(entry(0, "one", changes.pop("audience", EVERYONE), **changes)), Palette()))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("┊" in shown, "\x1b[2" in shown) == (hushed, hushed)


def test_plain_is_whole_and_indents_later_lines() -> None:
    long = "word " * 200
    out = shown(Ended(entry(0, f"{long}\nend")), kind="plain")
    assert f"ada → everyone: To Ben: {long}\n    end\n" in out
    assert "\x1b" not in out
    assert plain_speech(MessageView.of(entry(0, "x")._replace(direct=("ben.1",)))).endswith(
        "[reads what is not for it: ben.1]"
    )


def test_words_stream_before_they_are_finished() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    with LiveTalk("the title", console) as display:
        display.hear(Began(0, "ada.0", "ada", "decode", EVERYONE, "To Ben: "))
        for piece in ("Hel", "lo"):
            display.hear(Token(0, "ada.0", piece))
        display.hear(Token(0, "ada.9", "of a message that nobody began"))
        display.refresh()
        assert "To Ben: Hello▌" in console.file.getvalue()  # type: ignore[attr-defined]
        display.hear(Ended(entry(0, "Hello.")))
        after = console.file.getvalue().split("Hello▌")[-1]  # type: ignore[attr-defined]
    assert "To Ben: Hello." in after
    assert "▌" not in after


def test_kinds_follow_the_terminal() -> None:
    said = Ended(entry(0, "Hello"))
    assert "\x1b" in shown(said, kind="rich")
    assert shown(said, kind="none") == ""
    for kind in (None, "plain"):
        assert "\x1b" not in shown(said, kind=kind, terminal=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["rich", "plain"])
def test_many_games_end_in_counts_and_means(kind: Kind) -> None:
    overs = [GameOver(i, {"ada": "YES" if i else "NO", "left": None}, {"ada": float(i)}, None, 1.0) for i in range(4)]
    early = GameOver(4, None, {}, "limit: the game reached 5 tokens", 1.0)
    out = shown(Ended(entry(0, "SILENT")), *overs, early, kind=kind, games=5)
    rows = {tuple(line.split()[:3]) for line in out.splitlines()}
    assert {("ada", "YES", "3"), ("ada", "NO", "1"), ("ada", "1.50", "±1.27")} <= rows
    assert "limit: the game reached 5 tokens" in out
    assert "SILENT" not in out


def test_scores_of_0_and_1_have_the_interval_of_a_share_and_equal_ones_none() -> None:
    games = [GameOver(number, {}, {"right": 1.0, "points": 2.5}, None, 1.0) for number in range(3)]
    assert outcomes(games)[-1].rows == (
        ("right", "1.00", "0.44 to 1.00 as a share", "1", "1"),
        ("points", "2.50", "-", "2.5", "2.5"),
    )


def test_one_game_ended_early_says_why() -> None:
    (sheet,) = outcomes([GameOver(0, None, {}, "limit: ada reached 3 messages", 1.0)])
    assert "ended early  limit: ada reached 3 messages" in plain(sheet)


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_scores_that_are_not_finite_are_shown(odd: float) -> None:
    games = [GameOver(number, {}, {"ratio": score}, None, 1.0) for number, score in enumerate((odd, 1.0, -odd))]
    sheet = outcomes(games)[-1]
    assert sheet.rows[0][:3] == ("ratio", "nan", "-")


def test_costs_count_every_encoding_once() -> None:
    known = entry(0, "rules", ALONE, kind="prefill", role="system", sampled=None)
    known = known._replace(usage=known.usage._replace(encoded=0))
    spoken = entry(1, "Hi")
    both = spoken._replace(made=(*known.made, *spoken.made), usage=MessageUsage(8, 7, 0.2, 1.0))
    twin = entry(2, "Ho")._replace(made=both.made, usage=MessageUsage(3, 12, 0.2, 1.0))
    assert [row[2] for row in costs([known, both, twin]).rows] == ["11"]
    assert costs([known, both]).rows == (("ada", "2", "8", "7", "200 ms", "3"),)


def test_second_encodings_are_counted_by_who_requested_them() -> None:
    first, other, last = entry(0, "one two"), entry(1, "three"), entry(2, "four")

    def second(of: TranscriptEntry, caller: str | None = None) -> EncodingRecord:
        return of.made[0]._replace(recipe="audience", caller=caller)

    beside = first._replace(made=(*first.made, second(first)))
    reading = other._replace(made=(*other.made, second(last), second(other, "ada")))
    sheet = second_encodings([beside, reading, reading, last])
    tokens = [str(len(each.message.tokens)) for each in (first, last)]
    assert sheet.rows == (("with the message", "1", tokens[0]), ("by its first reader", "1", tokens[1]))
    assert second_encodings([first, other]).rows == ()
    again = second_encodings([beside, beside._replace(attempt=2)])
    assert again.rows == (("with the message", "2", str(2 * len(first.message.tokens))),)


def test_shares_have_wilsons_interval() -> None:
    low, high = share(5, 10)
    assert (round(low, 4), round(high, 4)) == (0.2366, 0.7634)
    assert share(0, 10)[0] == 0
    assert share(10, 10)[1] == 1


def test_sheets_align_wide_letters() -> None:
    lines = plain(TextTable("t", ("name", "n"), (("日本", "1"), ("abc", "10")))).splitlines()
    assert lines[2:] == ["  日本   1", "  abc   10"]
    console = Console(file=io.StringIO(), width=40)
    console.print(table(TextTable("[t]", ("a",), (("[b]x[/b]",),))))
    assert "[b]x[/b]" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_very_long_word_moves_its_own_line_alone() -> None:
    sheet = TextTable("outcomes", ("", "", "games"), (("a", "x" * 90, "1"), ("b", "yes", "2")), words=2)
    assert plain(sheet).splitlines()[2:] == [f"  a  {'x' * 90}      1", "  b  yes      2"]


def test_what_is_too_long_for_a_number_takes_several_lines_beside_its_name() -> None:
    console = Console(file=io.StringIO(), width=50)
    console.print(table(TextTable("outcome", ("", ""), (("rewards", "word " * 30), ("moves", "14")))))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "rewards" in shown
    assert shown.count("word") == 30


def test_the_heading_names_what_decides_the_words() -> None:
    assert heading("x", RunConfig(mode="baseline", seed=3)) == "x · understudy · baseline · seed 3"
    assert heading("x", RunConfig(games=9)).endswith("choreographed, enforce · seed 0 · 9 games")


def test_a_long_text_goes_on_below_its_beginning_and_pads_no_other_row() -> None:
    address = "https://example.org/" + "a" * 120
    rows = (("why", f"it was refused {'for many reasons ' * 9}see {address}"), ("paid", "nothing"))
    first, *more, last = plain(TextTable("outcome", ("", ""), rows)).splitlines()[1:]
    assert first.startswith("  why   it was refused for many reasons")
    assert all(line.startswith(" " * 8) and line[8] != " " for line in more)
    assert max(len(line) for line in [first, *more] if address not in line) <= 100
    assert any(line.strip().endswith(address) for line in more), "an address stays whole"
    assert last == "  paid  nothing"


def test_long_values_of_outcomes_keep_the_columns_in_place() -> None:
    judged = [{"why": f"{'because ' * 9}{n % 2}", "who": "ada"} for n in range(3)]
    sheet, *_ = outcomes([GameOver(n, each, {}, None, 1.0) for n, each in enumerate(judged)])
    begin = f"{judged[0]['why'][:35]}…"
    assert [row[1] for row in sheet.rows] == [begin, f"{begin} (2)", "ada"]
    head, *rows = plain(sheet).splitlines()[1:]
    at = head.index("games")
    assert [row[at : at + 5].strip() for row in rows] == ["2", "1", "3"]


def test_an_error_is_one_row_of_a_table_whatever_it_says() -> None:
    told = [
        "error: LeakageError: ann may not read ben.0",
        "error: LeakageError: ann may not read ben.1",
        "limit: ann 3",
    ]
    sheet, *_ = outcomes([GameOver(n, None, {}, each, 1.0) for n, each in enumerate(told)])
    assert [row[1:3] for row in sheet.rows] == [("error: LeakageError", "2"), ("limit: ann 3", "1")]
