"""Agents that speak through a model behind an API: requests, records, and how messages end."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from agentcho import Agent, Choreographer, Game, Limits, Message, RunConfig, Scenario
from agentcho.audit import audit_run
from agentcho.errors import (
    AnswerInvalid,
    CallbackFailed,
    CallFailed,
    EndpointFailed,
    GamesFailed,
    LeakageError,
    RequestError,
    ResumeMismatch,
)
from agentcho.events import Token
from agentcho.games.runs.request import OnFailure, RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.integrations.endpoints.text_engine import TextEngine
from agentcho.protocol.text_calls import PromptMessage, TextCall, TokensSpent
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEndpoint
from agentcho.testing import play as rehearse

from .stage import Clock, Play, Script, Scripted, Talker

CONFIG = RunConfig(model="openai:fake", base_url="http://127.0.0.1:1/v1", max_tokens=12)


async def whisper(game: Game) -> None:
    """Ann keeps a plan and whispers to Bob; then Bob and Eve speak publicly."""
    ann, bob, eve = (game.cast(Talker, name, system=f"You are {name}.") for name in ("ann", "bob", "eve"))
    await game.announce("Talk.")
    await ann.think("Plan.")
    await ann.say(to="bob")
    await bob.say(header="Bob: ")
    await eve.say()


def recorded(tmp_path: Path, script: Script, port: FakeEndpoint, **how: Any) -> RunResult:
    config = CONFIG.model_copy(update={name: how.pop(name) for name in list(how) if name in RunConfig.model_fields})
    return play(RunRequest(Scripted(script), config, engine=TextEngine(port), out=tmp_path, **how))


def saved(played: RunResult) -> SavedRun:
    assert played.record is not None
    return SavedRun(played.record)


def test_a_prompt_is_what_its_author_reads_in_the_roles_that_servers_have() -> None:
    port = FakeEndpoint()
    rehearse(whisper, endpoint=port)
    last = port.calls[2]
    assert (last.header, last.messages) == (
        "Bob: ",
        (
            PromptMessage("system", None, "You are bob."),
            PromptMessage("user", None, "Talk."),
            PromptMessage("user", "ann", "I have read 4 messages."),
        ),
    )
    plan = port.calls[1].messages
    assert plan[2:] == (
        PromptMessage("user", None, "Plan."),
        PromptMessage("assistant", None, "I have read 3 messages.", own=True),
    )
    assert port.calls[3].messages[-1] == PromptMessage("user", "bob", "Bob: I have read 3 messages.")


def test_salts_are_one_for_those_who_may_read_the_same_and_a_games_own() -> None:
    salts = []
    for _ in range(2):
        port = FakeEndpoint()
        rehearse(whisper, endpoint=port)
        salts.append([call.salt for call in port.calls])
    (plan, told, bob, eve), others = salts
    assert (plan == told, len({plan, bob, eve})) == (True, 3)
    assert not {*others} & {*salts[0]}


def test_its_record_has_texts_and_what_they_cost_and_is_texts_clean(tmp_path: Path) -> None:
    port = FakeEndpoint()
    played = recorded(tmp_path, whisper, port)
    run = saved(played)
    assert (run.status, port.closed, run.info.engine["kind"]) == ("done", 1, "endpoint")
    said = [entry for entry in run.entries() if entry.message.kind == "decode"]
    lines = [json.loads(line) for line in (run.path / "transcript.jsonl").read_text().splitlines()]
    assert {(line["tokens"], line["encoding"], *line["encodings"]) for line in lines} == {(None, None)}
    assert lines[-1]["usage"]["spent"] == {"prompt": 10, "cached": 0, "completion": 5, "requests": 1, "cost": None}
    assert "spent" not in lines[0]["usage"]
    assert [entry.message.text for entry in said] == [f"I have read {n} messages." for n in (3, 4, 3, 3)]
    assert {(entry.origin, entry.engine, entry.ended) for entry in said} == {("sampled", None, None)}
    report = audit_run(run)
    assert (report.conclusion, report.texts, report.exit_code("error")) == ("texts-clean", 4, 0)


def test_it_speaks_on_both_event_loops_while_others_go_on(play: Play) -> None:
    began, gate = list[str](), anyio.Event()

    async def reply(call: TextCall) -> str:
        began.append(call.messages[0].text)
        if len(began) == 2:
            gate.set()
        await gate.wait()
        return "Well."

    async def script(game: Game) -> None:
        ann, bob = (game.cast(Talker, name, system=name) for name in ("ann", "bob"))
        await game.together(ann.say(), bob.say())

    async def work() -> None:
        async with Choreographer(TextEngine(FakeEndpoint(reply))) as c:
            await Game(c, config=CONFIG).play(Scripted(script))

    play(work)
    assert sorted(began) == ["ann", "bob"]


def test_pieces_are_on_record_before_the_code_has_them(tmp_path: Path) -> None:
    heard: list[str] = []

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        async with ann.stream() as pieces:
            async for piece in pieces:
                (file,) = tmp_path.glob("*/heard.jsonl")
                lines = [json.loads(line) for line in file.read_text().splitlines()]
                heard.append(piece)
                assert "".join(line["text"] for line in lines[1:]) == "".join(heard)

    events: list[Any] = []
    played = recorded(tmp_path, script, FakeEndpoint(pieces=3), sink=events.append)
    assert (played.errors, "".join(heard)) == ({}, "I have read 0 messages.")
    assert [event.text for event in events if isinstance(event, Token)] == heard
    assert len(heard) == 3


def test_a_prompt_is_on_record_before_it_is_sent(tmp_path: Path) -> None:
    def reply(call: TextCall) -> str:
        (file,) = tmp_path.glob("*/heard.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        begun = [line["parents"] for line in lines if "parents" in line]
        assert len(begun) == len(port.calls)
        assert len(begun[-1]) == len(call.messages)
        return "Well."

    port = FakeEndpoint(reply)
    assert not recorded(tmp_path, whisper, port).errors


def unfinished(run: SavedRun) -> list[tuple[str, str | None]]:
    return [(entry.message.text, entry.ended) for entry in run.entries() if entry.ended is not None]


class Enough(Exception):
    """Raised by code that stops listening."""


async def leaves(game: Game) -> None:
    ann = game.cast(Talker, "ann")
    with suppress(Enough):
        async with ann.stream() as pieces:
            async for _ in pieces:
                raise Enough
    await ann.say()


def test_what_was_shown_of_an_answer_that_was_left_stays_on_record(tmp_path: Path) -> None:
    async def slow(call: TextCall) -> str:
        return "one two three four" if len(port.calls) == 1 else "all"

    port = FakeEndpoint(slow, pieces=9)
    run = saved(recorded(tmp_path, leaves, port))
    ((text, ended),) = unfinished(run)
    assert ended == "cancelled"
    assert text
    assert "one two three four".startswith(text)
    assert [entry.message.text for entry in run.entries() if entry.ended is None] == ["all"]


class Dies(FakeEndpoint):
    """Its stream breaks off during the first answer."""

    async def ask(self, call: TextCall) -> Any:
        if not self.calls and call.on_text is not None:
            call.on_text("Half a ")
            self.calls.append(call)
            raise CallFailed("the stream was cut")
        return await super().ask(call)


def test_an_endpoint_that_fails_ends_its_game_alone_and_retries_play_it_again(tmp_path: Path) -> None:
    async def talk(game: Game) -> None:
        await game.cast(Talker, "ann").say()

    port = Dies()
    failed = recorded(tmp_path / "a", talk, port, games=3)
    with pytest.raises(GamesFailed):
        failed.check(3)
    assert (len(failed.errors), len(failed.games)) == (1, 3)
    assert unfinished(saved(failed)) == [("Half a ", "failed")]
    again = recorded(tmp_path / "b", talk, Dies(), on_failure=OnFailure(retries=1))
    assert not again.errors
    assert [entry.attempt for entry in saved(again).entries()] == [1, 2]
    assert audit_run(saved(again)).conclusion == "inconclusive"  # there is no reading to judge


def test_errors_in_a_group_are_played_again_if_all_of_them_may_pass(tmp_path: Path) -> None:
    async def talk(game: Game) -> None:
        async with anyio.create_task_group() as group:
            for name in ("ann", "bob"):
                group.start_soon(game.cast(Talker, name).say)

    class Refuses(FakeEndpoint):
        async def ask(self, call: TextCall) -> Any:
            if len(self.calls) < 2:
                self.calls.append(call)
                raise EndpointFailed("busy", transient=passes)
            return await super().ask(call)

    for passes in (True, False):
        how = OnFailure(retries=1)
        assert bool(recorded(tmp_path / str(passes), talk, Refuses(), on_failure=how).errors) is not passes


def test_a_run_goes_on_with_the_words_that_were_said_and_asks_for_none_of_them(tmp_path: Path) -> None:
    async def fails(call: TextCall) -> str:
        if len(first.calls) == 4:
            raise CallFailed("the server has gone")
        return f"answer {len(first.calls)}"

    first, second = FakeEndpoint(fails), FakeEndpoint(lambda call: "the last")
    run = saved(recorded(tmp_path, whisper, first))
    assert run.info.status == "failed"
    played = play(RunRequest.resuming(run, Scripted(whisper), engine=TextEngine(second)))
    assert (played.errors, len(second.calls)) == ({}, 1)
    said = [e for e in saved(played).games()[0] if e.message.kind == "decode"]
    assert [entry.message.text for entry in said] == ["answer 1", "answer 2", "answer 3", "the last"]
    assert {entry.usage.spent.completion for entry in said if entry.usage.spent} == {2}
    assert {entry.origin for entry in said} == {"sampled"}
    assert audit_run(saved(played)).conclusion == "texts-clean"


def test_a_thought_of_a_model_behind_an_api_is_its_agents_alone(tmp_path: Path) -> None:
    async def script(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob")
        said = await ann.say()
        assert (said.thought, said.text) == ("hm", "I have read 0 messages.")
        for who in (bob, ann):
            await who.say()
        if fails:
            raise CallFailed("the end")

    fails, port = True, FakeEndpoint(thought="hm")
    run = saved(recorded(tmp_path, script, port))
    assert not any("hm" in quoted.text for call in port.calls for quoted in call.messages)
    entries = {entry.message.id: entry for entry in run.entries()}
    assert list(entries)[:2] == ["ann.0.thought", "ann.0"]
    assert entries["ann.0.thought"].message.audience.to_json() == ["ann"]
    fails = False
    played = play(RunRequest.resuming(run, Scripted(script), engine=TextEngine(FakeEndpoint())))
    assert played.errors == {}
    again = {entry.message.id: entry for entry in saved(played).games()[0]}
    assert again["bob.0.thought"].message.text == "hm"
    assert again["bob.0.thought"].message.words == entries["bob.0.thought"].message.words
    assert audit_run(saved(played)).conclusion == "texts-clean"


def test_a_shared_thought_stands_in_prompts_before_what_was_said() -> None:
    async def script(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann", shares_thoughts=True), game.cast(Talker, "bob")
        for who in (ann, bob, ann):
            await who.say()

    port = FakeEndpoint(thought="hm")
    rehearse(script, endpoint=port)
    told = [[quoted.text for quoted in call.messages] for call in port.calls]
    assert told == [[], ["hm", "I have read 0 messages."], ["I have read 0 messages.", "I have read 2 messages."]]


@pytest.mark.parametrize("reported", [True, False])
def test_limits_count_what_the_server_reports_and_else_the_bytes_of_the_text(reported: bool) -> None:
    async def talk(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        for _ in range(10):
            await ann.say()

    port = FakeEndpoint(lambda call: "eins zwei", reported=reported)
    over = rehearse(talk, endpoint=port, config=RunConfig(max_tokens=50, limits=Limits(game_tokens=20))).over
    assert over.ended == "limit: the game reached 20 tokens"
    assert len(port.calls) == (10 if reported else 3)
    assert port.calls[-1].sampling.max_tokens == 2


def test_an_agents_time_ends_the_wait_for_an_answer(clock: Clock) -> None:
    async def never(call: TextCall) -> str:
        clock.jump(6)
        await anyio.sleep_forever()
        return ""

    async def talk(game: Game) -> None:
        await game.cast(Talker, "ann").say()

    async def work() -> Any:
        config = CONFIG.model_copy(update={"limits": Limits(agent_seconds=5)})
        async with Choreographer(TextEngine(FakeEndpoint(never)), quiet_after=1e9) as c:
            return await Game(c, config=config).play(Scripted(talk))

    assert clock.run(work).ended == "limit: ann reached 5 seconds"


class Move(BaseModel):
    """What is answered."""

    steps: int


def test_choices_and_answers_are_those_that_were_asked_for() -> None:
    async def script(game: Game) -> Any:
        ann = game.cast(Talker, "ann")
        choice = await ann.choose(["yes", "no"], "Well?")
        return choice, (await ann.answer(Move)).steps

    assert rehearse(script, endpoint=FakeEndpoint()).over.outcome == {"value": ["yes", 0]}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (lambda call: "perhaps", AnswerInvalid),
        (lambda call: "", AnswerInvalid),
    ],
)
def test_a_choice_that_is_none_is_an_error_and_nobody_reads_it(reply: Callable[[TextCall], str], error: Any) -> None:
    async def script(game: Game) -> Any:
        ann = game.cast(Talker, "ann")
        with pytest.raises(error):
            await ann.choose(["yes", "no"], to="everyone")
        return [message.kind for message in game.said]

    assert rehearse(script, endpoint=FakeEndpoint(reply)).over.outcome == {"value": []}


class Costly(FakeEndpoint):
    """Gives no answer, and says what its requests cost."""

    async def ask(self, call: TextCall) -> Any:
        assert call.on_spent is not None
        call.on_spent(TokensSpent(7, None, 3, 2, 0.5))
        raise AnswerInvalid("none of the choices")


def test_what_an_answer_cost_that_did_not_come_is_on_record_and_counts(tmp_path: Path) -> None:
    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        for _ in range(3):
            with suppress(AnswerInvalid):
                await ann.choose(["yes", "no"])

    run = saved(recorded(tmp_path, script, Costly(), limits=Limits(agent_tokens=5)))
    spent = [entry.usage.spent for entry in run.entries()]
    assert spent == [TokensSpent(7, None, 3, 2, 0.5)] * 2
    assert run.finished()[0].ended == "limit: ann reached 5 tokens"


class Changes(FakeEndpoint):
    """Its final text differs from what it streamed."""

    async def ask(self, call: TextCall) -> Any:
        reply = await super().ask(call)
        return reply._replace(text="other words")


def test_what_was_shown_is_what_is_said() -> None:
    async def script(game: Game) -> Any:
        with pytest.raises(AnswerInvalid, match="differs from the text that it streamed"):
            await game.cast(Talker, "ann").say()

    rehearse(script, endpoint=Changes())


def test_a_listener_that_raises_gives_its_message_up_alone() -> None:
    async def script(game: Game) -> Any:
        ann = game.cast(Talker, "ann")

        def hear(text: str) -> None:
            raise ValueError(text)

        with pytest.raises(CallbackFailed):
            await ann._speak("everyone", None, "", None, hear)
        return (await ann.say()).text

    assert rehearse(script, endpoint=FakeEndpoint()).over.outcome == {"value": "I have read 0 messages."}


def test_words_of_an_endpoint_can_be_written_whatever_it_sends() -> None:
    async def script(game: Game) -> Any:
        ann = game.cast(Talker, "ann")
        return [(await ann.say()).text, (await ann.say()).text]

    port = FakeEndpoint(lambda call: "" if len(port.calls) > 1 else "half \ud83d a letter", pieces=1)
    assert rehearse(script, endpoint=port).over.outcome == {"value": ["half \ufffd a letter", ""]}


class Late(FakeEndpoint):
    """Streams more text after its answers have ended, and reports impossible usage."""

    async def ask(self, call: TextCall) -> Any:
        for before in self.calls:
            assert before.on_text is not None
            before.on_text("late")
        reply = await super().ask(call)
        return reply._replace(spent=TokensSpent(-1, 0, 1 << 70, 1, float("nan")))


def test_nothing_comes_after_the_end_and_no_report_breaks_a_record(tmp_path: Path) -> None:
    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        await ann.say()
        await ann.say()

    run = saved(recorded(tmp_path, script, Late()))
    said = [entry for entry in run.entries() if entry.message.kind == "decode"]
    assert [entry.message.text for entry in said] == ["I have read 0 messages.", "I have read 1 messages."]
    assert {entry.usage.spent for entry in said} == {TokensSpent()}
    assert b"late" not in (run.path / "heard.jsonl").read_bytes()


def test_what_an_agent_may_not_read_is_never_sent() -> None:
    async def script(game: Game) -> Any:
        ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob")
        secret = await ann.think()
        with pytest.raises(LeakageError):
            await bob.say(view=lambda readable: _view(secret))

    port = FakeEndpoint()
    rehearse(script, endpoint=port)
    assert len(port.calls) == 1


def _view(message: Message) -> Any:
    from agentcho import View

    return View.of([message.metadata])


def test_games_are_let_in_side_by_side(tmp_path: Path) -> None:
    inside, most = 0, 0

    async def reply(call: TextCall) -> str:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        inside -= 1
        return "Well."

    async def talk(game: Game) -> None:
        await game.cast(Talker, "ann").say()

    played = play(
        RunRequest(Scripted(talk), CONFIG.model_copy(update={"games": 40}), engine=TextEngine(FakeEndpoint(reply)))
    )
    assert (len(played.games), most) == (40, 16)


def test_its_engine_encodes_nothing() -> None:
    engine = TextEngine(FakeEndpoint(context=100))
    assert (engine.context, engine.idle, engine.frame("user", None, "Hi.").tokens) == (100, True, ())
    with pytest.raises(RequestError, match="cannot encode messages here"):
        engine.submit([])
    with pytest.raises(RequestError, match="takes only text"):
        engine.framing.content.check([1])
    assert engine.framing.content.decode(engine.framing.content.encode("Grüße")) == "Grüße"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": "openai:m"}, "is a model behind an API and needs base_url"),
        ({"model": "openai:", "base_url": "http://h/v1"}, "the name after openai: is missing"),
        ({"base_url": "http://h/v1"}, "base_url applies to models behind an API"),
        ({"server": "vllm"}, "server applies to models behind an API"),
        ({"key_env": "KEY"}, "key_env applies to models behind an API"),
        (
            {"model": "openai:m", "base_url": "http://h/v1", "device": "cpu"},
            "device applies to models that are loaded here",
        ),
        ({"model": "openai:m", "base_url": "http://h/v1", "deterministic": True}, "nothing ensures"),
        ({"model": "openai:m", "base_url": "http://h/v1", "repair": "full"}, "repair has no effect"),
        ({"model": "openai:m", "base_url": "http://h/v1", "key_env": "A", "key_file": "b"}, "contradict each other"),
    ],
)
def test_options_that_contradict_each_other_are_told_apart(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        RunConfig(**options)


def test_a_key_may_lie_elsewhere_when_a_run_goes_on(tmp_path: Path) -> None:
    async def talk(game: Game) -> None:
        await game.cast(Talker, "ann").say()

    run = saved(recorded(tmp_path, talk, FakeEndpoint(), key_env="ONE"))
    other = run.info.config.model_copy(update={"key_env": "OTHER"})
    assert not play(RunRequest.resuming(run, Scripted(talk), other, engine=TextEngine(FakeEndpoint()))).errors
    moved = run.info.config.model_copy(update={"base_url": "http://elsewhere/v1"})
    with pytest.raises(ResumeMismatch, match="base_url"):
        play(RunRequest.resuming(run, Scripted(talk), moved, engine=TextEngine(FakeEndpoint())))


def test_scenarios_and_agents_need_not_know(tmp_path: Path) -> None:
    class Pair(Scenario):
        """Two agents."""

        class Outcome(Scenario.Outcome):
            """What was said."""

            said: str

        async def play(self, game: Game) -> Scenario.Outcome:
            ann = game.cast(Agent, "ann")
            return self.Outcome(said=(await ann.say(to="everyone")).text)

    assert rehearse(Pair(), endpoint=FakeEndpoint()).over.outcome == {"said": "I have read 0 messages."}
