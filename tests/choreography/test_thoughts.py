"""The thoughts of a model are private to its agent: in prompts, in cones, on record; a policy can share them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from agentcho import Agent, Choreographer, Game, Limits, RunConfig, View, load
from agentcho.audit import AuditReport
from agentcho.audit.audit import audit_entries, audit_run
from agentcho.audit.notes import Seal
from agentcho.config import Leakage, Mode
from agentcho.display.speech import MessageView, plain
from agentcho.errors import CallFailed, LeakageError, RequestError
from agentcho.events import Event, Token
from agentcho.games.results.usage import usage_of
from agentcho.games.runs import runtime
from agentcho.games.runs.recording import RecordingSink
from agentcho.games.runs.request import RunRequest
from agentcho.message import EVERYONE, Audience, Message
from agentcho.protocol.call import Decode
from agentcho.provenance.labels import Label, Monitor
from agentcho.records.models import LOCAL, RecordedModels
from agentcho.records.record import RunRecord, SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEndpoint, FakeEngine
from agentcho.testing import play as rehearse
from agentcho.viewer.talk import said as shown_on_page

from ..audit.transcripts import KEY, subject
from .stage import MODES, Play, Scripted, Talker, game, heard

LEAKAGES: tuple[Leakage, ...] = ("audit", "enforce", "deny")


def thinker(reply: str = "<think> hm </think> hello there", kept: bool = False) -> FakeEngine:
    """An engine that thinks, and always replies the same."""
    return FakeEngine(lambda call, prompt: reply, thinks=True, keeps_thoughts=kept)


class Prompts:
    """Records the prompt of each decode."""

    def __init__(self, reply: str = "<think> hm </think> hello there", kept: bool = False) -> None:
        self.seen: list[str] = []
        self._reply = reply
        self.engine = FakeEngine(self._say, thinks=True, keeps_thoughts=kept)

    def _say(self, call: Any, prompt: str) -> str:
        self.seen.append(prompt)
        return self._reply


async def talk(game: Game) -> list[Message]:
    """Two agents take turns speaking to everyone, twice each."""
    alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
    return [await who.say() for who in (alice, bob, alice, bob)]


def report(entries: list[TranscriptEntry], leakage: str = "enforce") -> AuditReport:
    """The audit report on one game."""
    return audit_entries(subject(leakage=leakage), {0: entries}, Seal(KEY))


def by_id(entries: list[TranscriptEntry]) -> dict[str, TranscriptEntry]:
    return {entry.message.id: entry for entry in entries}


def test_the_scenario_gets_thought_and_words_apart(play: Play) -> None:
    async def script(game: Game) -> None:
        said = await game.cast(Talker, "alice").say(header="To Bob: ")
        assert (said.header, said.text, said.thought) == ("To Bob: ", "hello there", "hm")
        assert said.thoughts is not None
        assert said.thoughts.audience == Audience(frozenset({"alice"}))
        assert said.stopped == "stop"

    game(play, script, thinker())


def test_a_message_without_a_thought_has_none(play: Play) -> None:
    async def script(game: Game) -> None:
        said = await game.cast(Talker, "alice").say()
        assert (said.text, said.thought, said.thoughts) == ("hello there", "", None)

    entries, _ = game(play, script, thinker("hello there"))
    assert [entry.message.id for entry in entries] == ["alice.0"]
    assert entries[0].encoding is not None


def test_a_thought_that_never_ends_leaves_nothing_to_say(play: Play) -> None:
    async def script(game: Game) -> None:
        said = await game.cast(Talker, "alice").say(max_tokens=4)
        assert (said.text, said.thought, said.stopped) == ("", "so it goes", "max_tokens")

    game(play, script, thinker("<think> so it goes on and on"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("leakage", LEAKAGES)
def test_nobody_else_reads_a_thought(play: Play, mode: Mode, leakage: Leakage) -> None:
    prompts = Prompts()
    entries, _ = game(play, talk, prompts.engine, mode, leakage)
    assert [entry.message.id for entry in entries] == [
        name for who in ("alice.0", "bob.0", "alice.1", "bob.1") for name in (f"{who}.thought", who)
    ]
    assert all("hm" not in prompt for prompt in prompts.seen)
    assert [prompt.count("hello there") for prompt in prompts.seen] == [0, 1, 2, 3]
    thoughts = {entry.message.id for entry in entries if entry.message.words.thought is not None}
    for entry in entries:
        for record in entry.made:
            assert record.cone & thoughts <= {record.message}


def test_what_is_said_is_framed_as_if_nobody_had_thought(play: Play) -> None:
    entries, _ = game(play, talk, thinker())
    plain, _ = game(play, talk, FakeEngine(lambda call, prompt: "hello there"))
    words = {id: (entry.message.tokens, entry.message.content) for id, entry in by_id(plain).items()}
    found = by_id(entries)
    assert {id: (found[id].message.tokens, found[id].message.content) for id in words} == words
    thought = found["alice.0.thought"].message
    assert thought.words.thought is not None
    assert len(thought.tokens) > len(found["alice.0"].message.tokens)


def test_a_template_that_keeps_thoughts_shows_them_to_their_author(play: Play) -> None:
    prompts = Prompts(kept=True)
    game(play, talk, prompts.engine, leakage="enforce")
    assert [prompt.count("hm") for prompt in prompts.seen] == [0, 0, 1, 1]
    assert [prompt.count("hello there") for prompt in prompts.seen] == [0, 1, 2, 3]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("leakage", LEAKAGES)
def test_thoughts_can_be_shared(play: Play, leakage: Leakage, kept: bool) -> None:
    prompts = Prompts(kept=kept)
    config = RunConfig(leakage=leakage, thoughts="audience", max_tokens=12)
    events: list[Event] = []

    async def work() -> None:
        async with Choreographer(prompts.engine, leakage=leakage) as c:
            await Game(c, 0, 0, config, sink=events.append).play(Scripted(talk))

    play(work)
    own = 1 if kept else 0
    assert [prompt.count("hm") for prompt in prompts.seen] == [0, 1, own + 1, 2 + own]
    assert [prompt.count("hello there") for prompt in prompts.seen] == [0, 1, 2, 3]
    assert all(entry.message.audience.members is None for entry in heard(events))


def test_an_agent_may_share_its_own(play: Play) -> None:
    prompts = Prompts()

    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice", shares_thoughts=True), game.cast(Talker, "bob")
        for who in (alice, bob, alice):
            await who.say()

    game(play, script, prompts.engine, leakage="enforce")
    assert [prompt.count("hm") for prompt in prompts.seen] == [0, 1, 0]


def test_a_policy_that_is_none_is_refused(play: Play) -> None:
    async def script(game: Game) -> None:
        wrong: Any = "nobody"
        with pytest.raises(RequestError, match="shares_thoughts of alice"):
            await game.cast(Talker, "alice", shares_thoughts=wrong).say()

    game(play, script, thinker())


def test_no_view_shows_a_thought(play: Play) -> None:
    shown: list[list[str]] = []

    class Looking(Agent):
        audience = "everyone"

        def view(self, readable: Any) -> Any:
            shown.append([message.id for message in readable])
            return super().view(readable)

    async def script(game: Game) -> None:
        alice, bob = game.cast(Looking, "alice"), game.cast(Looking, "bob")
        for who in (alice, bob, alice):
            await who.say()

    game(play, script, thinker())
    assert shown == [[], ["alice.0"], ["alice.0", "bob.0"]]


def test_to_look_at_a_thought_is_to_look_at_what_is_private(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        said = await alice.say()
        assert said.thought == "hm"
        await bob.say()

    entries, _ = game(play, script, thinker())
    assert "alice.0.thought" in by_id(entries)["bob.0"].act.tainted_by


@pytest.mark.parametrize(
    ("reply", "thinks", "behind"),
    [
        ("<think> hm </think> hello there", True, ("alice.1.thought",)),
        ("hello there", True, ("alice.0",)),
        ("hello there", False, ()),
    ],
)
def test_whether_there_was_a_thought_is_private_too(
    play: Play, reply: str, thinks: bool, behind: tuple[str, ...]
) -> None:
    """A model that never thinks tells nothing by not having thought. If there was no thought, that depends on what its
    author had read."""

    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await alice.think()
        said = await alice.say()
        assert (said.thoughts is None) is (reply == "hello there")
        await bob.say()

    entries, _ = game(play, script, FakeEngine(lambda call, prompt: reply, thinks=thinks))
    assert by_id(entries)["bob.0"].act.tainted_by == behind


def test_that_there_was_no_thought_tells_nothing_of_what_all_may_read(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await bob.say()
        said = await alice.say()
        assert said.thought == ""
        await bob.say()

    entries, _ = game(play, script, FakeEngine(lambda call, prompt: "hello", thinks=True))
    assert not any(entry.act.tainted_by for entry in entries)


def test_listeners_hear_what_is_said_and_no_thought(play: Play) -> None:
    pieces: list[str] = []

    async def script(game: Game) -> None:
        async with game.cast(Talker, "alice").stream() as stream:
            pieces.extend([piece async for piece in stream])
        assert stream.message is not None
        assert stream.message.thought == "hm"

    game(play, script, thinker())
    assert "".join(pieces) == "hello there"


def test_an_audit_lists_what_was_said_after_a_thought_as_a_release(play: Play) -> None:
    entries, _ = game(play, talk, thinker(), leakage="enforce")
    found = report(entries)
    assert found.conclusion == "clean"
    assert ("alice.0", ("alice.0.thought",)) in [(each.message, each.sources) for each in found.releases]


def test_an_audit_does_not_know_what_was_said_after_a_thought_that_is_not_on_record(play: Play) -> None:
    entries, _ = game(play, talk, thinker(), leakage="enforce")
    without = [entry for entry in entries if entry.message.id != "alice.1.thought"]
    assert report(without).conclusion != "clean"


def test_limits_count_a_thought_and_what_is_said_as_one_message(play: Play) -> None:
    limits = Limits(agent_messages=2)
    entries, over = game(play, talk, thinker(), limits=limits)
    assert len(entries) == 8
    assert over


def test_a_released_thought_is_the_thought_alone(play: Play) -> None:
    prompts = Prompts("<think> hm </think>for bob alone")

    async def script(game: Game) -> None:
        alice, carol = game.cast(Talker, "alice"), game.cast(Talker, "carol")
        game.cast(Talker, "bob")
        said = await alice.say(to="bob", view=View(()))
        assert said.thoughts is not None
        released = await alice.release(said.thoughts, to="everyone", view=View(()))
        assert "bob" not in game.message(released).text
        await carol.say()

    game(play, script, prompts.engine)
    assert "hm" in prompts.seen[-1]
    assert "for bob alone" not in prompts.seen[-1]


def test_tokens_of_an_answer_that_is_given_up_count_once(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.first(alice.say(), bob.say(header="At length: "))
        await alice.say(max_tokens=2)

    def reply(call: Decode, prompt: str) -> str:
        said = "<think> one two </think> seventeen eighteen nineteen twenty"
        return said if call.name == "alice" else "yes it is as you say"

    entries, over = game(play, script, FakeEngine(reply, thinks=True), limits=Limits(agent_tokens=16))
    assert [end.ended for end in over] == [None]
    sampled = by_id(entries)["alice.0.thought"].message.sampled
    assert sampled is not None
    assert sampled[1] - sampled[0] < 12
    assert by_id(entries)["alice.0"].ended == "cancelled"
    assert len(by_id(entries)["alice.0"].message.text) >= 9


def test_lines_keep_a_thought(play: Play, tmp_path: Path) -> None:
    entries, _ = game(play, talk, thinker())
    for entry in entries:
        line = json.loads(json.dumps(entry.to_json()))
        again = TranscriptEntry.from_json(line)
        assert again.message.words == entry.message.words
        assert again.act == entry.act


@pytest.mark.parametrize("thoughts", ["author", "audience"])
def test_a_run_goes_on_with_thoughts_and_words_as_they_were(tmp_path: Path, thoughts: Any) -> None:
    async def script(game: Game) -> None:
        said = await talk(game)
        assert [each.thought for each in said] == ["hm"] * 4
        if fails:
            raise CallFailed("the end")

    fails, config = True, RunConfig(model="fake", thoughts=thoughts, max_tokens=12)
    played = runtime.play(RunRequest(Scripted(script), config, engine=thinker(), out=tmp_path))
    assert played.record is not None
    first = SavedRun(played.record)
    assert first.status == "failed"
    fails = False
    again = runtime.play(RunRequest.resuming(first, Scripted(script), engine=thinker("other words")))
    assert again.errors == {}
    assert audit_run(SavedRun(played.record)).conclusion == "clean"
    before, after = ([e for e in SavedRun(played.record).attempts()[0] if e.attempt == n] for n in (1, 2))
    assert [entry.message for entry in after] == [entry.message for entry in before]
    assert [entry.act.thought for entry in after] == [entry.act.thought for entry in before]


def test_a_thought_is_shown_as_one(play: Play) -> None:
    entries, _ = game(play, talk, thinker())
    shown = {entry.message.id: plain(MessageView.of(entry)) for entry in entries}
    assert shown["alice.0.thought"] == "alice (private thought): hm"
    assert shown["alice.0"] == "alice → everyone: hello there"
    usage = usage_of(entries)
    assert usage.sampled == sum(entry.generated[1] - entry.generated[0] for entry in entries if entry.encoding)


def test_what_was_given_up_in_a_thought_or_behind_it_stays_on_record(play: Play, tmp_path: Path) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.first(alice.say(), bob.say())
        await game.first(alice.say(), bob.say(header="At length: "))
        await bob.say()

    def reply(call: Decode, prompt: str) -> str:
        if call.name == "alice":
            return "<think> one two </think> three four five six seven"
        return "yes it is as you say" if call.header else "yes"

    config, events = RunConfig(model="fake", max_tokens=12), list[Event]()
    record = RunRecord.create(tmp_path, "talk", {}, config, {"tokenizer": "fake"})
    told = RecordingSink(record, events.append)

    async def work() -> None:
        async with Choreographer(FakeEngine(reply, thinks=True), leakage="enforce") as c:
            await Game(c, 0, 0, config, sink=told, flush=told.flush).play(Scripted(script))

    play(work)
    found = by_id(SavedRun(record.path).entries())
    heard_of = {id: (entry.message.text, entry.ended) for id, entry in found.items() if entry.message.author == "alice"}
    assert {ended for _, ended in heard_of.values()} == {"cancelled"}
    assert "one two".startswith(heard_of["alice.0.thought"][0].strip())
    assert heard_of["alice.0"][0] == ""
    assert heard_of["alice.1.thought"][0].strip() == "one two"
    assert heard_of["alice.1"][0].startswith("three")
    assert report([*found.values()]).conclusion != "inconclusive"


@pytest.mark.parametrize("words", [1, 4])
def test_of_a_run_that_was_killed_the_thought_and_the_words_so_far_are_on_record(tmp_path: Path, words: int) -> None:
    class Killed(BaseException):
        """Ends the process."""

    config, heard_pieces = RunConfig(model="fake", max_tokens=12), list[str]()
    record = RunRecord.create(tmp_path, "talk", {}, config, {"tokenizer": "fake"})

    def listen(event: Event) -> None:
        if isinstance(event, Token) and event.text:
            heard_pieces.append(event.text)
            if len(heard_pieces) == words + 1:
                raise Killed

    told = RecordingSink(record, listen)

    async def work() -> None:
        engine = thinker("<think> one two </think> three four five six seven")
        async with Choreographer(engine, leakage="enforce") as c:
            await Game(c, 0, 0, config, sink=told, flush=told.flush).play(Scripted(talk))

    with suppress(BaseException):
        anyio.run(work)
    found = by_id(SavedRun(record.path).entries())
    thought = found["alice.0.thought"].message
    assert thought.words.thought is not None
    assert "one two".startswith(thought.text.strip())
    assert thought.audience.to_json() == ["alice"]


def test_an_encoding_with_a_thought_in_it_is_no_reading_for_others() -> None:
    alice, bob = (Audience(frozenset({name})) for name in ("alice", "bob"))
    monitor = Monitor()
    speaking = monitor.guard("alice.0", EVERYONE, alice)
    speaking.admit(1, ())
    monitor.add(1, Label("alice.0.thought", alice))
    assert monitor.guard("alice.1", EVERYONE, alice).admit(2, (1,)) is False
    with pytest.raises(LeakageError, match=r"alice\.0\.thought"):
        monitor.guard("bob.0", EVERYONE, bob).admit(3, (1,))


def test_results_have_thoughts_for_those_who_may_read_them(tmp_path: Path) -> None:
    config = RunConfig(model="fake", max_tokens=12)
    played = runtime.play(RunRequest(Scripted(talk), config, engine=thinker(), out=tmp_path))
    assert played.record is not None
    run = load(played.record)
    assert [each.thought for each in run.messages("alice") if each.id == "alice.0"] == ["hm"]
    assert [each.thought for each in run.messages(readable_by="bob") if each.id == "alice.0"] == [""]
    assert [each.thought for each in run.messages(readable_by="bob") if each.id == "bob.0"] == ["hm"]


def test_a_rule_for_words_asks_what_it_asks_without_a_thought(play: Play) -> None:
    async def script(game: Game) -> list[object]:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        said = await alice.say()
        await bob.say()
        with pytest.raises(LeakageError, match="alice may not say this"):
            await alice.say(prompt="Between us.")
        return [said.thought, (await alice.choose(["a", "b"]))]

    events = list[Event]()
    config = RunConfig(words="refuse", leakage="enforce", max_tokens=12)

    async def work() -> None:
        async with Choreographer(thinker(), leakage="enforce") as c:
            await Game(c, 0, 0, config, sink=events.append).play(Scripted(script))

    play(work)
    found = audit_entries(subject(words="refuse"), {0: heard(events)}, Seal(KEY))
    assert found.conclusion == "clean"
    assert found.words is not None
    assert found.words.unaccounted == 0


def forced(engine: FakeEngine, said: dict[str, str]) -> dict[str, tuple[int, ...]]:
    """What agents think and then answer, by message, as tokens: the fake thinks before no choice by itself."""
    encode = engine.framing.content.encode
    return {f"{id}.thought": (*encode("<think> hm "), *encode("</think>"), *encode(text)) for id, text in said.items()}


@pytest.mark.parametrize("behind_api", [False, True])
@pytest.mark.parametrize("ask", ["choose", "answer"])
def test_a_typed_release_keeps_its_thought_with_its_author(play: Play, behind_api: bool, ask: str) -> None:
    class Yes(BaseModel):
        sure: bool

    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice", system="The word is fig."), game.cast(Talker, "bob")
        await (alice.choose(["a", "b"], to="everyone") if ask == "choose" else alice.answer(Yes, to="everyone"))
        await bob.say()

    config = RunConfig(
        model="fake", leakage="enforce", words="refuse", leak_budget=1, thoughts="audience", max_tokens=12
    )
    prompts, far, events = Prompts(), FakeEndpoint(thought="hm"), list[Event]()
    id = "alice.1" if ask == "choose" else "alice.1.sampled"
    known = forced(prompts.engine, {"alice.1": "a" if ask == "choose" else '{"sure":true}'})

    async def work() -> None:
        async with Choreographer(prompts.engine, leakage="enforce") as c:
            await Game(c, 0, 0, config, sink=events.append, forced=known).play(Scripted(script))

    if behind_api:
        entries = [*rehearse(script, endpoint=far, config=config).entries]
        read = [each.text for each in far.calls[-1].messages]
    else:
        play(work)
        entries, read = heard(events), prompts.seen[-1:]
    thoughts = {id: str(each.message.audience) for id, each in by_id(entries).items() if id.endswith("thought")}
    assert thoughts == {f"{id}.thought": "alice", "bob.0.thought": "everyone"}
    assert not [text for text in read if "hm" in text]
    models = RecordedModels(endpoints=frozenset({None})) if behind_api else LOCAL
    found = audit_entries(subject(words="refuse", leak_budget=1), {0: entries}, Seal(KEY), models=models)
    assert found.conclusion == ("texts-clean" if behind_api else "clean")
    assert found.words is not None
    assert found.words.unaccounted == 0


def test_a_thought_is_no_act_of_the_code_and_no_answer() -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Agent, "alice"), game.cast(Agent, "bob")
        await alice.choose(["a", "b"])
        await bob.choose(["a", "b"])
        assert (await bob.think()).text
        await alice.say(to="everyone")
        await bob.release(game.message("bob.0"), to="everyone")

    entries = [*rehearse(script, endpoint=FakeEndpoint(thought="hm")).entries]
    assert {"alice.0.thought", "bob.0.thought", "alice.1.thought"} < by_id(entries).keys()
    found = {rule: [f for f in report(entries).findings if f.rule == rule] for rule in ("AC006", "AC022")}
    assert [(each.owner, each.messages) for each in found["AC022"]] == [("alice", ("alice.0",))]
    assert [each.messages for each in found["AC006"] if each.owner == "bob"] == [("alice.1",), ("bob.2",)]


def test_a_thought_that_others_read_is_an_act_of_the_code(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice", shares_thoughts=True), game.cast(Talker, "bob")
        assert (await bob.think()).text
        await alice.say()

    entries, _ = game(play, script, thinker(), leakage="enforce")
    acted = [each for each in report(entries).findings if each.rule == "AC006"]
    assert [each.messages for each in acted] == [("alice.0.thought", "alice.0")]


def test_a_page_marks_a_thought(play: Play) -> None:
    entries, _ = game(play, talk, thinker())
    seats = {"alice": 0, "bob": 1}
    marked = {entry.message.id for entry in entries if shown_on_page(entry.message, seats).get("thought")}
    assert marked == {f"{who}.{turn}.thought" for who in seats for turn in range(2)}
