"""Replay: every text is forced, each message starts when its parents are done, nothing is encoded twice needlessly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from agentcho import After, Agent, Choreographer, Engine, Game, Metadata, Read, Scenario, View, replay
from agentcho.config import ReuseOptions, ReusePolicy, RunConfig
from agentcho.errors import ArgumentError, CallFailed, LeakageError, RecordBroken
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.records.record import find
from agentcho.records.trace import Workflow
from agentcho.testing import FakeEngine

from .engines import Engines

Message = dict[str, Any]


def prefill(id: str, *parents: str, **changes: Any) -> Message:
    message: Message = {"id": id, "kind": "prefill", "role": "user", "author": "ada", "audience": "everyone"}
    return message | {"parents": list(parents), "text": f"known {id}"} | changes


def decode(id: str, *parents: str, **changes: Any) -> Message:
    return prefill(id, *parents, kind="decode", role="assistant", header="To all:", text="one two three") | changes


def trace(*messages: Message) -> Message:
    return {
        "format": "agentcho-trace/1",
        "workflow": "w",
        "id": "w0",
        "agents": ["ada", "ben"],
        "messages": list(messages),
    }


def tree(width: int) -> Message:
    """Rules and a question, `width` parallel answers, and one vote over all of them."""
    answers = [f"a{i}" for i in range(width)]
    return trace(
        prefill("rules"),
        prefill("question", "rules"),
        *(decode(id, "rules", "question", text=f"{id} is it") for id in answers),
        prefill("vote", "rules", *answers),
        decode("best", "rules", *answers, "vote"),
    )


def test_side_by_side_takes_the_longest_chain_and_encodes_each_once() -> None:
    engine = FakeEngine()
    replayed = replay(tree(8), engine, leakage="audit", logits=False)
    lengths = {entry.message.id: len(entry.message.tokens) for entry in replayed.entries}
    assert replayed.encoded == sum(lengths.values())
    assert replayed.steps < 2 * (1 + 3 + 2), "two rounds of three words each, their framing, the shared prompt"
    assert (engine.pages, engine.rows) == (0, 0)
    assert list(replayed) == [*(f"a{i}" for i in range(8)), "best"]
    assert replayed["best"].entry.message.text == "one two three"
    assert all(0 <= m.ttft <= m.seconds <= replayed.seconds for m in replayed.values())


def test_baseline_encodes_a_shared_prompt_once_and_what_others_said_again() -> None:
    replayed = replay(tree(3), FakeEngine(), mode="baseline", logits=False)
    lengths = {entry.message.id: len(entry.message.tokens) for entry in replayed.entries}
    once = sum(lengths.values())
    assert replayed.encoded == once + sum(lengths[f"a{i}"] for i in range(3))


def test_a_chain_waits_for_what_it_reads() -> None:
    engine = FakeEngine()
    chain = trace(prefill("p"), decode("x", "p"), prefill("q", "x"), decode("y", "p", "x", "q"), decode("z", "p"))
    replayed = replay(chain, engine, leakage="audit", logits=False)
    order = [entry.message.id for entry in replayed.entries]
    assert order.index("x") < order.index("q") < order.index("y")
    assert order.index("z") < order.index("y")
    assert replayed["y"].entry.message.parents == ("p", "x", "q")


def test_offsets_are_kept_in_choreographed_mode_alone() -> None:
    gap = trace(prefill("p"), prefill("q"), decode("x", "q", "p", offsets=[30, None], new_offset=70))
    receipt = replay(gap, FakeEngine(), leakage="audit", logits=False)["x"].receipt
    assert (receipt.context[0].offset, receipt.start) == (30, 70)
    baseline = replay(gap, FakeEngine(), mode="baseline", logits=False)["x"]
    assert (baseline.receipt.context[0].offset, baseline.entry.message.offsets) == (1, (30, None))


def test_direct_leaks_are_refused_before_anything_or_recorded() -> None:
    leak = trace(prefill("p", author="ben", audience=["ben"]), decode("x", "p"))
    engine = FakeEngine()
    with pytest.raises(LeakageError, match="ada may not read message p"):
        replay(leak, engine, mode="baseline", logits=False)
    assert engine.steps == 0
    for mode in ("baseline", "choreographed"):
        assert replay(leak, engine, mode=mode, leakage="audit", logits=False)["x"].entry.direct == ("p",)


def test_what_an_encoding_carries_is_refused_under_deny_and_encoded_anew_under_enforce() -> None:
    talk = trace(
        prefill("plan", author="ben", audience=["ben"]), decode("said", "plan", author="ben"), decode("heard", "said")
    )
    engine = FakeEngine()
    with pytest.raises(LeakageError, match="said <- plan"):
        replay(talk, engine, leakage="deny", logits=False)
    assert engine.steps == 0
    for options in ({}, {"shadow": "never"}, {"deterministic": True}):
        heard = replay(talk, engine, logits=False, **options)["heard"].entry.own
        assert heard is not None
        assert sorted(heard.cone) == ["heard", "said"]
    heard = replay(talk, engine, leakage="audit", logits=False)["heard"].entry.own
    assert heard is not None
    assert "plan" in heard.cone


def test_tokens_win_where_the_tokenizer_is_the_engines() -> None:
    engine = FakeEngine()
    first = replay(tree(1), engine, leakage="audit", logits=False)
    tokens = first["a0"].entry.message.tokens
    other = [*tokens[:-2], *engine.framing.content.encode(" else"), tokens[-1]]
    for tokenizer, text in (("fake", "a0 is else"), ("another", "a0 is it")):
        line = tree(1)
        line["messages"][2] |= {"tokens": other, "tokenizer": tokenizer}
        assert replay(line, engine, leakage="audit", logits=False)["a0"].entry.message.text == text
    for wrong in (tokens[:-1], tokens[1:], (*tokens[:-3], *tokens[-2:])[:3]):
        line["messages"][2] |= {"tokens": list(wrong), "tokenizer": "fake"}
        with pytest.raises(RecordBroken, match="message a0"):
            replay(line, engine, leakage="audit", logits=False)


def test_a_bad_trace_never_reaches_the_engine() -> None:
    with pytest.raises(RecordBroken, match="parents must come earlier"):
        replay(trace(decode("x", "y")), FakeEngine())


def test_it_works_where_an_event_loop_runs() -> None:
    async def notebook() -> int:
        return len(replay(tree(2), FakeEngine(), leakage="audit", logits=False))

    assert asyncio.run(notebook()) == 3


def test_an_engine_error_comes_out_as_it_is() -> None:
    engine = FakeEngine(faulty=lambda call: ValueError("no luck") if call.header == "To all:" else None)
    with pytest.raises(CallFailed, match="no luck"):
        replay(tree(2), engine, leakage="audit", logits=False)
    assert (engine.pages, engine.rows) == (0, 0)


# On a real engine


class Backwards(Agent):
    """Reads the newest message first, and leaves a gap before its own."""

    def view(self, readable: Sequence[Metadata]) -> View:
        reads = tuple(Read(m.id) for m in reversed(readable))
        return View(reads, After(reads[-1].id, 3))


class Talk(Scenario):
    """Two agents think in parallel, then talk; one reads backwards."""

    name = "talk"

    async def play(self, game: Game) -> Scenario.Outcome:
        ada = game.cast(Agent, "ada", system="You are Ada.", audience="everyone")
        ben = game.cast(Backwards, "ben", system="You are Ben.", audience="everyone")
        await game.announce("What is it?")
        await game.together(ada.think("Think."), ben.think("Think."))
        await ada.say(header="To Ben: ", stop=("a",))
        await ben.say(header="To Ada: ")
        await ada.choose(["yes", "no"], opening='"', closing='"', to="everyone")
        return self.Outcome()


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    return engines()


@pytest.fixture(scope="module", params=["choreographed", "baseline"])
def exported(request: pytest.FixtureRequest, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A recorded greedy game as a trace, in either mode."""
    out = tmp_path_factory.mktemp("runs")
    config = RunConfig(mode=request.param, temperature=0, max_tokens=9, top_p=1)
    play(RunRequest(Talk(), config, engine=engine, out=out))
    (workflow,) = find("last", out).export()
    return workflow


def test_a_recorded_game_replays_token_by_token(engine: Engine, exported: Workflow) -> None:
    places = {m.author: (m.offsets, m.new_offset) for m in exported.messages if m.kind == "decode"}
    mode: Any = "choreographed" if places["ben"] != (None, None) else "baseline"
    replayed = replay(exported, engine, mode=mode, leakage="audit")
    assert len(replayed) == 5
    by_id = {m.id: m for m in exported.messages}
    for entry in replayed.entries:
        assert entry.message.tokens == by_id[entry.message.id].tokens
        assert entry.message.audience == by_id[entry.message.id].readers


class Stopped(Scenario):
    """Messages that end by a hidden token, by a visible one, by a text, and by a text of two tokens."""

    name = "stopped"

    async def play(self, game: Game) -> Scenario.Outcome:
        ada = game.cast(Agent, "ada", system="You are Ada.", audience="everyone")
        (go, halt) = (letter[-1] for letter in self.letters)
        told: Any = {"allowed_token_ids": [go, halt], "logit_bias": {halt: 90}, "min_tokens": 2, "max_tokens": 9}
        await ada.say(**told, stop_token_ids=[halt])
        await ada.say(**told, stop_token_ids=[halt], include_stop_str_in_output=True)
        await ada.say(**told, stop=["y"])
        await ada.say(header="y", **told, stop=["yy"])
        return self.Outcome()

    letters: tuple[list[int], ...] = ()


def test_a_text_that_was_cut_where_it_stopped_is_cut_there_again(engine: Engine, tmp_path: Path) -> None:
    scenario = Stopped()
    encode = engine.framing.content.encode
    Stopped.letters = encode("x"), encode("y")
    play(RunRequest(scenario, RunConfig(mode="choreographed", leakage="audit"), engine=engine, out=tmp_path))
    (workflow,) = find("last", tmp_path).export()
    said = [message.text for message in workflow.messages if message.kind == "decode"]
    assert said == ["xx", "xxy", "yy", "y"]
    again = replay(workflow, engine, mode="choreographed", leakage="audit", logits=False)
    assert [entry.message.text for entry in again.entries if entry.message.kind == "decode"] == said
    assert [entry.message.tokens for entry in again.entries] == [message.tokens for message in workflow.messages]


def rebuilt(engine: Engine, workflow: Workflow, offsets: Callable[[Any], dict[str, Any]]) -> dict[str, int]:
    """The encodings of a choreographed trace, remade with the engine's own calls."""
    ids: dict[str, int] = {}
    for message in workflow.messages:
        places = {"parents": [ids[parent] for parent in message.parents], "name": message.name, **offsets(message)}
        if message.kind == "prefill":
            ids[message.id] = engine.prefill(message.text, role=message.role, **places)
        else:
            forced = tuple(engine.framing.content.encode(message.text))
            ids[message.id] = engine.decode(message.header or "", forced=forced, **places)
    return ids


def test_logits_are_what_the_engine_scores(engine: Engine) -> None:
    line = trace(
        prefill("p", role="system"),
        prefill("q", "p", author=None),
        decode("x", "p", "q", name="ada"),
        decode("y", "q", "x", "p", offsets=[40, None, 9], new_offset=80, text="naïve 日本"),
        decode("z", "y", text=""),
    )
    replayed = replay(line, engine, leakage="audit")
    messages = {m["id"]: m for m in line["messages"]}

    def offsets(message: Any) -> dict[str, Any]:
        return {"offsets": message.offsets, "new_offset": message.new_offset}

    ids = rebuilt(engine, Workflow.model_validate(line), offsets)
    for id in ("x", "y", "z"):
        asked = messages[id]
        scored = engine.score(
            asked["text"],
            header=asked["header"],
            parents=[ids[p] for p in asked["parents"]],
            name=asked.get("name"),
            offsets=asked.get("offsets"),
            new_offset=asked.get("new_offset"),
        )
        rows = replayed[id].logits
        assert rows.shape == scored.shape == (len(engine.framing.content.encode(asked["text"])) + 1, rows.shape[1])
        assert (rows.log_softmax(-1) - scored).abs().max() < 1e-4
    engine.release(ids.values())


def test_a_greedy_game_is_what_its_logits_say(engine: Engine, tmp_path: Path) -> None:
    play(RunRequest(Talk(), RunConfig(temperature=0, max_tokens=9, top_p=1), engine=engine, out=tmp_path))
    (workflow,) = find("last", tmp_path).export()
    replayed = replay(workflow, engine, leakage="audit")
    for id in ("ada.2", "ben.2"):
        message = replayed[id].entry.message
        assert message.sampled is not None
        start, stop = message.sampled
        assert stop > start
        assert replayed[id].logits[: stop - start].argmax(-1).tolist() == list(message.tokens[start:stop])


def test_a_policy_is_given_whole_or_its_fields_by_name_and_by_position_for_one_more_version() -> None:
    line, audit = trace(decode("x")), ReusePolicy(leakage="audit")
    assert get_type_hints(ReuseOptions).keys() == set(ReusePolicy._fields)
    assert Choreographer(FakeEngine(), audit, shadow="never").reuse == audit._replace(shadow="never")
    with pytest.warns(DeprecationWarning, match="by position are removed in 0.6") as told:
        opened = Choreographer(FakeEngine(), "choreographed", "audit")
    assert opened.reuse == audit
    assert told[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="by position are removed in 0.6") as told:
        found = replay(line, FakeEngine(), "baseline", "audit", False, False)
    assert told[0].filename == __file__
    assert found["x"].logits is None
    assert found["x"].receipt == replay(line, FakeEngine(), ReusePolicy("baseline"), logits=False)["x"].receipt
    with pytest.raises(ArgumentError, match="after a ReusePolicy by name"):
        replay(line, FakeEngine(), audit, False)
