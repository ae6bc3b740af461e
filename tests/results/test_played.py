"""Results of runs: the same right after playing and from the record, and safe to display."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars
import pytest

import agentcho
from agentcho.errors import (
    AudienceError,
    ConfigError,
    GamesFailed,
    RecordBroken,
    RecordError,
    RecordNotFound,
)
from agentcho.events import Ended, Event
from agentcho.games.results.messages import LiveMessages
from agentcho.games.results.rendering import MOST_ROWS
from agentcho.games.runs import library, runtime
from agentcho.games.runs.request import RunRequest
from agentcho.protocol.call import Decode, DefaultPrompt
from agentcho.testing import FakeEngine

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e&amp;\r\n</td>"


class Talk(agentcho.Scenario):
    """Ann thinks, tells Bob, and everybody speaks; Cyd hears public messages."""

    name = "talk"

    class Options(agentcho.Scenario.Options):
        """The numbers of a game that fails, and of one in which two agents race."""

        fails: int = -1
        races: int = -1

    class Outcome(agentcho.Scenario.Outcome):
        """The last message."""

        last: str
        parts: tuple[str, ...] = ()

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        ann, bob, _ = (game.cast(agentcho.Agent, name=name) for name in ("ann", "bob", "cyd"))
        await game.announce("Talk.")
        await ann.think("What now?")
        number = (await ann.say(to="bob")).game
        if number == self.options.fails:
            raise ValueError(HOSTILE)
        last = await bob.say(to="everyone")
        if number == self.options.races:
            await game.first(ann.say(to="everyone", max_tokens=2), bob.say(to="everyone"))
        return self.Outcome(last=last.text, parts=("a", "b"))

    def score(self, outcome: Any) -> dict[str, float]:
        """Its length."""
        return {"length": len(outcome.last), "<b>": 1.5}


def hostile(call: Decode, prompt: str) -> str:
    return HOSTILE


def play(out: Path | None = None, script: Callable[..., str] | None = None, **how: Any) -> agentcho.Played:
    options = {name: how.pop(name) for name in ("fails", "races") if name in how}
    engine = FakeEngine(script) if script else FakeEngine()
    return agentcho.run(Talk(**options), engine=engine, out=out, display="none", **{"games": 3, **how})


def told(played: agentcho.Played) -> tuple[Any, ...]:
    """Everything except times and the location of the record."""
    times = {"seconds", "first_token"}
    rows = [row for what in ("games", "messages") for row in played.table(what).rows()]
    lines = sorted(str({key: value for key, value in row.items() if key not in times}) for row in rows)
    games = [(game.number, game.scores, game.outcome, game.ended, game.raced, game.usage) for game in played.games]
    run = played.scenario, played.options, played.config, played.status, played.errors, played.model
    return lines, games, *run, sorted(map(str, played.messages()))


@pytest.mark.parametrize("how", [{}, {"fails": 1}, {"mode": "baseline"}])
def test_a_run_in_memory_one_just_recorded_and_its_record_are_the_same(tmp_path: Path, how: dict[str, Any]) -> None:
    kept, recorded = play(**how), play(tmp_path, **how)
    assert recorded.record is not None
    assert told(kept) == told(recorded) == told(agentcho.load("last", out=tmp_path))
    assert told(recorded) == told(agentcho.load(recorded.record)) == told(agentcho.load(recorded.record.name, tmp_path))
    assert (kept.record, kept.id, recorded.id) == (None, None, recorded.record.name)


def test_messages_are_those_of_an_author_or_for_a_reader() -> None:
    (game,) = play(games=1).games
    assert [m.author for m in game.messages(agent="ann")] == ["ann"] * 3
    assert {m.author for m in game.messages()} == {None, "ann", "bob"}
    bob, cyd = game.messages(readable_by="bob"), game.messages(readable_by="cyd")
    to_all = (None, "everyone"), ("bob", "everyone")
    assert [(m.author, str(m.audience)) for m in bob] == [to_all[0], ("ann", "ann, bob"), to_all[1]]
    assert [(m.author, str(m.audience)) for m in cyd] == [*to_all]
    assert game.messages(agent="ann", readable_by="cyd") == ()


def test_what_a_reader_may_read_tells_nothing_of_what_it_may_not() -> None:
    played = play(games=1)
    whole = {m.id: m for m in played.messages()}
    for reader in ("ann", "bob", "cyd"):
        known = {m.id for m in played.messages(readable_by=reader)}
        for message in played.messages(readable_by=reader):
            assert set(message.parents) <= known
            assert message.text == whole[message.id].text
            if message.author == reader:
                assert message == whole[message.id]
        columns = played.table("messages", readable_by=reader).columns
        assert not {"sampled", "encoded", "reused", "seconds", "first_token"} & set(columns)
    assert whole["bob.0"].parents != next(m for m in played.messages(readable_by="cyd") if m.id == "bob.0").parents


def test_no_reader_is_told_that_another_has_no_prompt_of_its_own() -> None:
    class Prompted(agentcho.Scenario):
        name = "prompted"

        async def play(self, game: agentcho.Game) -> agentcho.Scenario.Outcome:
            for name in ("ann", "bob"):
                await game.cast(agentcho.Agent, name).say(to="everyone")
            return self.Outcome()

    engine = FakeEngine()
    words = engine.frame("system", None, "Be a fake.")
    engine.framing.default = DefaultPrompt("Be a fake.", words.tokens, words.content)
    played = agentcho.run(Prompted(), engine=engine, display="none")
    whole = {message.id: message for message in played.messages()}
    assert whole["ann.0"].parents == ("scenario.default",)
    read = {message.id: message for message in played.messages(readable_by="bob")}
    assert (read["ann.0"].parents, read["bob.0"].parents) == ((), whole["bob.0"].parents)


@pytest.mark.parametrize("name", ["agent", "readable_by"])
def test_a_name_that_nobody_has_is_told(tmp_path: Path, name: str) -> None:
    for played in (play(games=1), play(tmp_path, games=1)):
        for ask in (played.messages, played.games[0].messages, partial(played.table, "messages")):
            with pytest.raises(AudienceError, match="'bbo'; the cast is: ann, bob, cyd"):
                ask(**{name: "bbo"})  # type: ignore[arg-type]
        assert played.messages(agent="cyd") == ()


def test_nothing_of_what_was_played_can_be_assigned() -> None:
    kept: list[Any] = []

    class Kept(Talk):
        async def play(self, game: agentcho.Game) -> Talk.Outcome:
            kept.append(await game.cast(agentcho.Agent, "eve").say())
            return self.Outcome(last="")

    agentcho.run(Kept(), engine=FakeEngine(), display="none")
    played = play(games=1)
    for each in (*kept, played, played.games[0], played.messages()[0], played.messages()[0].audience):
        for name in ("text", "id", "status", "nothing"):
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to '{name}': the object is immutable"):
                setattr(each, name, "x")
            with pytest.raises(FrozenInstanceError, match="cannot delete"):
                delattr(each, name)


def test_an_error_ends_its_game_alone_and_is_in_hand(tmp_path: Path) -> None:
    played = play(tmp_path, fails=1)
    assert (played.status, played.interrupted, [g.number for g in played.games]) == ("failed", False, [0, 1, 2])
    failed = played.game(1)
    assert failed.outcome is None
    line = inspect.getsourcelines(Talk.play)[1] + inspect.getsource(Talk.play).split("raise ValueError")[0].count("\n")
    assert failed.error == f"ValueError: {HOSTILE}"
    assert (failed.where or "").endswith(f"test_played.py:{line}")
    assert played.errors[1] == agentcho.load("last", tmp_path).errors[1] == f"{failed.where}: {failed.error}"
    assert "in play" in (failed.traceback or "")
    assert isinstance(played.exceptions[1], ValueError)
    assert agentcho.load("last", tmp_path).exceptions == {}
    assert len(failed.messages()) == 4
    with pytest.raises(GamesFailed, match=rf"1 of 3 games.*test_played\.py:{line}: ValueError"):
        played.check()
    with pytest.raises(ConfigError, match="game 7 is not over"):
        played.game(7)
    assert played.table()["error"] == [None, failed.error, None]
    assert played.table()["score.length"][1] is None
    with pytest.raises(ValueError, match="script"):
        play(fails=0, games=1)


def test_unfinished_messages_are_there_for_who_asks(tmp_path: Path) -> None:
    played = play(tmp_path, lambda *_: "word " * 40, races=0, games=1)
    (game,) = played.games
    assert game.raced
    whole, all_ = game.messages(), game.messages(unfinished=True)
    assert set(whole) < set(all_)
    assert played.table("messages", unfinished=True)["ended"].count(None) == len(whole)
    assert game.usage.messages == len(all_)


def test_tables_are_read_by_data_frames_whatever_was_said() -> None:
    played = play(script=hostile)
    frame = polars.DataFrame(played.table("messages"))
    assert HOSTILE in frame["text"].to_list()
    assert frame["audience"].to_list()[0] == ["everyone"]
    games = polars.DataFrame(played.table())
    assert games["outcome.last"].to_list() == [HOSTILE] * 3
    assert games["outcome.parts"].to_list() == ['["a", "b"]'] * 3
    assert games.schema["score.<b>"] == polars.Float64
    for wrong in ({"what": "rounds"}, {"what": "games", "agent": "ann"}):
        with pytest.raises(ConfigError, match="table"):
            played.table(**wrong)  # type: ignore[arg-type]


class Tags(HTMLParser):
    """The elements of a page, and those that are not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found, self.open = set[str](), list[str]()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        assert {name for name, _ in attrs} <= {"style"}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_nothing_that_was_said_becomes_markup_or_moves_a_cursor() -> None:
    played = play(script=hostile, fails=1)
    shown: list[Any] = [played, *played.games, played.table(), played.table("messages")]
    for each in shown:
        page = Tags(each._repr_html_())
        assert page.found <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td", "br"}
        assert page.open == []
        for text in (repr(each), each._repr_html_()):
            assert not {"\x1b", "\u202e", "\r"} & set(text)
    assert "&lt;script&gt;" in played.games[0]._repr_html_()
    assert "<b>" not in played._repr_html_()


def test_a_run_shows_itself_in_words(tmp_path: Path) -> None:
    played = play(tmp_path, fails=1)
    first, *lines = repr(played).splitlines()
    assert first == "talk: 3 games on fake, choreographed, enforce, seed 0"
    assert lines[0].split() == ["status", "failed"]
    assert any(line.split()[:2] == ["length", "mean"] for line in lines)
    assert any(line.split()[:4] == ["ended", "early", "game", "1:"] for line in lines)
    assert lines[-1].split() == ["record", str(played.record)]
    assert repr(played.games[0]).startswith("game 0\n  outcome last")
    many = play(games=MOST_ROWS + 5, at_once=5)
    assert repr(many.table()).endswith(f"{MOST_ROWS + 5} rows, {MOST_ROWS} of them shown")
    assert f"{MOST_ROWS} of them shown" in many._repr_html_()


def test_more_messages_than_are_kept_are_not_passed_over_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.api.LiveMessages", lambda: LiveMessages(most=6))
    played = play()
    assert played.games[0].scores
    with pytest.raises(RecordError, match="15 messages and no record, so only the first 6 are kept; give out="):
        played.messages()


def test_a_run_that_was_interrupted_has_what_was_said(tmp_path: Path) -> None:
    class Tired(Talk):
        async def play(self, game: agentcho.Game) -> Any:
            await super().play(game)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupt:
        agentcho.run(Tired(), engine=FakeEngine(), display="none")
    assert interrupt.value.__notes__ == ["nothing was recorded, because no folder `out` was given"]
    with pytest.raises(KeyboardInterrupt):
        agentcho.run(Tired(), engine=FakeEngine(), display="none", out=tmp_path)
    played = agentcho.load("last", tmp_path)
    assert (played.status, played.interrupted, played.games) == ("interrupted", True, ())
    assert len(played.messages()) == 5
    assert repr(played).startswith("tired: 0 of 1 game on fake")
    assert len(played.table()) == 0
    assert len(polars.DataFrame(played.table())) == 0


def test_an_interrupt_that_ends_the_event_loop_leaves_no_thread_that_the_process_waits_for() -> None:
    before = {*threading.enumerate()}

    def interrupt(event: Event) -> None:
        if isinstance(event, Ended) and event.entry.message.kind == "decode":  # from an engine step, not a game
            raise KeyboardInterrupt

    played = runtime.play(RunRequest(library.scenario("debate")(), agentcho.RunConfig(model="fake"), sink=interrupt))
    assert played.interrupted
    assert played.seconds > 0
    assert not played.games
    for thread in {*threading.enumerate()} - before:
        thread.join(5)
        assert not thread.is_alive(), thread


def test_a_scenario_may_be_named() -> None:
    played = agentcho.run("prisoners-dilemma", engine=FakeEngine(), display="none", given={"rounds": 1})
    assert played.options["rounds"] == 1
    with pytest.raises(TypeError, match="`given` needs a scenario given by its name"):
        agentcho.run(Talk(), engine=FakeEngine(), given={"fails": 1})


@pytest.fixture
def record(tmp_path: Path) -> Path:
    play(tmp_path, games=1)
    (found,) = tmp_path.iterdir()
    return found


def change(record: Path, **fields: Any) -> None:
    file = record / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_a_record_of_a_newer_version_says_what_wrote_it(record: Path) -> None:
    change(record, format="agentcho-run/3", versions={"agentcho": "0.9.1"}, config={"colour": "red"})
    wrote = r"written by agentcho '0\.9\.1', in the format agentcho-run/3; this is agentcho .*; install the version"
    with pytest.raises(RecordError, match=wrote) as told:
        agentcho.load(record)
    assert not isinstance(told.value, RecordBroken)
    change(record, versions=3)
    with pytest.raises(RecordError, match="of a newer version, in the format agentcho-run/3"):
        agentcho.load("last", record.parent)


def test_fields_that_a_newer_version_adds_are_passed_over(record: Path) -> None:
    before = told(agentcho.load(record))
    change(record, colour="red")
    for name in ("transcript.jsonl", "outcomes.jsonl"):
        lines = [json.loads(line) | {"colour": "red"} for line in (record / name).read_text().splitlines()]
        (record / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert told(agentcho.load(record)) == before


@pytest.mark.parametrize("damage", ["[3]", "{", '{"format": "agentcho-run/0x3"}', '{"format": 3}', '{"format": null}'])
def test_a_damaged_record_names_the_file_and_the_line(record: Path, damage: str) -> None:
    file = record / "run.json"
    file.write_text(damage)
    with pytest.raises(RecordBroken, match=r"run\.json:1"):
        agentcho.load(record)


def test_a_damaged_line_is_told_when_it_is_read(record: Path) -> None:
    file = record / "transcript.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "{", *lines[1:]]) + "\n")
    played = agentcho.load(record)
    assert played.games[0].scores
    for ask in (played.messages, played.table, lambda: played.games[0].usage):
        with pytest.raises(RecordBroken, match=r"transcript\.jsonl:2"):
            ask()
    (record / "outcomes.jsonl").write_text("{}\n")
    with pytest.raises(RecordBroken, match=r"outcomes\.jsonl:1"):
        agentcho.load(record)


@pytest.mark.parametrize("name", ["nothing", "", "2", "no/such/place"])
def test_an_unknown_id_is_told(record: Path, tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = record.parent if name != "2" else tmp_path_factory.mktemp("empty")
    with pytest.raises(RecordNotFound, match="no run"):
        agentcho.load(name, out=folder)
