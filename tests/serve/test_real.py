"""The served model on a real network: its words and tokens equal those of the engine itself."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcho import Decode, Engine, Prefill, RunConfig, Sampling
from agentcho.audit.audit import audit_run
from agentcho.engine.content_tokenizer import LONG
from agentcho.serve.request import AnswerDelta, Caller, ChatRequest, QuotedMessage, ToolDefinition, Tools
from agentcho.serve.sharing.served import ServedModel, Serving
from tests.engine.families import Family
from tests.engines import Engines
from tests.serve.stage import agent, assistant, conclusion, play, saved, system, user

TALK = (system("You are Ann. Answer in one sentence."), user("What shall we build?"), user("Say why."))


def by_the_engine(
    engine: Engine, talk: tuple[QuotedMessage, ...], tokens: int, name: str | None = None
) -> tuple[int, ...]:
    """What the engine says over the messages in order, each encoded over all before it."""
    parents: list[Prefill] = []
    for each in talk:
        parents.append(Prefill(each.text, tuple(parents), role=each.role))
    decode = Decode(parents=tuple(parents), sampling=Sampling(temperature=0, max_tokens=tokens), name=name)
    ids = engine.submit([*parents, decode])
    while not engine.idle:
        engine.step()
    words = engine.message(ids[-1])
    engine.release(ids)
    assert words.sampled is not None
    return words.tokens[slice(*words.sampled)]


@pytest.mark.slow
@pytest.mark.parametrize("caller", [Caller(), agent("ann", mode="baseline")], ids=["no society", "@baseline"])
def test_exact_reuse_says_what_the_engine_says_when_it_reads_the_whole_prompt(
    caller: Caller, engines: Engines, tmp_path: Path
) -> None:
    engine = engines.understudy()

    async def body() -> None:
        model = ServedModel("understudy", engine, RunConfig(), Serving(record=tmp_path))
        async with model.serving():
            for talk in talks:
                request = ChatRequest(talk, {"temperature": 0.0}, max_tokens=12)
                said.append((await model.answer(caller, request, lambda delta: None)).answers[0].tokens)

    later = (*TALK, assistant("Because it is there."), user("And then?"))
    talks, said = (TALK, TALK[:2], later, TALK), list[tuple[int, ...]]()
    play(body)
    assert said == [by_the_engine(engine, talk, 12, caller.agent) for talk in talks]
    assert caller.society is None or conclusion(tmp_path) == "clean"


@pytest.mark.parametrize("caller", [Caller(), agent("ann")], ids=["no society", "society"])
def test_how_likely_each_token_was_comes_with_the_text_that_it_is_of(caller: Caller, engines: Engines) -> None:
    async def body() -> None:
        model = ServedModel("understudy", engines.understudy(), RunConfig(), Serving())
        async with model.serving():
            request = ChatRequest(TALK, {"temperature": 0.0}, max_tokens=12, logprobs=3)
            heard = list[AnswerDelta]()
            [answer] = (await model.answer(caller, request, heard.append)).answers
            assert [likely.token for likely in answer.likely] == list(answer.tokens)
            told = [likely for delta in heard for likely in delta.likely]
            assert told == list(answer.likely)[: len(told)]
            assert b"".join(likely.raw for likely in answer.likely).startswith(answer.text.encode())
            for likely in answer.likely:
                assert len(likely.others) == 3
                assert likely.logprob == max(other.logprob for other in likely.others) <= 0, "the likeliest was taken"

    play(body)


@pytest.mark.parametrize("caller", [Caller(), agent("ann")], ids=["no society", "society"])
@pytest.mark.slow
def test_a_stop_string_cuts_no_call_that_must_be_and_no_json(caller: Caller, engines: Engines) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"q": {"enum": ["a.b"]}}, "required": ["q"]}
    schema["additionalProperties"] = False

    async def body() -> None:
        model = ServedModel("understudy", engines.understudy(), RunConfig(), Serving())
        async with model.serving():
            look = Tools((ToolDefinition("look", "", schema),), "required")
            stops = ('"', ".", "\n")
            called = ChatRequest(TALK, {"stop": stops}, max_tokens=90, tools=look)
            [answer] = (await model.answer(caller, called, lambda delta: None)).answers
            assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == [("look", {"q": "a.b"})]
            shaped = ChatRequest(TALK, {"stop": stops, "json_schema": schema}, max_tokens=60)
            [answer] = (await model.answer(caller, shaped, lambda delta: None)).answers
            assert (json.loads(answer.text), answer.ended) == ({"q": "a.b"}, "stop")

    play(body)


@pytest.mark.slow
def test_a_tight_store_changes_no_word(engines: Engines, tmp_path: Path) -> None:
    said: dict[int, list[str]] = {}

    async def body(tokens: int) -> None:
        engine = engines.understudy(store_tokens=tokens)
        model = ServedModel("understudy", engine, RunConfig(), Serving(record=tmp_path / str(tokens)))
        async with model.serving():
            talk: list[QuotedMessage] = [system("You are kind."), user("Tell me of the sea.")]
            for n in range(6):
                request = ChatRequest(tuple(talk), {"temperature": 0.0}, max_tokens=12)
                answers = await model.answer(agent(("ann", "bob")[n % 2]), request, lambda delta: None)
                talk += [assistant(answers.answers[0].text), user(f"Go on, {n}.")]
                said.setdefault(tokens, []).append(answers.answers[0].text)

    for tokens in (8192, 512):
        play(body, tokens)
        assert conclusion(tmp_path / str(tokens)) == "clean"
    assert said[8192] == said[512]


def test_a_deterministic_server_says_so_in_its_records_and_no_audit_warns(engines: Engines, tmp_path: Path) -> None:
    async def body() -> None:
        serving = Serving(record=tmp_path, deterministic=True)
        async with ServedModel("understudy", engines.understudy(), RunConfig(), serving).serving() as model:
            for name in ("ann", "bob"):
                asked = ChatRequest(TALK, {"temperature": 0.0}, max_tokens=4)
                await model.answer(agent(name, mode="enforce"), asked, lambda delta: None)

    play(body)
    report = audit_run(saved(tmp_path))
    assert report.conclusion == "clean"
    assert report.subject.deterministic
    assert "AC005" not in {finding.rule for finding in report.findings}


def test_others_go_on_while_a_long_text_is_tokenised(engines: Engines) -> None:
    content, over = engines.understudy().framing.content, list[int]()
    text = "The sea is blue, and so is the sky. " * 5000

    def tokenise() -> None:
        over.append(len(content.encode(text)))

    waits, thread = 0, threading.Thread(target=tokenise)
    thread.start()
    while not over:
        time.sleep(0.001)
        waits += 1
    thread.join()
    assert waits >= 5
    pieces = content.encode(text[: LONG - 1])
    assert content.encode(text)[: len(pieces) - 3] == pieces[:-3]


@pytest.mark.parametrize("caller", [Caller(), agent("ann")], ids=["no society", "society"])
def test_a_call_that_must_be_stands_in_the_talk_as_the_template_writes_it(caller: Caller, engines: Engines) -> None:
    engine = engines(Family("llama", "Llama", style="hermes"))
    offered = Tools(
        (ToolDefinition("weather", "", {"type": "object", "properties": {"day": {"type": "integer"}}}),), "required"
    )

    async def body() -> None:
        async with ServedModel("m", engine, RunConfig(), Serving()).serving() as model:
            asked = ChatRequest((user("Is it cold?"),), max_tokens=60, tools=offered)
            first = await model.answer(caller, asked, lambda delta: None)
            [answer] = first.answers
            [call] = answer.calls
            assert answer.tokens == engine.framing.tools.called(*call[:2])[1]
            assert answer.text.startswith("<tool_call>")
            said = QuotedMessage("assistant", "", None, answer.id, (call._replace(id="c"),))
            more = (*asked.messages, said, QuotedMessage("tool", "minus nine", call_id="c"))
            usage = (await model.answer(caller, replace(asked, messages=more), lambda delta: None)).usage
            assert usage.exact + usage.reused >= first.usage.prompt + len(answer.tokens) - int(engine.bos)

    play(body)
