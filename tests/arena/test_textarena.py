"""Games of TextArena itself on the fake engine: what each player sees is compared with TextArena alone under the same
moves; hidden information reaches nobody; runs repeat, resume, and refuse."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agentcho.audit import audit_run
from agentcho.config import RunConfig
from agentcho.errors import ScenarioError
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.run import game_seed
from agentcho.games.runs.runtime import play
from agentcho.integrations.textarena.names import PREFIX, RAW, REFUSED, family
from agentcho.integrations.textarena.package import PlayedEnvironment, kind_of
from agentcho.integrations.textarena.table import SEED
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine

from .cones import reached
from .families import FAMILIES
from .sweep import mover, random_move

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("textarena")]
GAMES = {
    "TicTacToe": {},
    "KuhnPoker": {"max_rounds": 2},
    "Poker": {"players": 3, "num_rounds": 2},
    "SecretMafia": {"discussion_rounds": 1},
    "IteratedPrisonersDilemma": {"num_rounds": 2, "communication_turns": 1},
    "SimpleNegotiation": {"max_turns": 4},
}
"""Six games: an open board, cards, a table of three, hidden roles, hidden decisions, private values."""
MOST = 40


def recorded(folder: Path, name: str, games: int = 1, at_once: int | None = None, **how: Any) -> SavedRun:
    """Plays a game on the fake engine; returns its record."""
    scenario = library.scenario(PREFIX + name)(**GAMES[name], moves=MOST)
    config = RunConfig(model="fake", games=games, seed=5, **how)
    result = play(RunRequest(scenario, config, out=folder, at_once=at_once, named=PREFIX + name))
    assert not result.errors, result.errors
    assert result.record is not None
    return SavedRun(result.record)


def moves(entries: Iterable[TranscriptEntry]) -> list[tuple[str, str]]:
    """The moves with their players, in order: messages with a label."""
    said = (entry.message for entry in entries if entry.message.kind == "decode" and entry.message.header)
    return [(message.author or "", message.text) for message in said]


def alone(name: str, seed: int, players: int, said: list[tuple[str, str]]) -> dict[str, list[str]]:
    """What TextArena alone, given these moves, shows each player, except for the player's own words."""
    import textarena

    given = {key: value for key, value in GAMES[name].items() if key != "players"}
    before = random.getstate()
    random.seed(seed)
    environment = textarena.make(kind_of(PREFIX + name).id + RAW, **given)
    environment.reset(num_players=players, seed=seed)
    for _, text in said:
        environment.step(text)
    random.setstate(before)
    return {
        f"player-{player}": [text.strip() for author, text, _ in seen if author != player and text.strip()]
        for player, seen in all_seen(environment, players).items()
    }


def all_seen(environment: Any, players: int) -> dict[int, list[tuple[int, str, Any]]]:
    return {player: environment.state.observations[player] for player in range(players)}


def visible(entries: Iterable[TranscriptEntry], player: str) -> list[str]:
    """The texts that a player may read, without its own, its system prompt, and labels."""
    others = (e.message for e in entries if e.message.author != player and e.message.role != "system")
    read = (message for message in others if message.audience.includes(player))
    return [(message.text.partition("] ")[2] if message.author else message.text).strip() for message in read]


@pytest.mark.parametrize("name", GAMES)
def test_each_player_may_read_what_textarena_shows_it_and_nothing_else(name: str, tmp_path: Path) -> None:
    run = recorded(tmp_path, name)
    (entries,) = run.games().values()
    players = sorted({message.author for message in (e.message for e in entries) if message.author})
    shown = alone(name, game_seed(5, 0) % SEED, len(players), moves(entries))
    assert {player: visible(entries, player) for player in players} == shown
    (over,) = run.finished().values()
    assert set(over.score) >= {f"{player} invalid" for player in players} or over.score == {}


@pytest.mark.parametrize("name", ["Poker", "SecretMafia"])
def test_games_side_by_side_say_what_they_say_one_after_the_other(name: str, tmp_path: Path) -> None:
    runs = [recorded(tmp_path / str(at_once), name, games=8, at_once=at_once) for at_once in (1, 8, 8)]
    said = [{game: canonical(entries) for game, entries in run.games().items()} for run in runs]
    assert said[0] == said[1] == said[2]
    assert len({str(game) for game in said[0].values()}) == 8


def canonical(entries: Iterable[TranscriptEntry]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(e.message.id, e.message.text, e.message.tokens) for e in entries]


def dealt(entries: Iterable[TranscriptEntry], words: str) -> dict[str, set[str]]:
    """The messages containing `words` that the environment addressed to one player only, by player."""
    found: dict[str, set[str]] = {}
    for message in (entry.message for entry in entries):
        if message.author is None and message.audience.members is not None and words in message.text:
            (player,) = message.audience.members
            found.setdefault(player, set()).add(message.id)
    return found


@pytest.mark.parametrize(("name", "words"), [("Poker", "Your hole:"), ("SecretMafia", "Your role:")])
def test_hidden_cards_and_roles_reach_nobody_under_enforce(name: str, words: str, tmp_path: Path) -> None:
    run = recorded(tmp_path, name, games=2)
    assert audit_run(run).conclusion == "clean"
    for entries in run.games().values():
        hidden, came = dealt(entries, words), reached(entries)
        assert len(hidden) > 2
        assert all(hidden[player] & came[player] for player in hidden.keys() & came.keys())
        for player, secrets in hidden.items():
            assert not any(secrets & came[other] for other in came if other != player)


@pytest.mark.parametrize(("name", "words"), [("Poker", "Your hole:"), ("SecretMafia", "Your role:")])
def test_under_audit_they_do_and_the_audit_says_so(name: str, words: str, tmp_path: Path) -> None:
    run = recorded(tmp_path, name, leakage="audit")
    assert audit_run(run).conclusion == "findings"
    (entries,) = run.games().values()
    hidden, came = dealt(entries, words), reached(entries)
    assert any(hidden[player] & came[other] for player in hidden for other in came if other != player)


def test_a_run_that_died_goes_on_with_the_environment_played_again(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "whole", "KuhnPoker")
    before = canonical(whole.games()[0])
    cut(whole.path, keep=14)
    died = SavedRun(whole.path)
    result = play(RunRequest.resuming(died, library.scenario(PREFIX + "KuhnPoker")(**GAMES["KuhnPoker"], moves=MOST)))
    assert not result.errors
    assert canonical(SavedRun(whole.path).games()[0]) == before


def test_an_environment_that_does_otherwise_now_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(tmp_path, "KuhnPoker")
    cut(run.path, keep=14)
    began = PlayedEnvironment.reset
    monkeypatch.setattr(PlayedEnvironment, "reset", lambda self, players, seed: began(self, players, seed + 1))
    result = play(
        RunRequest.resuming(
            SavedRun(run.path), library.scenario(PREFIX + "KuhnPoker")(**GAMES["KuhnPoker"], moves=MOST)
        )
    )
    (failed,) = result.errors.values()
    assert failed.fault.kind == "ResumeMismatch"
    assert "departs from its record" in failed.fault.what


def cut(folder: Path, keep: int) -> None:
    """Cuts a record down to that of a run that died after this many messages."""
    lines = (folder / "transcript.jsonl").read_text().splitlines(keepends=True)
    (folder / "transcript.jsonl").write_text("".join(lines[:keep]))
    (folder / "outcomes.jsonl").write_text("")
    info = (folder / "run.json").read_text()
    (folder / "run.json").write_text(info.replace('"done"', '"interrupted"'))


def test_every_family_for_several_players_begins_or_is_refused_by_name() -> None:
    import textarena

    registry = textarena.envs.registration.ENV_REGISTRY
    for kind in REFUSED:
        with pytest.raises(ScenarioError, match=f"{PREFIX}{kind} cannot be played: "):
            library.scenario(f"{PREFIX}{kind}-v0")
    plain = {family(id): id.removesuffix(RAW) for id in registry if id.endswith("-v0-raw")}
    assert {kind: begins(PREFIX + plain[kind]) for kind in FAMILIES} == FAMILIES


def begins(name: str) -> int:
    scenario = library.scenario(name)()
    assert scenario.name == name
    return scenario.count  # type: ignore[attr-defined,no-any-return]


def test_an_error_in_an_environment_names_the_line_of_its_own_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import textarena.envs.KuhnPoker.env

    scenario = library.scenario(PREFIX + "KuhnPoker")()
    monkeypatch.setattr(textarena.envs.KuhnPoker.env, "re", None)
    result = play(RunRequest(scenario, RunConfig(model="fake", games=2), out=tmp_path))
    assert {failed.fault.kind for failed in result.errors.values()} == {"AttributeError"}
    files = [(failed.fault.where or "").partition(":")[0] for failed in result.errors.values()]
    assert all(file.endswith("KuhnPoker/env.py") for file in files), files


def test_one_that_really_hangs_is_given_up(tmp_path: Path) -> None:
    scenario, config = (
        library.scenario(PREFIX + "MarketEntryGame")(moves=80, seconds=1),
        RunConfig(model="fake", seed=7),
    )
    result = play(
        RunRequest(scenario, config, engine=FakeEngine(random_move, context=1 << 20), out=tmp_path, find_agent=mover)
    )
    (failed,) = result.errors.values()
    assert "MarketEntryGame-v0: its step did not come back within 1 s" in str(failed.error)
