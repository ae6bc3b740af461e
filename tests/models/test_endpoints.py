"""Models behind APIs together with engines in one game: who reads what in which form, and what is never sent to
another vendor."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentcho
from agentcho import Agent, Game, RunConfig, View
from agentcho.audit import AuditReport, audit_run
from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.config import Leakage, Mode, ModelConfig
from agentcho.errors import CallFailed, LeakageError
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.integrations.endpoints.text_engine import TextEngine
from agentcho.message import Audience, Message
from agentcho.protocol.text_calls import TextCall
from agentcho.records.models import RecordedModels
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEndpoint, FakeEngine
from tests.audit.transcripts import subject

from .stage import Scripted, Talker, seen

WAYS: tuple[tuple[Mode, Leakage], ...] = (
    ("choreographed", "audit"),
    ("choreographed", "enforce"),
    ("choreographed", "deny"),
    ("baseline", "audit"),
)


async def pair(game: Game) -> None:
    """Ann speaks on the engine, Bob behind an API, and Ann answers; only Bob reads his private thought."""
    ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob", model="far", system="Be Bob.")
    await game.announce("Talk.")
    await ann.say()
    await bob.think("Plan.")
    await bob.say(header="Bob: ")
    await ann.say()


@pytest.mark.parametrize(("mode", "leakage"), [way for way in WAYS if way[1] != "deny"])
def test_a_text_is_read_here_through_its_encoding_for_its_audience(
    mode: Mode, leakage: Leakage, tmp_path: Path
) -> None:
    far = FakeEndpoint(vendor="far")
    config = RunConfig(model="fake", mode=mode, leakage=leakage)
    played = play(RunRequest(Scripted(pair), config, engine=FakeEngine(), others={"far": far}, out=tmp_path))
    assert played.record is not None
    run = SavedRun(played.record)
    assert (played.errors, far.closed, run.info.engines["far"]["kind"]) == ({}, 1, "endpoint")
    entries = {entry.message.id: entry for entry in run.entries()}
    said = [entry for entry in entries.values() if entry.engine == "far" and entry.message.kind == "decode"]
    assert [(entry.encoding, entry.message.tokens) for entry in said] == [(None, ())] * 2
    made = [record for entry in entries.values() for record in entry.made if record.message == said[-1].message.id]
    assert {record.recipe for record in made} == {"baseline" if mode == "baseline" else "audience"}
    assert not [r for e in entries.values() for r in e.made if r.message == said[0].message.id]
    assert far.calls[-1].messages[2].name == "ann"
    report = audit_run(run)
    assert (report.conclusion, report.texts) == ("texts-clean", 2)


def test_games_on_an_endpoint_have_engines_beside_it() -> None:
    async def script(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob", model="near")
        await game.announce("Talk.")
        for _ in range(2):
            await game.together(ann.say(), bob.say())

    far = FakeEndpoint()
    found = seen(script, {"near": FakeEngine()}, engine=TextEngine(far))
    assert [entry.engine for entry in found.entries if entry.message.kind == "decode"] == [None, "near"] * 2
    assert {record.engine for record in found.made} == {"near"}
    assert len(far.calls) == 2


def test_an_author_that_moves_here_reads_its_own_words_as_its_own() -> None:
    async def script(game: Game) -> None:
        models = ["far", "default", "far"]
        ann = game.cast(Talker, "ann", model=lambda turn: models[turn])
        bob = game.cast(Talker, "bob")
        for _ in range(3):
            await ann.say()
            await bob.say()

    far = FakeEndpoint()
    found = seen(script, {"far": far}, leakage="audit")
    of_first = [record for record in found.made if record.message == "ann.0"]
    assert {(record.recipe, record.caller) for record in of_first} == {("author", "ann"), ("audience", None)}
    assert [quoted.own for quoted in far.calls[-1].messages] == [True, False, True, False]


def test_names_of_one_server_share_it_and_models_are_recorded(tmp_path: Path) -> None:
    async def script(game: Game) -> None:
        for name in ("one", "two"):
            await game.cast(Talker, f"of-{name}", model=name).say()

    far = FakeEndpoint()
    config = RunConfig(model="fake", games=2)
    played = play(
        RunRequest(Scripted(script), config, engine=FakeEngine(), others={"one": far, "two": far}, out=tmp_path)
    )
    assert played.record is not None
    run = SavedRun(played.record)
    assert (len(far.calls), far.closed, [*run.info.engines]) == (4, 1, ["one", "two"])
    assert {e.engine for e in run.entries()} == {"one"}
    assert audit_run(run).conclusion == "texts-clean"


def test_a_run_goes_on_where_its_models_are_the_same(tmp_path: Path) -> None:
    config = RunConfig(model="fake")
    played = play(RunRequest(Scripted(pair), config, engine=FakeEngine(), others={"far": FakeEndpoint()}, out=tmp_path))
    assert played.record is not None
    (played.record / "outcomes.jsonl").write_text("")
    far = FakeEndpoint()
    again = play(RunRequest.resuming(SavedRun(played.record), Scripted(pair), engine=FakeEngine(), others={"far": far}))
    assert (again.errors, far.calls) == ({}, [])
    assert audit_run(SavedRun(played.record)).conclusion == "texts-clean"


class Whisper(Agent):
    """An agent that whispers to one other."""


async def whispers(game: Game) -> str:
    """Ann, on the engine, whispers to Bob, who is behind an API."""
    ann, bob = game.cast(Whisper, "ann"), game.cast(Whisper, "bob", model="far")
    await ann.say(to="bob")
    with pytest.raises(LeakageError, match=r"may not send message ann\.0 to far: it is private"):
        await bob.say()
    return "refused"


@pytest.mark.parametrize(("mode", "leakage"), WAYS)
def test_what_is_private_does_not_leave_for_another_vendor(mode: Mode, leakage: Leakage) -> None:
    far = FakeEndpoint(vendor="far")
    seen(whispers, {"far": far}, mode=mode, leakage=leakage)
    assert not far.calls


def test_a_vendor_may_be_allowed_to_see_it() -> None:
    async def script(game: Game) -> None:
        ann, bob = game.cast(Whisper, "ann"), game.cast(Whisper, "bob", model="far")
        await ann.say(to="bob")
        await bob.say()

    far, other = FakeEndpoint(vendor="far"), FakeEndpoint(vendor="other")
    seen(script, {"far": far}, allow_vendor=("far",))
    assert len(far.calls) == 1
    with pytest.raises(LeakageError):
        seen(script, {"far": other}, allow_vendor=("far",))


def test_agents_of_one_vendor_may_whisper() -> None:
    async def script(game: Game) -> None:
        ann, bob = game.cast(Whisper, "ann", model="one"), game.cast(Whisper, "bob", model="two")
        await ann.say(to="bob")
        await bob.say()

    one, two = FakeEndpoint(vendor="far"), FakeEndpoint(vendor="far")
    seen(script, {"one": one, "two": two})
    assert two.calls[0].messages[0].name == "ann"


@pytest.mark.parametrize(("ann", "allowed", "sent"), [(None, (), 0), (None, ("far",), 1), ("too", (), 1)])
def test_what_a_tool_returns_goes_only_where_its_callers_words_go(
    ann: str | None, allowed: tuple[str, ...], sent: int
) -> None:
    @agentcho.tool(audience="nobody", results="bob")
    def note(text: str) -> str:
        return text

    async def script(game: Game) -> None:
        caller, bob = game.cast(Whisper, "ann", model=ann, system="It is fig."), game.cast(Whisper, "bob", model="far")
        await caller.say(tools=[note], tool_choice="note", max_calls=1)
        await caller.say()
        told = r"bob may not send message ann\.1\.ann\+bob-0\.result to far: it is private, and the model of ann"
        with nullcontext() if sent else pytest.raises(LeakageError, match=told):
            await bob.say()

    def reply(call: TextCall) -> str:
        return '{"name": "note", "arguments": {"text": "fig"}}' if call.sampling.json_schema else "hello"

    far, too = FakeEndpoint(vendor="far"), FakeEndpoint(reply, vendor="far")
    seen(script, {"far": far, "too": too}, allow_vendor=allowed)
    assert len(far.calls) == sent


# -- property: no private text reaches a vendor that may not see it ---------------------------------------

PLACES = {"default": None, "a": "A", "b": "B", "a-too": "A"}
NAMES = ("ann", "bob", "eve")
turn = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from([*PLACES]),
    st.sampled_from(["say", "tell", "ask"]),
    st.one_of(st.just("everyone"), st.lists(st.sampled_from(NAMES), unique=True)),
)
games = st.lists(turn, min_size=2, max_size=9)


class Watched:
    """A game of numbered texts that contain only their number, and a record of where each was sent."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self.allowed = allowed
        self.may: dict[str, frozenset[str | None] | None] = {}  # by text, the vendors that may see it (None: all)
        self.authors: dict[str, str] = {}
        self.audiences = {"Hear.": Audience(frozenset({"ann", "bob"}))}
        self.count = 0
        self.asking = ""
        self.sent: list[tuple[str | None, str, str]] = []
        self.ports = {v: FakeEndpoint(self._reply, vendor=v, name=v) for v in ("A", "B")}
        self.engines: dict[str, Any] = {"a": self.ports["A"], "b": self.ports["B"], "a-too": self._twin()}
        self._vendor = ""

    def _twin(self) -> FakeEndpoint:
        twin = FakeEndpoint(self._reply, vendor="A", name="a-too")
        self.ports["twin"] = twin
        return twin

    def fresh(self) -> str:
        self.count += 1
        return f"w{self.count}."

    def _reply(self, call: TextCall) -> str:
        return self.fresh()

    def note(self, message: Message, vendor: str | None) -> None:
        private = message.audience.members is not None
        text = message.header + message.text
        self.may[text] = frozenset({vendor}) if private and message.author is not None else None
        self.authors[text] = message.author or ""
        self.audiences[text] = message.audience

    def leaked(self) -> set[tuple[str, str]]:
        """The pairs of agent and text where a server received a text that the agent may not read."""
        calls = [call for port in self.ports.values() for call in port.calls]
        sent = [(call.header.removesuffix(": "), quoted.text) for call in calls for quoted in call.messages]
        return {(who, text) for who, text in sent if not self.audiences[text].includes(who)}

    def check(self) -> None:
        for port in self.ports.values():
            for call in port.calls:
                who = call.header.removesuffix(": ")
                for quoted in call.messages:
                    may = self.may[quoted.text]
                    fine = may is None or port.vendor in may or port.vendor in self.allowed
                    assert fine or self.authors[quoted.text] == who, (port.vendor, quoted)


@settings(max_examples=60, deadline=None)
@given(games, st.sampled_from(WAYS), st.sampled_from([(), ("A",), ("B",)]))
def test_nothing_private_reaches_a_vendor_that_may_not_have_it(
    turns: list[Any], way: tuple[Mode, Leakage], allowed: tuple[str, ...]
) -> None:
    watched = Watched(frozenset(allowed))

    async def script(game: Game) -> None:
        agents = {name: game.cast(Agent, name, system=None) for name in NAMES}
        watched.may["Hear."] = None
        await game.announce("Hear.", to=("ann", "bob"))
        for name, model, verb, to in turns:
            agent = agents[name]
            agent.model = model
            await act(game, agent, verb, to, model)

    async def act(game: Game, agent: Agent, verb: str, to: Any, model: str) -> None:
        everything = View.of(list(game.said)) if way[1] == "audit" else None
        try:
            if verb == "tell":
                id = await agent.tell(watched.fresh(), to=to, view=everything)
            else:
                prompt = watched.fresh() if verb == "ask" else None
                if prompt is not None:
                    watched.may[prompt], watched.authors[prompt] = frozenset({PLACES[model]}), agent.name
                    watched.audiences[prompt] = Audience(frozenset({agent.name}))
                id = (await agent.say(to=to, prompt=prompt, header=f"{agent.name}: ", view=everything)).id
        except LeakageError:
            return
        watched.note(game.message(id), PLACES[model])

    entries = seen(script, watched.engines, mode=way[0], leakage=way[1], allow_vendor=allowed).entries
    watched.check()
    report = judged(entries)
    texts = {entry.message.id: entry.message.header + entry.message.text for entry in entries}
    direct = {(edge.reader, texts[edge.message]) for edge in report.edges if edge.recipe == "prompt"}
    assert direct == watched.leaked()
    assert {edge.verdict for edge in report.edges if edge.recipe == "prompt"} <= {"direct"}
    assert report.texts == sum(len(port.calls) for port in watched.ports.values())
    assert report.conclusion != "clean" or not report.texts
    assert way[1] != "enforce" or report.conclusion != "findings"


def judged(entries: list[TranscriptEntry]) -> AuditReport:
    """The audit of a game on these models."""
    models = RecordedModels(frozenset({None, "a", "b", "a-too"}), frozenset({"a", "b", "a-too"}))
    return audit_entries(subject(leakage="audit"), {0: entries}, Seal(b"k" * 32), models=models)


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_prompt_that_was_sent_is_on_record_though_nobody_answered(how: str, tmp_path: Path) -> None:
    """The server has seen the prompt. Without a record the audit would find nothing and call it clean."""

    async def silent(call: TextCall) -> str:
        if how == "failed":
            raise CallFailed("the server has gone")
        await anyio.sleep_forever()
        return ""

    async def script(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob", model="far")
        await ann.say()
        with suppress(CallFailed), anyio.move_on_after(0.05):
            await bob.say()
        await ann.say()

    far = FakeEndpoint(silent)
    played = play(
        RunRequest(Scripted(script), RunConfig(model="fake"), engine=FakeEngine(), others={"far": far}, out=tmp_path)
    )
    assert (played.errors, len(far.calls)) == ({}, 1)
    assert played.record is not None
    run = SavedRun(played.record)
    [left] = [entry for entry in run.entries() if entry.engine == "far"]
    assert (left.message.parents, left.message.text, left.ended) == (("ann.0",), "", how)
    assert left.usage.ttft >= 0
    assert audit_run(run).conclusion == "texts-clean"
    assert not play(RunRequest.resuming(run, Scripted(script), engine=FakeEngine(), others={"far": far})).errors


def test_options_of_models_are_checked_by_name() -> None:
    far = ModelConfig(model="openai:m", base_url="http://127.0.0.1:1/v1")
    for models, told in (
        ({"far": ModelConfig(model="openai:m")}, "models far: openai:m is a model behind an API"),
        ({"near": ModelConfig(model="fake", server="vllm")}, "models near: server applies to models behind an API"),
    ):
        with pytest.raises(ValueError, match=told):
            RunConfig(model="fake", models=models)
    with pytest.raises(ValueError, match="deterministic has no effect on model far"):
        RunConfig(model="fake", models={"far": far}, deterministic=True)
