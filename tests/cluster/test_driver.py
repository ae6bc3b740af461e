"""A driver and its workers without a cluster: every game is played to its end once, whichever workers die."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pydantic
import pytest
from pydantic import BaseModel, Field, SecretStr, computed_field

from agentcho import Game, RunConfig
from agentcho.errors import ModelNotFound, ResumeMismatch, WorkersLost
from agentcho.events import Ended, Event, GameOver
from agentcho.games.runs import library, runtime
from agentcho.games.runs.request import GameSelection, OnFailure, RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.integrations.ray import runs
from agentcho.integrations.ray.driver import Driver, Timeouts
from agentcho.integrations.ray.runs import Players, plain_options
from agentcho.integrations.ray.work import (
    Answer,
    WorkerHello,
    WorkerLost,
    WorkerReady,
    WorkerRefused,
    WorkerReport,
    WorkSpec,
)
from agentcho.integrations.ray.worker import Worker, network
from agentcho.records.canonical import canonical_transcript
from agentcho.records.record import SavedRun
from agentcho.scenario import Scenario
from tests.cluster.threads import Heard, Threads, dying, threads

NAME = "prisoners-dilemma"
CONFIG = RunConfig(model="fake", games=9, seed=3)
QUICK = Timeouts(gathering=60, hello=60, silence=60, beat=0.05)


FAILS = '''
import agentcho

class Fails(agentcho.Scenario):
    """Game 2 fails."""
    name = "fails"

    async def play(self, game):
        ann = game.cast(agentcho.Agent, name="ann", system="You are Ann.", audience="everyone")
        await ann.say()
        if game.index == 2:
            raise OSError("the disk of somebody else")
        return self.Outcome()
'''


def scenario(name: str) -> Scenario:
    """A scenario by name, with the options that make it shortest."""
    return library.scenario(name)(**{"rounds": 1} if name == NAME else {})


def games(run: Path | None) -> Any:
    """The messages and the outcome of each game of a run."""
    assert run is not None
    saved = SavedRun(run)
    over = {number: each._replace(seconds=0, traceback=None) for number, each in sorted(saved.finished().items())}
    return canonical_transcript(saved), over


def here(out: Path, config: RunConfig = CONFIG, name: str = NAME) -> RunResult:
    """The same run in this process."""
    return play(RunRequest(scenario(name), config, out=out / "here", named=name))


def there(pool: Threads, out: Path, config: RunConfig = CONFIG, name: str = NAME, **how: Any) -> RunResult:
    """The run by two workers."""
    driver = Driver(pool, how.pop("workers", 2), how.pop("deaths", 2), how.pop("warn", print), QUICK)
    return runs.play(Players(driver, name), RunRequest(scenario(name), config, out=out / "there", named=name, **how))


@pytest.mark.parametrize(
    ("workers", "at_once", "hear"),
    [(1, None, dying()), (2, None, dying()), (3, 4, dying()), (2, 2, dying(0)), (2, None, dying(0, 1, 2))],
    ids=["one", "two", "three", "one dies", "three die"],
)
def test_whoever_plays_it_is_the_same_run(tmp_path: Path, workers: int, at_once: int | None, hear: Heard) -> None:
    with threads(hear) as pool:
        played = there(pool, tmp_path, workers=workers, at_once=at_once)
    assert [over.game for over in played.games] == [*range(9)]
    assert (played.errors, played.interrupted) == ({}, False)
    assert games(played.record) == games(here(tmp_path).record)
    assert SavedRun(played.record or tmp_path).status == "done"


@pytest.mark.slow
def test_the_record_says_what_one_process_would_say(tmp_path: Path) -> None:
    with threads() as pool:
        mine, other = (SavedRun(run.record or tmp_path) for run in (there(pool, tmp_path), here(tmp_path)))
    same = {"scenario", "options", "config", "engine", "versions", "cast", "tasks", "asked", "sources", "status"}
    assert mine.info.model_dump(include=same) == other.info.model_dump(include=same)


def test_what_is_heard_is_each_message_and_each_game_once(tmp_path: Path) -> None:
    heard: list[Event] = []
    with threads(dying(0)) as pool:
        there(pool, tmp_path, sink=heard.append)
    over = [event.game for event in heard if isinstance(event, GameOver)]
    said = [event.entry.message for event in heard if isinstance(event, Ended)]
    assert sorted(over) == [*range(9)]
    assert len({(message.game, message.id) for message in said}) == len(said) > 9


def test_a_game_is_given_up_when_workers_died_of_it_too_often(tmp_path: Path) -> None:
    """Whichever worker plays game 5 dies; every other game ends well, even if it was first dealt to that worker."""

    def hear(worker: int, answer: Answer) -> Answer:
        return WorkerLost("killed") if (worker, 5) in pool.played else answer

    with threads(hear) as pool:
        played = there(pool, tmp_path, deaths=2)
    assert {number: str(failed.fault) for number, failed in played.errors.items()}.keys() == {5}
    assert "its workers died more often than is allowed; the last one: the worker on" in str(played.error)
    assert sorted(SavedRun(played.record or tmp_path).finished()) == [*range(9)]
    assert len([game for _, game in pool.played if game == 5]) == 3
    again = play(RunRequest.resuming(SavedRun(played.record or tmp_path), scenario(NAME), CONFIG))
    assert not again.errors
    assert games(again.record) == games(here(tmp_path).record)


def test_no_death_is_forgiven_where_none_is_allowed(tmp_path: Path) -> None:
    with threads(dying(0)) as pool:
        played = there(pool, tmp_path, deaths=0)
    assert played.errors
    assert {type(failed.error) for failed in played.errors.values()} == {WorkersLost}


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended_and_what_it_had_is_dealt_again(tmp_path: Path) -> None:
    def hear(worker: int, answer: Answer) -> Answer | None:
        return None if worker == 0 and isinstance(answer, WorkerReport) else answer

    with threads(hear) as pool:
        driver = Driver(pool, 2, patience=QUICK._replace(silence=0.2))
        played = runs.play(Players(driver, NAME), RunRequest(scenario(NAME), CONFIG, out=tmp_path))
        assert 0 in pool.stopped
        assert len(pool.started) == 3
    assert games(played.record) == games(here(tmp_path).record)


def test_workers_that_only_die_are_given_up_and_the_last_says_why(tmp_path: Path) -> None:
    with threads(lambda worker, answer: WorkerLost("the wall")) as pool, pytest.raises(WorkersLost, match="the wall"):
        there(pool, tmp_path)
    assert len(pool.started) == 8


def test_no_worker_that_comes_is_an_error_after_a_bounded_time(tmp_path: Path) -> None:
    with (
        threads(lambda worker, answer: None) as pool,
        pytest.raises(WorkersLost, match=r"no worker started within 0\.1 s"),
    ):
        runs.play(
            Players(Driver(pool, 1, patience=QUICK._replace(hello=0.1)), NAME),
            RunRequest(
                scenario(NAME),
                CONFIG,
            ),
        )


def test_a_model_that_no_worker_can_load_is_said_once_and_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(config: RunConfig, *given: Any) -> None:
        raise ModelNotFound(config.model, "it is nowhere")

    monkeypatch.setattr("agentcho.integrations.ray.worker.load_share", load)
    warned: list[str] = []
    with threads() as pool, pytest.raises(ModelNotFound, match=r"no model 'other'.*\(the worker on ") as raised:
        there(pool, tmp_path, RunConfig(model="other"), warn=warned.append)
    assert raised.value.code == 2
    assert warned == []
    assert not (tmp_path / "there").exists()
    assert len(pool.started) == 2, "and it is not tried again"


def other_python(worker: int, answer: Answer) -> Answer:
    old = {"agentcho": "0.0.1"}
    return (
        answer._replace(versions={**answer.versions, **old}) if isinstance(answer, WorkerHello) and worker else answer
    )


def other_weights(worker: int, answer: Answer) -> Answer:
    return (
        answer._replace(engine={**answer.engine, "weights": f"{worker}"}) if isinstance(answer, WorkerReady) else answer
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hear", "told"),
    [
        (
            other_python,
            r"a worker does not take part: the worker has agentcho 0.0.1, not 0.5.0.dev0; install the same versions",
        ),
        (other_weights, r"a worker does not take part: the worker has another engine: the model's weights"),
    ],
    ids=["version", "weights"],
)
def test_a_worker_that_is_another_takes_no_part_and_the_others_play(tmp_path: Path, hear: Heard, told: str) -> None:
    warned: list[str] = []
    with threads(hear) as pool:
        played = there(pool, tmp_path, warn=warned.append)
        assert len({worker for worker, _ in pool.played}) == 1
    assert len(warned) == 1
    assert warned[0].startswith(told)
    assert games(played.record) == games(here(tmp_path).record)


def test_where_every_worker_has_another_version_that_is_the_error(tmp_path: Path) -> None:
    def hear(worker: int, answer: Answer) -> Answer:
        return other_python(1, answer)

    with threads(hear) as pool, pytest.raises(WorkersLost, match=r"agentcho 0\.0\.1, not"):
        there(pool, tmp_path)


@pytest.fixture
def fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fails.py").write_text(FAILS)
    return "fails.py"


def test_a_game_that_fails_fails_as_it_does_here(tmp_path: Path, fails: str) -> None:
    with threads() as pool:
        played = there(pool, tmp_path, RunConfig(model="fake", games=4), fails)
    alone = here(tmp_path, RunConfig(model="fake", games=4), fails)
    assert games(played.record) == games(alone.record)
    [(number, failed)] = played.errors.items()
    assert (number, str(failed.fault)) == (2, str(alone.errors[2].fault))
    assert "Traceback" in failed.fault.traceback
    assert SavedRun(played.record or tmp_path).status == "failed"


def test_with_fail_fast_the_first_that_fails_ends_the_run(tmp_path: Path, fails: str) -> None:
    with threads() as pool:
        config = RunConfig(model="fake", games=400)
        played = there(pool, tmp_path, config, fails, at_once=2, on_failure=OnFailure(fail_fast=True))
    assert [*played.errors] == [2]
    assert len(played.games) < 400


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 5])
def test_a_run_goes_on_by_workers_or_without_them(tmp_path: Path, kept: int) -> None:
    """Ctrl-C after some games: finished games are recorded once, and the rest is played."""

    def interrupt(event: Event) -> None:
        if isinstance(event, GameOver) and len(seen) >= kept:
            raise KeyboardInterrupt
        seen.append(event)

    seen: list[Event] = []
    with threads() as pool:
        cut = there(pool, tmp_path, sink=lambda event: interrupt(event) if isinstance(event, GameOver) else None)
        assert cut.interrupted
        saved = SavedRun(cut.record or tmp_path)
        assert saved.status == "interrupted"
        assert len(saved.finished()) == kept + 1
        driver = Driver(pool, 2, patience=QUICK)
        whole = runs.play(Players(driver, NAME), RunRequest.resuming(saved, scenario(NAME), CONFIG))
        assert (
            runs.play(Players(driver, NAME), RunRequest.resuming(saved, scenario(NAME), CONFIG)).record == whole.record
        )
    assert games(whole.record) == games(here(tmp_path).record)


@pytest.mark.slow
def test_what_was_said_here_in_part_is_said_again_there(tmp_path: Path) -> None:
    """A run interrupted in this process in the middle of its games is resumed by workers."""

    def interrupt(event: Event) -> None:
        seen.append(event)
        if len([each for each in seen if isinstance(each, Ended)]) == 30:
            raise KeyboardInterrupt

    seen: list[Event] = []
    cut = play(RunRequest(scenario(NAME), CONFIG, out=tmp_path / "cut", sink=interrupt, named=NAME))
    saved = SavedRun(cut.record or tmp_path)
    assert 0 < len(saved.finished()) < 9 or saved.entries()
    with threads() as pool:
        runs.play(Players(Driver(pool, 2, patience=QUICK), NAME), RunRequest.resuming(saved, scenario(NAME), CONFIG))
        other = CONFIG.model_copy(update={"seed": 4})
        with pytest.raises(ResumeMismatch, match="seed"):
            runs.play(Players(Driver(pool, 2, patience=QUICK), NAME), RunRequest.resuming(saved, scenario(NAME), other))
    assert games(saved.path) == games(here(tmp_path).record)


def test_tasks_and_words_to_force_travel_with_each_game(tmp_path: Path) -> None:
    config, name = RunConfig(model="fake", games=4, seed=2, tasks="arithmetic:steps=2"), "debate"
    alone = here(tmp_path, config, name)
    words = {e.message.id: (7, 8) for e in SavedRun(alone.record or tmp_path).entries() if e.message.kind == "decode"}
    selection = GameSelection((1, 3), lambda game: words if game == 3 else {})
    with threads() as pool:
        played = there(pool, tmp_path, config, name, selection=selection)
    forced = play(RunRequest(scenario(name), config, out=tmp_path / "forced", named=name, selection=selection))
    assert [over.game for over in played.games] == [1, 3]
    assert games(played.record) == games(forced.record)


@pytest.mark.slow
def test_a_driver_plays_several_pieces_of_work_with_the_workers_that_it_has(tmp_path: Path) -> None:
    with threads() as pool:
        driver = Driver(pool, 2, patience=QUICK)
        for mode in ("baseline", "choreographed"):
            config = RunConfig(model="fake", games=3, mode=mode)
            played = runs.play(Players(driver, NAME), RunRequest(scenario(NAME), config, out=tmp_path / mode))
            assert games(played.record) == games(here(tmp_path / mode, config).record)
        assert len(pool.started) == 2


def test_a_store_and_the_number_of_games_at_once_are_shared_by_the_workers_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []

    def loading(*given: Any) -> Any:
        shares.append(given[-1])
        return runtime.load_share(*given)

    monkeypatch.setattr("agentcho.integrations.ray.worker.load_share", loading)
    with threads() as pool:
        played = there(pool, tmp_path, workers=2, at_once=6)
    assert shares == [0.5, 0.5]
    assert 1 <= (SavedRun(played.record or tmp_path).info.most or 0) <= 6


def test_a_worker_with_another_source_refuses() -> None:
    answer = Worker().begin(WorkSpec(NAME, {}, CONFIG, sources=("another",)))
    assert isinstance(answer, WorkerRefused)
    assert (answer.kind, answer.code) == ("RecordError", 2)
    assert answer.what == (
        f"the source of {NAME} on this worker differs from the source where the run was started; "
        "install the same source on all machines"
    )


SERVED = {"model": "openai:m", "base_url": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize(
    ("usual", "changed"),
    [
        ({}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ({}, {"device": "cpu"}),
        ({}, {"device_map": "auto"}),
        ({}, {"dtype": "float32"}),
        ({}, {"threads": 1}),
        ({}, {"weights": "int8"}),
        ({}, {"kv_dtype": "int8"}),
        ({}, {"disk_tokens": 1}),
        ({}, {"keep_cache": "kept"}),
        (SERVED, {"base_url": "http://127.0.0.1:2/v1"}),
        (SERVED, {"server": "vllm"}),
        (SERVED, {"key_env": "KEY"}),
    ],
)
def test_a_worker_loads_anew_what_is_to_be_loaded_otherwise(usual: dict[str, Any], changed: dict[str, Any]) -> None:
    assert network(RunConfig(**usual | changed)) != network(RunConfig(**usual))


def test_another_adapter_goes_onto_the_network_that_is_loaded() -> None:
    assert network(RunConfig(adapter="one", temperature=1)) == network(RunConfig())


class Secret(Scenario):
    """Has a secret."""

    name = "secret"

    class Options(Scenario.Options):
        """A secret option and an ordinary one."""

        word: SecretStr = SecretStr("none")
        count: int = 1
        logins: dict[str, list[SecretStr]] = Field(default_factory=dict)
        born: pydantic.Secret[date] = pydantic.Secret[date](date(1990, 5, 1))

    async def play(self, game: Game) -> Scenario.Outcome:
        raise NotImplementedError


class Aliased(Scenario):
    """Has options of other names and computed fields."""

    name = "aliased"

    class Inner(BaseModel):
        """An option of options."""

        word: str = Field("plum", alias="as")

        @computed_field
        def size(self) -> int:
            return len(self.word)

    class Options(Scenario.Options):
        """An option with an alias, and one that is computed."""

        of: int = Field(1, alias="from")
        inner: Aliased.Inner

        @computed_field
        def double(self) -> int:
            return 2 * self.of

    async def play(self, game: Game) -> Scenario.Outcome:
        raise NotImplementedError


def test_options_with_aliases_and_computed_fields_can_be_given_to_a_worker() -> None:
    given = {"from": 2, "inner": {"as": "pear"}}
    assert plain_options(Aliased(**given)) == given


def test_a_secret_option_travels_as_it_is() -> None:
    options = {"word": "swordfish", "count": 1, "logins": {"ann": ["plum", "pear"]}, "born": "1984-02-03"}
    assert plain_options(Secret(**options)) == options
    assert Secret(**plain_options(Secret(word="swordfish"))).options.word.get_secret_value() == "swordfish"  # type: ignore[attr-defined]
