"""Tools in games: calls and results as messages, their audiences, when an agent calls, and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import anyio
import pytest

import agentcho
from agentcho import Agent, Game, Limits, RunConfig, View
from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.errors import LeakageError, RequestError, ToolFailed
from agentcho.events import Called, Calling, Ended, GameOver
from agentcho.message import EVERYONE
from agentcho.protocol.call import Decode
from agentcho.records.models import RecordedModels
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEndpoint, FakeEngine, Rehearsal, play
from agentcho.testing.rehearsal import Lines

from ..audit.transcripts import KEY, subject

ADD = '{"name": "add", "arguments": {"a": 1, "b": 2}}'


@agentcho.tool(audience="nobody")
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@agentcho.tool(audience="nobody")
def fail(why: str) -> str:
    raise ValueError(why)


@agentcho.tool(audience="nobody")
async def gone() -> str:
    raise ToolFailed("its server is gone")


@agentcho.tool(audience="nobody", timeout=None)
async def forever() -> str:
    await anyio.sleep_forever()
    return ""


def asking(lines: Sequence[str], config: RunConfig | None = None, **how: Any) -> Rehearsal:
    """Ann is asked something, may call a tool, and answers everyone; Bob speaks after her."""

    async def script(game: Game) -> None:
        ann, bob = game.cast(Agent, "ann", system="You are Ann."), game.cast(Agent, "bob")
        await ann.say(to="everyone", prompt="How much is that?", **{"tools": [add], **how})
        await bob.say(to="everyone")

    return play(script, {"ann": lines, "bob": ["ok"]}, config=config)


def by_id(played: Rehearsal) -> dict[str, TranscriptEntry]:
    return {entry.message.id: entry for entry in played.entries}


def test_a_call_and_its_result_are_private_and_what_is_said_then_is_not() -> None:
    said = by_id(asking([ADD, "Three."]))
    call, result, text = said["ann.2.step1"], said["ann.2.step1.result"], said["ann.2"]
    assert str(call.message.audience) == "ann"
    assert '"arguments": {"a": 1, "b": 2}' in call.message.text
    assert (result.message.role, result.message.author, result.message.text) == ("tool", None, "3")
    assert str(result.message.audience) == "ann"
    assert (result.origin, result.act.call) == ("tool", "ann.2.step1")
    assert text.message.audience == EVERYONE
    assert text.message.parents == ("ann.0", "ann.tools0", "ann.1", "ann.2.step1", "ann.2.step1.result")
    assert said["bob.0"].message.parents == ("ann.2",)


@pytest.mark.parametrize("known_first", [True, False])
def test_a_known_call_beside_an_unknown_one_is_made(known_first: bool) -> None:
    other = '{"name": "subtract", "arguments": {"a": 1, "b": 2}}'
    both = [ADD, other] if known_first else [other, ADD]
    said = by_id(asking(["\n</tool_call>\n<tool_call>\n".join(both), "Three."]))
    assert "subtract" in said["ann.2.step1"].message.text
    result = said["ann.2.step1.result"]
    assert (result.message.role, result.message.text) == ("tool", "3")
    use = result.act.use
    assert use is not None
    assert use.name == "add"
    assert said["ann.2"].message.parents[-2:] == ("ann.2.step1", "ann.2.step1.result")


def test_a_result_says_what_was_declared_of_its_tool() -> None:
    use = by_id(asking([ADD, "Three."]))["ann.2.step1.result"].act.use
    assert use is not None
    assert (use.name, use.audience, use.effect, use.trusted) == ("add", add.declared.audience, False, False)


@pytest.mark.parametrize("least", [0, 6])
def test_whether_to_call_is_the_markers_and_what_began_as_text_is_said_with_the_same_coins(least: int) -> None:
    coins = list[int]()

    def reply(call: Decode, prompt: str) -> str:
        coins.append(call.sampling.seed)
        return "No call."

    async def script(game: Game) -> str:
        ann = game.cast(Agent, "ann", tools=[add])
        return (await ann.say(to="everyone", min_tokens=least)).text

    played = play(script, reply)
    assert [message.text for message in played.said()] == ["No", "No call." * max(1, least // 2)]
    assert len(coins) == 2
    assert coins[0] == coins[1]


def test_a_later_say_reads_calls_and_results_and_neither_the_listing_nor_the_choices() -> None:
    async def script(game: Game) -> None:
        ann = game.cast(Agent, "ann")
        await ann.say(to="everyone", tools=[add])
        await ann.say(to="everyone")

    played = play(script, {"ann": [ADD, "Three.", "Done."]})
    last = played.said()[-1]
    assert last.parents == ("ann.0.step1", "ann.0.step1.result", "ann.0")


def test_neither_ids_nor_seeds_nor_numbers_of_turns_tell_others_how_often_a_model_called() -> None:
    def told_after(calls: int) -> tuple[object, ...]:
        lines, seeds, turns = (
            Lines({"ann": [*[ADD] * calls, "Three.", "Done."], "bob": ["ok"]}),
            dict[str, int](),
            list[int](),
        )

        def reply(call: Decode, prompt: str) -> str:
            seeds[call.name or ""] = call.sampling.seed
            return lines(call, prompt)

        def model(turn: int) -> str:
            turns.append(turn)
            return "default"

        async def script(game: Game) -> list[str]:
            ann, bob = game.cast(Agent, "ann", model=model), game.cast(Agent, "bob")
            said = await ann.say(to="everyone", tools=[add])
            heard = await bob.say(to="everyone")
            return [said.id, heard.id, (await ann.say(to="everyone")).id, await ann.tell("Over.", to="everyone")]

        played = play(script, reply)
        assert sum(entry.origin == "tool" for entry in played.entries) == calls
        return played.over.outcome, seeds, turns

    assert told_after(0) == told_after(1) == told_after(3)
    assert told_after(0)[0] == {"value": ["ann.0", "bob.0", "ann.1", "ann.2"]}


@pytest.mark.parametrize("choice", ["required", "add"])
def test_a_call_may_be_required(choice: str) -> None:
    said = asking([ADD, "Three."], tool_choice=choice).said("ann")
    assert [message.text[:5] for message in said] == ["<tool", "Three", "Three"]


def test_after_the_last_call_comes_a_text() -> None:
    said = asking([ADD, ADD, "Three."], max_calls=2).said("ann")
    assert [message.audience == EVERYONE for message in said] == [False] * 4 + [True]
    assert said[-1].text == "Three."


@pytest.mark.parametrize("mode", ["choreographed", "baseline"])
@pytest.mark.parametrize("leakage", ["enforce", "audit"])
def test_tools_work_in_every_mode_and_nothing_leaks(mode: Any, leakage: Any) -> None:
    played = asking([ADD, "Three."], RunConfig(model="fake", mode=mode, leakage=leakage))
    assert played.said("ann")[-1].text == "Three."
    assert not [record for entry in played.entries for record in entry.made if not record.cone]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"tool_choice": "sub"}, 'give "auto", "required", or one of: add'),
        ({"max_calls": 0}, "max_calls"),
        ({"tools": [add, add]}, "two tools named add"),
        ({"tools": [print]}, "a function made with @agentcho.tool"),
        ({"tools": add}, "tools"),
        ({"release": 1}, "release"),
    ],
)
def test_what_cannot_be_asked_for_is_told(how: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        asking([ADD], **how)


def test_a_choice_of_tools_without_tools_is_refused() -> None:
    with pytest.raises(RequestError, match="tool_choice is 'required', and ann has no tools; give tools"):
        asking(["Three."], tools=[], tool_choice="required")


@pytest.mark.parametrize("lockstep", [True, False])
def test_an_agent_may_speak_in_its_tool(lockstep: bool) -> None:
    """Its message is part of the act that called the tool, so nobody waits for the others within it."""
    cast = dict[str, Agent]()

    @agentcho.tool(audience="nobody", timeout=None)
    async def reflect() -> str:
        return (await cast["ann"].think()).text

    class Thinks(Agent):
        async def run(self) -> None:
            cast[self.name] = self
            tools = [reflect] if self.name == "ann" else []
            await self.say(to="everyone", tools=tools, tool_choice="required" if tools else "auto", max_calls=1)

    async def script(game: Game) -> None:
        with anyio.fail_after(10):
            await (game.lockstep if lockstep else game.play_agents)(
                *(game.cast(Thinks, name) for name in ("ann", "ben"))
            )

    call = '{"name": "reflect", "arguments": {}}'
    played = play(script, {"ann": [call, "A thought.", "Well."], "ben": ["Yes."]})
    assert [entry.message.text for entry in played.entries if entry.origin == "tool"] == ["A thought."]
    assert {message.text for message in played.said()} >= {"A thought.", "Well.", "Yes."}
    assert played.over.raced is not lockstep


@pytest.mark.parametrize("fails", [True, False])
def test_verbs_that_are_left_running_are_over_with_their_game(fails: bool) -> None:
    called, left, engine = list[str](), list[asyncio.Task[Any]](), FakeEngine(lambda call, prompt: "word " * 200)

    @agentcho.tool(audience="nobody")
    def act() -> str:
        called.append("act")
        return "done"

    async def script(game: Game) -> None:
        ann, bob, cal = (game.cast(Agent, name) for name in ("ann", "bob", "cal"))
        left.append(asyncio.ensure_future(ann.say(to="everyone", max_tokens=200)))
        left.append(asyncio.ensure_future(bob.say(tools=[act], tool_choice="required")))
        await cal.say(max_tokens=1)
        if fails:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        played = play(script, engine=engine)
        assert isinstance(played.events[-1], GameOver)
        assert {entry.message.author: entry.ended for entry in played.entries}["ann"] == "cancelled"
    assert [str(task.exception())[:14] for task in left] == ["game 0 is over"] * 2
    assert (called, engine.pages) == ([], 0)


def test_what_is_wrong_with_a_call_is_told_to_the_model() -> None:
    broken = '{"name": "fail", "arguments": {"why": "no such city"}}'
    said = by_id(asking([broken, "Sorry."], tools=[fail]))
    assert said["ann.2.step1.result"].message.text == "Error: ValueError: no such city"


def test_an_error_of_ours_that_a_tool_meets_is_told_like_any_other_and_the_call_is_over() -> None:
    @agentcho.tool(audience="nobody")
    async def look() -> str:
        return str(agentcho.load("no-such-run"))

    played = asking(['{"name": "look", "arguments": {}}', "Sorry."], tools=[look])
    assert by_id(played)["ann.2.step1.result"].message.text.startswith("Error: RecordNotFound: no run 'no-such-run'")
    assert [event.how for event in played.events if isinstance(event, Called)] == ["raised"]
    assert played.said("ann")[-1].text == "Sorry."


def test_a_leak_of_an_agent_that_a_tool_lets_speak_is_told_to_nobody_and_ends_the_game() -> None:
    async def script(game: Game) -> None:
        ann, bob = game.cast(Agent, "ann"), game.cast(Agent, "bob")
        secret = await bob.say(to="bob")

        @agentcho.tool(audience="nobody")
        async def ask() -> str:
            return (await ann.say(to="everyone", view=View.of([secret.id]))).text

        await ann.say(to="everyone", tools=[ask], tool_choice="required")

    with pytest.raises(LeakageError, match=r"ann may not read message bob\.0"):
        play(script)


def test_a_result_that_does_not_fit_the_context_is_told_too() -> None:
    @agentcho.tool(audience="nobody", most=1 << 20)
    def long() -> str:
        return "word " * 100_000

    lines = Lines({"ann": ['{"name": "long", "arguments": {}}', "Sorry."], "bob": ["ok"]})

    async def script(game: Game) -> None:
        await game.cast(Agent, "ann").say(to="everyone", tools=[long])

    played = play(script, engine=FakeEngine(lines, answer=lines, context=2000))
    assert by_id(played)["ann.0.step1.result"].message.text.startswith("Error: ")


def test_a_server_that_is_gone_ends_the_game() -> None:
    with pytest.raises(ToolFailed, match="is gone"):
        asking(['{"name": "gone", "arguments": {}}'], tools=[gone])


def test_seconds_count_while_a_tool_runs_and_it_is_cancelled() -> None:
    limits = Limits(game_seconds=0.2)
    played = asking(['{"name": "forever", "arguments": {}}'], RunConfig(model="fake", limits=limits), tools=[forever])
    assert played.over.ended == "limit: the game reached 0.2 seconds"
    assert [event.how for event in played.events if isinstance(event, Called)] == ["cancelled"]


def test_limits_are_checked_between_the_calls_of_one_say() -> None:
    calls = [ADD, ADD, ADD, "Three."]
    played = asking(calls, RunConfig(model="fake", limits=Limits(agent_messages=4)), max_calls=6)
    assert played.over.ended == "limit: ann reached 4 messages"
    assert sum(entry.message.author == "ann" and entry.message.kind == "decode" for entry in played.entries) == 4


def cancelling(**how: Any) -> Rehearsal:
    """Ann's call is cancelled while it runs; she speaks to everyone, then calls and speaks again."""

    async def script(game: Game) -> None:
        ann, bob = game.cast(Agent, "ann"), game.cast(Agent, "bob")
        begun = anyio.Event()

        @agentcho.tool(**how)
        async def slow() -> str:
            begun.set()
            await anyio.sleep_forever()
            return "done"

        async with anyio.create_task_group() as group:
            group.start_soon(partial(ann.say, to="everyone", tools=[slow], tool_choice="required"))
            await begun.wait()
            group.cancel_scope.cancel()
        await bob.say(to="everyone")
        await ann.say(to="everyone")
        await ann.say(to="everyone", tools=[add])

    calls = ['{"name": "slow", "arguments": {}}', "I am back.", ADD, "Three."]
    return play(script, {"ann": calls, "bob": ["ok"]})


@pytest.mark.parametrize("how", [{}, {"results": "bob"}, {"audience": "nobody", "idempotent": True}])
def test_a_cancelled_call_has_a_result_that_says_so_before_its_agent_reads_it(how: dict[str, Any]) -> None:
    played = cancelling(**({"audience": "nobody"} | how))
    said = by_id(played)
    result = said["ann.0.step0.result"]
    assert result.message.text.startswith("Error: this call was cancelled before it had a result")
    assert (result.message.role, str(result.message.audience), result.act.call) == ("tool", "ann", "ann.0.step0")
    assert said["ann.1"].message.text == "I am back."
    assert said["ann.1"].message.parents == ("ann.0.step0", "bob.0", "ann.0.step0.result")
    assert said["bob.0"].message.parents == ()
    assert [event.how for event in played.events if isinstance(event, Called)] == ["cancelled", "returned"]
    assert sum(id.startswith("ann.0.step0.result") for id in said) == 1


def test_a_call_is_told_of_before_it_runs_and_after_between_call_and_result() -> None:
    events = asking([ADD, "Three."]).events
    order = [
        event.entry.message.id if isinstance(event, Ended) else type(event).__name__
        for event in events
        if isinstance(event, Calling | Called | Ended)
    ]
    assert order[3:8] == ["ann.2.step0", "ann.2.step1", "Calling", "Called", "ann.2.step1.result"]


def test_others_go_on_while_a_tool_runs() -> None:
    async def script(game: Game) -> int:
        ann, bob = game.cast(Agent, "ann"), game.cast(Agent, "bob")
        spoken = anyio.Event()

        @agentcho.tool(audience="nobody")
        async def wait() -> str:
            await spoken.wait()
            return "waited"

        async def others() -> None:
            for _ in range(3):
                await bob.say(to="everyone")
            spoken.set()

        await game.together(ann.say(to="everyone", tools=[wait], tool_choice="required"), others())
        return len(game.said)

    assert play(script).over.outcome == {"value": 8}


def test_the_result_may_be_for_others_too() -> None:
    @agentcho.tool(audience="nobody", results="bob")
    def shared() -> str:
        return "42"

    said = by_id(asking(['{"name": "shared", "arguments": {}}', "Done."], tools=[shared]))
    assert str(said["ann.2.ann+bob-0.result"].message.audience) == "ann, bob"
    assert said["bob.0"].message.parents == ("ann.2.ann+bob-0.result", "ann.2")


def test_the_id_of_a_result_for_others_tells_them_of_no_call_that_they_may_not_know_of() -> None:
    @agentcho.tool(audience="nobody")
    def look() -> str:
        return "nothing"

    @agentcho.tool(audience="nobody", results="everyone")
    def roll() -> str:
        return "6"

    looks, rolls = '{"name": "look", "arguments": {}}', '{"name": "roll", "arguments": {}}'

    def heard(*calls: str) -> list[str]:
        played = asking([*calls, "Done."], tools=[look, roll])
        return [entry.message.id for entry in played.entries if entry.message.audience == EVERYONE]

    assert heard(rolls, rolls) == heard(looks, rolls, looks, rolls)
    assert heard(rolls, rolls) == ["ann.2.everyone-0.result", "ann.2.everyone-1.result", "ann.2", "bob.0"]


def test_what_the_world_learns_is_checked_before_the_call_runs() -> None:
    ran = list[str]()

    @agentcho.tool
    def post(text: str) -> str:
        ran.append(text)
        return "posted"

    line = '{"name": "post", "arguments": {"text": "x"}}'
    with pytest.raises(LeakageError, match="post by ann was not run"):
        asking([line, "Done."], tools=[post])
    assert not ran
    said = by_id(asking([line, "Done."], tools=[post], release=True))
    assert ran == ["x"]
    assert said["ann.2.step1.result"].act.release


def test_what_a_model_thought_before_a_call_does_not_stand_in_its_way() -> None:
    line = '{"name": "post", "arguments": {"text": "x"}}'

    async def script(game: Game) -> None:
        await game.announce("Post something.")
        await game.cast(Agent, "ann").say(to="everyone", tools=[post], max_calls=1)

    @agentcho.tool
    def post(text: str) -> str:
        ran.append(text)
        return "posted"

    def reply(call: Any) -> str:
        if call.sampling.json_schema is not None:
            return line
        if ran or call.sampling.choices is None:
            return "Done."
        return str(next(each for each in call.sampling.choices if each != "answer"))

    ran = list[str]()
    played = play(script, endpoint=FakeEndpoint(reply, thought="hm"))
    assert ran == ["x"]
    assert any(entry.act.thought is not None for entry in played.entries)
    about, models = subject(leakage="enforce", agents=("ann",)), RecordedModels(endpoints=frozenset({None}))
    report = audit_entries(about, {0: played.entries}, Seal(KEY), models=models)
    assert [call.verdict for call in report.calls] == ["clean"]


def test_a_model_behind_an_api_chooses_first_and_calls_by_a_schema() -> None:
    async def script(game: Game) -> None:
        ann = game.cast(Agent, "ann", system="You are Ann.")
        await ann.say(to="everyone", prompt="How much is that?", tools=[add, fail])

    def reply(call: Any) -> str:
        if call.sampling.json_schema is not None:
            assert call.sampling.json_schema["type"] == "object"
        if call.sampling.choices == ("add", "fail"):
            return "add"
        if call.sampling.choices is not None:
            return "answer" if any(each.text == "3" for each in call.messages) else "call"
        return "Three." if call.sampling.json_schema is None else ADD

    port = FakeEndpoint(reply)
    said = [entry.message for entry in play(script, endpoint=port).entries]
    assert [m.text for m in said if m.kind == "decode"] == ["call", "add", ADD, "answer", "Three."]
    assert said[-1].audience == EVERYONE
