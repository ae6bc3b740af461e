"""On real engines: what each way reveals of the sentence, and that a search finds the secret in E and not in X."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentcho import Engine
from agentcho.errors import ConfigError
from agentcho.lab.leaks import measured
from agentcho.lab.leaks.collision import collision
from agentcho.lab.leaks.evidence import above_chance
from agentcho.lab.leaks.guesses import Case, Effort, Guess
from agentcho.lab.leaks.judged import claims, judge
from agentcho.lab.leaks.measured import AttackOptions, PartialLeaks, measure
from agentcho.lab.leaks.scene import SAID, natural, scene
from agentcho.lab.leaks.secrets import drawn, kind, split
from agentcho.lab.leaks.seen import Seen, seen
from agentcho.lab.leaks.ways import MEANING, PLAIN, USUAL, usual, way, ways
from agentcho.protocol.progress import no_progress
from agentcho.reuse.first_k import FirstK
from tests.engines import Engines

CODES = kind("codes")


def looked(engine: Engine, name: str, n: int = 6, earlier: int = 0) -> Seen:
    played = scene(CODES, engine, earlier, templates=1)
    return seen(engine, played.plays(drawn(CODES, n, 1)), played.before, way(name), lambda done: None)


def attacked(engine: Engine, name: str, n: int, candidates: int) -> tuple[Case, Guess]:
    played, symbols = scene(CODES, engine, templates=1), drawn(CODES, n, 1)
    found = seen(engine, played.plays(symbols), played.before, way(name), lambda done: None)
    case = Case(engine, played, way(name), symbols, split(n, 1), found, 1, effort=Effort(candidates))
    guess = collision(case)
    assert not isinstance(guess, str)
    return case, guess


def whole(case: Case, guess: Guess) -> int:
    return int((guess.symbols == case.of(case.split.test)).all(axis=1).sum())


def test_what_is_for_an_audience_is_the_same_to_the_bit_whatever_the_secret(engines: Engines) -> None:
    engine = engines()
    for name in ("audience", "text"):
        found = looked(engine, name)
        assert (found.vectors == found.vectors[0]).all(), name
    for name in ("author", "reuse", "in-place", "reuse+first-k:4", "reuse+top-k:0.2"):
        found = looked(engine, name)
        assert all((found.vectors[0] != each).any() for each in found.vectors[1:]), name
    assert engine.idle


def test_keys_stand_where_bob_has_them_unless_they_are_left_in_place(engines: Engines) -> None:
    engine = engines()
    author, reuse, text = (looked(engine, name).vectors for name in ("author", "reuse", "text"))
    half = author.shape[-1] // 2
    assert (author[..., half:] == reuse[..., half:]).all(), "values do not turn"
    first = text[:, 0, :, :half]  # first-layer keys depend only on a token and its position
    assert np.abs(reuse[:, 0, :, :half] - first).max() < 1e-4 < 1e-2 < np.abs(author[:, 0, :, :half] - first).max()


@pytest.mark.parametrize("earlier", [0, 2])
def test_a_repair_of_all_tokens_is_the_text(engines: Engines, earlier: int) -> None:
    engine = engines()
    made, text = (looked(engine, name, 3, earlier).vectors for name in ("reuse+full", "text"))
    assert np.abs(made - text).max() < 1e-4


def test_a_search_finds_the_secret_in_what_its_author_encoded_and_not_in_what_is_for_all(engines: Engines) -> None:
    engine = engines()
    case, found = attacked(engine, "author", 24, 24)
    assert whole(case, found) == len(case.split.test) == 6
    assert found.logq.mean() > -0.5
    assert found.symbols_chance == pytest.approx(1 / 24 + 23 / 24 / CODES.options)
    case, found = attacked(engine, "audience", 24, 24)
    assert above_chance(whole(case, found), 6, 1 / 24) > 0.001
    assert found.logq == pytest.approx(-np.log2(24))


@pytest.mark.slow
def test_the_embedded_model_gives_codes_away_through_e_and_not_through_x(engines: Engines) -> None:
    engine = engines.understudy()
    for name, gone in (("author", True), ("reuse", True), ("audience", False)):
        case, found = attacked(engine, name, 120, 200)
        p = above_chance(whole(case, found), len(case.split.test), found.chance)
        assert (whole(case, found) == len(case.split.test)) if gone else p > 0.001, name
        assert (found.logq > -1).all() if gone else found.logq == pytest.approx(-np.log2(200)), name


def test_what_alice_says_by_herself_is_put_in_her_mouth(engines: Engines) -> None:
    engine, symbols = engines(), drawn(CODES, 3, 1)
    said = natural(engine, CODES, symbols, 1, lambda done: None)
    played = scene(CODES, engine, templates=1)
    lines = [play.by_id[SAID] for play in played.plays(symbols, said)]
    assert [line.content for line in lines] == said
    assert all(line.headed < len(line.content) for line in lines)
    found = seen(engine, played.plays(symbols, said), played.before, way("author"), lambda done: None)
    assert found.lengths.tolist() == [len(line.message.tokens) for line in lines]
    case = Case(engine, played, way("author"), symbols, split(20, 1), found, 1, said)
    assert isinstance(collision(case), str), "it says why it cannot be done"


def test_ways_are_named_and_what_is_none_says_what_there_is() -> None:
    assert USUAL[2:5] == ("reuse+cacheblend:0.15", "reuse+kvcomm:1", "reuse+first-k:16")
    assert [each.name for each in ways([*USUAL, "author"])] == list(USUAL)
    assert way("reuse+first-k:16").policy.repair == FirstK(16)
    assert way("audience").policy.leakage == "enforce"
    assert PLAIN.keys() == MEANING.keys()
    for name, why in (
        ("writer", "unknown way 'writer'"),
        ("text+first-k:2", "unknown way"),
        ("reuse+some:2", "none of first-k"),
    ):
        with pytest.raises(ConfigError, match=why):
            way(name)


def test_what_learns_from_earlier_sentences_is_measured_after_some_alone() -> None:
    """Without any, it encodes everything anew, and its row would only describe the text."""
    assert usual(3) == USUAL
    assert set(usual(3)) - set(usual(0)) == {"reuse+kvcomm:1"}
    for name in ("reuse+kvcomm", "reuse+kvcomm:1", "audience+kvcomm"):
        wrong = asked("linear", names=("author", name))
        with pytest.raises(ConfigError, match="learns from earlier reads, but there are none"):
            wrong.check()
        wrong._replace(earlier=1).check()


def asked(*attacks: str, names: Sequence[str] = ("author", "audience", "text"), n: int = 40) -> AttackOptions:
    return AttackOptions(("codes",), tuple(ways(names)), attacks, n, "forced", 0, 1, 1, Effort(50, 1, 4))


@pytest.mark.slow
def test_what_was_kept_is_not_measured_again(engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, file, wanted = engines(), tmp_path / "leaks.json", asked("linear", "asked", n=20)
    kept = PartialLeaks.begin(file, False, wanted.settings)
    secrets = measure(engine, wanted, kept, no_progress)
    assert (secrets[0].size, secrets[0].sentences) == (10_000, 1)
    first = kept.outcomes(wanted)
    assert len(first) == 6
    monkeypatch.setattr(measured, "ATTACKS", {"linear": None, "asked": None})
    again = PartialLeaks.begin(file, True, wanted.settings)
    measure(engine, wanted, again, no_progress)
    assert again.outcomes(wanted) == first
    with pytest.raises(ConfigError, match="continue it with --resume, or delete it"):
        PartialLeaks.begin(file, False, wanted.settings)
    with pytest.raises(ConfigError, match="was measured with other settings: seed was 1, and is 2"):
        PartialLeaks.begin(file, True, replace_seed(wanted).settings)
    again.done()
    assert not list(tmp_path.iterdir())
    file.write_text("{}")
    with pytest.raises(ConfigError, match="is complete, so there is nothing to resume"):
        PartialLeaks.begin(file, True, wanted.settings)
    with pytest.raises(ConfigError, match="pass it with --json"):
        PartialLeaks.begin(None, True, wanted.settings)


def replace_seed(of: AttackOptions) -> AttackOptions:
    return of._replace(seed=2, effort=replace(of.effort))


def test_what_cannot_be_measured_is_said_before_anything_is() -> None:
    for wrong, why in (
        (asked("guess"), "unknown attack 'guess'; give one of linear"),
        (asked("mlp", n=19), "give 20 or more"),
    ):
        with pytest.raises(ConfigError, match=why):
            wrong.check()


@pytest.mark.slow
def test_a_small_run_shows_a_leak_and_claims_nothing_that_it_is_too_small_for(engines: Engines) -> None:
    wanted, kept = asked("collision", names=("author", "text", "audience"), n=80), PartialLeaks.begin(None, False, {})
    measure(engines(), wanted, kept, no_progress)
    rows: dict[str, Any] = {row.way: row for row in judge(kept.outcomes(wanted), 1)}
    assert rows["author"].verdict == "leaks"
    assert rows["audience"].verdict == "inconclusive", "20 secrets cannot show that 3 points are not there"
    assert [claim.verdict for claim in claims(list(rows.values()))] == ["leaks", "inconclusive"]
