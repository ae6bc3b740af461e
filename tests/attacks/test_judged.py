"""Verdicts: a leak where one is shown, no more than the text where that is shown, otherwise inconclusive."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.lab.leaks.judged import claims, judge
from agentcho.lab.leaks.result import Outcome, Row, read_leaks

TESTED = 200
NONE, ALL = (0,) * TESTED, (4,) * TESTED


def outcome(way: str, right: tuple[int, ...], attack: str = "linear", told: float | None = None) -> Outcome:
    bits = (0.0 if right == ALL else -13.0) if told is None else told
    return Outcome(
        kind="codes",
        way=way,
        attack=attack,
        right=right,
        logq=(bits,) * len(right),
        entropy=13.0,
        chance=2**-13,
        where="layer 1",
    )


def verdicts(*outcomes: Outcome) -> dict[str, Row]:
    return {row.way: row for row in judge(outcomes, 1)}


def test_a_leak_is_shown_and_the_rest_is_no_more_than_the_text() -> None:
    rows = verdicts(outcome("author", ALL), outcome("audience", NONE), outcome("text", NONE))
    assert {way: row.verdict for way, row in rows.items()} == {
        "author": "leaks",
        "audience": "no more than the text",
        "text": "no more than the text",
    }
    assert rows["author"].bits == 13
    assert rows["author"].exact == TESTED
    assert rows["audience"].text is not None
    assert rows["audience"].text.p_same < 0.01
    found = claims(list(rows.values()))
    assert [(claim.way, claim.verdict) for claim in found] == [
        ("author", "leaks"),
        ("audience", "no more than the text"),
    ]
    assert "reads 13.0 of 13.0 bits of codes, and 200 of 200 secrets whole" in found[0].sentence


def test_a_way_that_learnt_nothing_and_encoded_all_anew_is_not_cleared() -> None:
    """Its row then equals the text's, and says nothing about leaks where it does reuse encodings."""
    anew, other = outcome("reuse+kvcomm", NONE), outcome("reuse+kvcomm", NONE, told=-12.0)
    for given, verdict in ((anew, "inconclusive"), (other, "no more than the text")):
        rows = verdicts(outcome("author", ALL), given, outcome("audience", NONE), outcome("text", NONE))
        assert rows["reuse+kvcomm"].verdict == verdict
        assert rows["audience"].verdict == rows["text"].verdict == "no more than the text"
        assert claims(list(rows.values()))[1].verdict == verdict


def test_an_attack_that_does_not_succeed_on_the_author_clears_nobody() -> None:
    rows = verdicts(outcome("author", NONE), outcome("audience", NONE), outcome("text", NONE))
    assert rows["audience"].verdict == rows["author"].verdict == "inconclusive"
    assert "does not succeed on the author's encoding" in rows["audience"].why
    assert {claim.verdict for claim in claims(list(rows.values()))} == {"inconclusive"}


def test_without_the_author_or_the_text_beside_it_nothing_is_known() -> None:
    assert verdicts(outcome("audience", NONE), outcome("text", NONE))["audience"].verdict == "inconclusive"
    assert verdicts(outcome("author", ALL), outcome("audience", NONE))["author"].verdict == "inconclusive"


def test_what_the_text_tells_too_is_no_leak_of_the_encoding() -> None:
    rows = verdicts(outcome("author", ALL), outcome("reuse", ALL), outcome("text", ALL))
    assert rows["author"].p < 0.001
    assert rows["author"].verdict == rows["reuse"].verdict == "inconclusive"
    assert "tells by itself" in rows["text"].why


def test_a_little_more_than_the_text_is_neither_the_same_nor_clean() -> None:
    some = tuple(4 if number < 9 else 0 for number in range(TESTED))
    rows = verdicts(outcome("author", ALL), outcome("audience", some, told=-13.0), outcome("text", NONE))
    assert rows["audience"].verdict == "inconclusive"
    assert "nor to be within 3 points" in rows["audience"].why
    assert claims(list(rows.values()))[1].verdict == "inconclusive"


def test_one_attack_that_tells_is_enough_and_one_that_fails_does_not_make_it_clean() -> None:
    every = [outcome("author", ALL), outcome("audience", NONE), outcome("text", NONE)]
    every += [outcome("author", ALL, "mlp"), outcome("audience", ALL, "mlp"), outcome("text", NONE, "mlp")]
    claim = claims(judge(every, 1))[1]
    assert claim.verdict == "leaks"
    assert "mlp" in claim.sentence


def test_what_was_not_tried_says_why() -> None:
    lacking = Outcome(kind="codes", way="author", attack="collision", unavailable="sentences differ")
    row = judge([lacking, outcome("text", NONE)], 1)[0]
    assert (row.verdict, row.why) == ("inconclusive", "not tried: sentences differ")
    assert claims([row])[0].verdict == "inconclusive"


def test_p_values_are_adjusted_over_all_rows() -> None:
    few = tuple(4 if number == 0 else 0 for number in range(TESTED))
    alone = verdicts(outcome("author", few, told=-13.0), outcome("text", NONE))["author"]
    many = judge([outcome("author", few, f"a{n}", -13.0) for n in range(10)] + [outcome("text", NONE)], 1)[0]
    assert alone.p == pytest.approx(4 * alone.p_exact)
    assert many.p == pytest.approx(22 * many.p_exact)


def test_a_search_that_guesses_all_symbols_at_once_is_tested_on_whole_secrets_alone() -> None:
    def rows(right: tuple[int, ...], chance: float | None) -> dict[str, Row]:
        made = outcome("author", right, told=-13.0), outcome("text", NONE)
        return verdicts(*(each.model_copy(update={"symbols_chance": chance}) for each in made))

    half, few = (2,) * TESTED, (4, *NONE[1:])
    assert rows(half, None)["author"].p < 0.001
    row = rows(half, 0.2)["author"]
    assert (row.symbols_chance, row.p_symbols, row.p) == (0.2, 1.0, 1.0)
    assert rows(half, None)["author"].symbols_chance == 0.1
    row = rows(few, 0.2)["author"]
    assert row.p == pytest.approx(2 * row.p_exact)


def test_a_file_that_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordNotFound):
        read_leaks(tmp_path / "none.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(RecordBroken, match="agentcho-bench-leaks/1"):
        read_leaks(tmp_path / "other.json")
