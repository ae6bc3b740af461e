"""The ablation: what the owner's words can see in each variant, and the resulting rates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from agentcho import Engine
from agentcho.config import ReusePolicy
from agentcho.lab.measure.ablation import SEEN, Answered, Outcome, Seen, ablations, seeing
from agentcho.lab.measure.decisions import Question
from agentcho.lab.measure.play import Pair, Play, of_workflow
from agentcho.lab.measure.stage import Stage
from agentcho.lab.measure.swap import Secrets
from agentcho.lab.measure.whole import measure

from .talks import talk, talks

BOB = Pair("bob", "alice")
AUDIT = ReusePolicy("choreographed", "audit", "never", True)
ASKED = Question("decision", 1, (7, 9), ("yes", "no"))


@pytest.fixture(scope="module")
def play(three: Engine) -> Play:
    """One game."""
    return of_workflow(talk(0), three)


@pytest.mark.parametrize(
    ("seen", "plan", "hello"),
    [
        ("all", ("rules",), ("rules", "plan")),
        ("system", ("rules",), ("rules",)),
        ("plan", (), ("plan",)),
        ("public", (), ()),
    ],
)
def test_what_the_owners_words_see(play: Play, seen: Seen, plan: Sequence[str], hello: Sequence[str]) -> None:
    found = seeing(play, BOB, seen).by_id
    assert found["hello"].message.parents == tuple(hello)
    assert seen == "system" or found["plan"].message.parents == tuple(plan)
    for id in ("reply", "guess", "decision"):
        assert found[id] == play.by_id[id], "the reader reads what it read"


def test_places_go_with_their_parents(play: Play) -> None:
    placed = play.by_id["hello"]._replace(places=(3, None, 90))
    left = placed.reading(["plan"])
    assert left.message.parents == ("plan",)
    assert left.places == (None, 90)


@pytest.mark.parametrize(("seen", "moved"), [("all", {"rules", "plan"}), ("system", {"rules"}), ("plan", {"plan"})])
def test_only_what_is_seen_can_move_the_reader(three: Engine, play: Play, seen: Seen, moved: set[str]) -> None:
    rows = {}
    for changed in (None, "rules", "plan"):
        words: Secrets = {} if changed is None else {changed: play.by_id[changed].content[::-1]}
        with Stage(three, seeing(play.saying(words), BOB, seen), AUDIT) as stage:
            rows[changed] = stage.rows("decision")
    assert {id for id in ("rules", "plan") if not np.array_equal(rows[id], rows[None])} == moved


def test_rates_of_hand_made_answers() -> None:
    """Ten games: reuse makes nine decisions "no"; with less to see, two and then seven of them flip to "yes"."""
    turned: dict[Seen, int] = {"all": 1, "system": 3, "plan": 8, "public": 8}
    games = [[_answer(seen, 7 if game < turned[seen] else 9) for seen in SEEN] for game in range(10)]
    found = {one.seen: one for one in ablations(games)}
    assert {seen: one.count for seen, one in found.items()} == turned
    assert {seen: one.flips for seen, one in found.items()} == {"all": 0, "system": 2, "plan": 7, "public": 7}
    assert found["plan"].mcnemar_p == pytest.approx(2 / 2**7)
    assert found["plan"].holm_p == pytest.approx(3 * 2 / 2**7)
    assert found["system"].holm_p == pytest.approx(0.5)
    assert found["all"].holm_p == 1.0
    assert {one.choice for one in found.values()} == {"yes"}
    assert found["plan"].interval.low < 0.8 < found["plan"].interval.high


def test_a_game_that_could_not_be_encoded_in_every_variant_does_not_count() -> None:
    whole = [[_answer(seen, 7) for seen in SEEN] for _ in range(3)]
    torn = [[_answer(seen, 9) for seen in SEEN if seen != "public"]]
    assert {one.games for one in ablations([*whole, *torn, []])} == {3}


def test_outcomes_are_kept_and_corrected_apart() -> None:
    game = [_answer(seen, 7, outcome) for seen in SEEN for outcome in ("decision", "prediction")]
    assert [one.outcome for one in ablations([game])] == ["decision"] * 4 + ["prediction"] * 4


@pytest.mark.slow
def test_the_whole_on_a_model(three: Engine) -> None:
    found = measure(talks(4), three, parts={"ablation"}).ablations
    bobs = [one for one in found if one.reader == "bob"]
    assert {(one.seen, one.outcome) for one in bobs} == {
        (seen, outcome) for seen in SEEN for outcome in ("decision", "prediction")
    }
    assert {one.choice for one in bobs} == {"no"}
    assert all(one.games == 4 and one.count == round(one.rate * 4) for one in bobs)
    assert all(one.flips == 0 for one in bobs if one.seen == "all")


def _answer(seen: Seen, token: int, outcome: Outcome = "decision") -> Answered:
    return Answered(BOB, outcome, seen, ASKED, token)
