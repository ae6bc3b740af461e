"""The same words in the fast profile: differing games are counted, and each must diverge at a near-tie."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentcho import Engine, Game, RunConfig, Sampling
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.records.record import SavedRun
from agentcho.runner.sampling.sampler import uniform
from agentcho.testing import FakeEngine

from ..words import NEAR, near, parting, same_words
from .plays import chat
from .stage import Scripted


async def talk(game: Game) -> None:
    alice, _ = await chat(game)
    await alice.choose(["yes", "no"], to="everyone")


def played(
    folder: Path, engine: Engine | FakeEngine, games: int, at_once: int, deterministic: bool = False
) -> SavedRun:
    config = RunConfig(games=games, max_tokens=10, leakage="enforce", deterministic=deterministic)
    record = play(RunRequest(Scripted(talk), config, engine=engine, out=folder, at_once=at_once)).record
    assert record is not None
    return SavedRun(record)


def sampling(edge: float, nth: int, **options: object) -> tuple[Sampling, torch.Tensor]:
    """A row of two likely tokens whose boundary is `edge` above the coin."""
    seed = next(seed for seed in range(1000) if 0.3 < uniform(seed, nth) < 0.7)
    share = uniform(seed, nth) + edge
    row = torch.tensor([share, 1 - share, 1e-9]).log()
    return Sampling(seed=seed, **options), row  # type: ignore[arg-type]


@pytest.mark.parametrize(("edge", "tie"), [(NEAR / 2, True), (-NEAR / 2, True), (0.1, False), (-0.1, False)])
def test_a_coin_that_falls_next_to_the_edge_is_a_near_tie(edge: float, tie: bool) -> None:
    options, row = sampling(edge, 3)
    assert near(row, options, 3, (0, 1)) is near(row, options, 3, (1, 0)) is tie
    assert not near(row, options, 3, (0, 2))


@pytest.mark.parametrize(("apart", "tie"), [(NEAR, True), (10 * NEAR, False)])
def test_two_that_are_nearly_as_likely_are_a_near_tie_for_the_greedy(apart: float, tie: bool) -> None:
    row = torch.tensor([1.0, 1.0 + apart, -3.0])
    assert near(row, Sampling(temperature=0), 0, (0, 1)) is tie


def test_games_that_part_are_found_where_they_part(tmp_path: Path) -> None:
    [entries] = played(tmp_path, FakeEngine(), 1, 1).games().values()
    assert parting(0, entries, entries) is None
    place = next(n for n, entry in enumerate(entries) if entry.message.id == "bob.1")
    said = entries[place].message
    start = (said.sampled or (0, 0))[0]
    tokens = (*said.tokens[: start + 2], 7, *said.tokens[start + 3 :])
    changed = [*entries]
    changed[place] = entries[place]._replace(message=said.saying(tokens=tokens))
    found = parting(0, entries, changed)
    assert found is not None
    assert (found.message, found.nth, found.tokens[1]) == ("bob.1", 2, 7)


def test_words_that_part_at_no_near_tie_are_no_near_miss(tmp_path: Path, tiny: Engine) -> None:
    """Another seed gives other words: the check must notice."""
    one = played(tmp_path / "one", tiny, 1, 1)
    config = RunConfig(games=1, max_tokens=10, leakage="enforce", seed=1)
    other = play(RunRequest(Scripted(talk), config, engine=tiny, out=tmp_path / "other")).record
    assert other is not None
    with pytest.raises(AssertionError, match="no near-tie"):
        same_words(one, SavedRun(other), tiny)


@pytest.mark.slow
def test_the_fast_profile_says_what_the_exact_one_says_but_for_near_ties(tmp_path: Path, tiny: Engine) -> None:
    fast, alone, exact = (
        played(tmp_path / str(n), tiny, 4, at_once, deterministic)
        for n, (at_once, deterministic) in enumerate([(4, False), (1, False), (4, True)])
    )
    differing = [same_words(fast, other, tiny) for other in (alone, exact)]
    assert all(len(games) <= 1 for games in differing)


@pytest.mark.slow
def test_the_understudy_says_the_same_words_however_many_games_are_played(tmp_path: Path) -> None:
    engine = Engine.load("understudy")
    runs = [played(tmp_path / str(at_once), engine, 12, at_once) for at_once in (12, 1, 5)]
    runs.append(played(tmp_path / "exact", engine, 12, 12, deterministic=True))
    differing = [len(same_words(runs[0], other, engine)) for other in runs[1:]]
    assert max(differing) <= 3, differing
