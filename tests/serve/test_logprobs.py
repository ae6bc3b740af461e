"""Log-probabilities shown to clients reveal nothing about what else the server computes at the same time.

Requests are sent over HTTP. Answers wait until all requests that are to share the same steps have arrived.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from agentcho import Engine, RunConfig
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, Decode, EnginePort, SchedulingPriority, StepResult
from agentcho.serve.api_errors import ApiError
from agentcho.serve.config import ServeConfig
from agentcho.serve.request import Answers, Caller, ChatRequest, Hear, LogprobsRule, ServedMode
from agentcho.serve.sharing.served import ServedModel, Serving
from agentcho.testing import FakeEngine
from tests.engine.families import middle_sized
from tests.engines import Engines
from tests.serve.door import Door, opened, play
from tests.serve.stage import agent, assistant, conclusion, served, system, user
from tests.serve.stage import play as play_model

LENGTHS = (0, 6, 25)
SECRET = "The patient is well and may go home on Sunday, but the doctor wants to see him again before the month ends."
SAID = "I sell red boats."
QUICK = (
    ("float32", "chat/completions", "whole", "society"),
    ("bfloat16", "responses", "stream", "no society"),
)
Shown = list[tuple[str, float]]


class Together(ServedModel):
    """A model that starts answering only when `expected` requests have arrived."""

    def __init__(self, engine: Engine, rule: LogprobsRule, deterministic: bool = False) -> None:
        serving = Serving(logprobs=rule, deterministic=deterministic)
        super().__init__("m", engine, RunConfig(), serving)
        self.expected, self._come, self._all = 1, 0, anyio.Event()

    async def answer(self, caller: Caller, request: ChatRequest, hear: Hear) -> Answers:
        """Waits, then answers."""
        self._come += 1
        if self._come == self.expected:
            self._come, everyone, self._all = 0, self._all, anyio.Event()
            everyone.set()
        else:
            await self._all.wait()
        return await super().answer(caller, request, hear)


class Talk:
    """Requests to one server, each concurrent with a hidden message of `hidden` tokens that none of the clients may
    read (0: without one). Each talk has its own society or its own cache salt, so it shares nothing with other
    talks."""

    def __init__(self, door: Door, model: Together, society: bool, hidden: int) -> None:
        self._door, self._model, self._society, self._hidden = door, model, society, hidden
        self._words = _words(model.engine, hidden)

    async def beside(self, *asks: Any) -> list[Any]:
        """The results of these requests, concurrent with the hidden message."""
        self._model.expected = len(asks) + bool(self._hidden)
        found: dict[int, Any] = {}

        async def run(place: int, ask: Any) -> None:
            found[place] = await ask()

        async with anyio.create_task_group() as group:
            if self._hidden:
                group.start_soon(self._hide)
            for place, ask in enumerate(asks):
                group.start_soon(run, place, ask)
        return [found[place] for place in range(len(asks))]

    async def _hide(self) -> None:
        """Generates the hidden message for another agent; its log-probabilities are shown only to that agent."""
        messages = [{"role": "system", "content": "You are the clerk."}, {"role": "user", "content": "Say it."}]
        body: dict[str, Any] = {"messages": messages, "structured_outputs": {"choice": [self._words]}}
        body["logprobs"] = self._hidden % 2 == 1
        body |= {"agentcho": {"audience": ["clerk"]}} if self._society else {"cache_salt": "of the clerk"}
        answer = await self._post("clerk", "chat/completions", body)
        assert json.loads(answer)["usage"]["completion_tokens"] == self._hidden, answer

    async def ask(self, agent: str, api: str, stream: bool, messages: Sequence[Any]) -> Shown:
        """Lets an agent say `SAID`; returns all log-probabilities of the answer."""
        body: dict[str, Any] = {"stream": stream, "top_logprobs": 3, "structured_outputs": {"choice": [SAID]}}
        body |= {"messages": messages, "logprobs": True} if api == "chat/completions" else {"input": messages}
        found = list(_shown(await self._post(agent, api, body), api, stream))
        assert "".join(token for token, _ in found[::4]) == SAID
        return found

    async def tell(self, agent: str, messages: Sequence[Any]) -> None:
        """Lets an agent say `SAID`, without requesting log-probabilities."""
        answer = await self._post(
            agent, "chat/completions", {"messages": messages, "structured_outputs": {"choice": [SAID]}}
        )
        assert json.loads(answer)["choices"][0]["message"]["content"] == SAID, answer

    async def _post(self, agent: str, api: str, body: dict[str, Any]) -> str:
        where = f"/s/{self._hidden}/{agent}" if self._society else ""
        salt = {} if self._society else {"cache_salt": str(self._hidden)}
        answer = await self._door.client.post(f"{where}/v1/{api}", json={"model": "m"} | salt | body)
        assert answer.status_code == 200, answer.text
        return answer.text


def _words(engine: EnginePort, tokens: int) -> str:
    """A text of this many tokens."""
    return next(text for end in range(100) if len(engine.framing.content.encode(text := SECRET[:end])) == tokens)


def _shown(text: str, api: str, stream: bool) -> Iterator[tuple[str, float]]:
    """All log-probabilities of an answer with their tokens: of each sampled token, and of the likeliest ones."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    for event in map(json.loads, lines if stream else [text]):
        for each in _logprobs(event, api, stream):
            yield each["token"], each["logprob"]
            for other in each["top_logprobs"]:
                yield other["token"], other["logprob"]


def _logprobs(event: dict[str, Any], api: str, stream: bool) -> list[Any]:
    found: list[Any]
    if api == "chat/completions":
        found = [each for choice in event["choices"] for each in (choice["logprobs"] or {"content": ()})["content"]]
    elif stream:
        found = event["logprobs"] if event["type"] == "response.output_text.delta" else []
    else:
        found = [each for item in event["output"] for part in item["content"] for each in part["logprobs"]]
    return found


def shown(
    engine: Engine, lengths: Sequence[int], api: str, stream: bool, society: bool, rule: LogprobsRule
) -> list[list[Shown]]:
    """What two clients are shown, for each length of the hidden messages beside their requests.

    Bob says something, under the fast profile, beside the first hidden message. Then he is asked again over his own
    words while Carol is asked over them too, each beside another hidden message.
    """
    found = list[list[Shown]]()

    async def body() -> None:
        model = Together(engine, rule)
        async with model.serving(), opened(model, late=600.0) as door:
            for hidden in lengths:
                talk = Talk(door, model, society, hidden)
                brief = [{"role": "system", "content": "You are Bob."}]
                asked = [{"role": "user", "content": "Who are you, and what do you sell?"}]
                await talk.beside(partial(talk.tell, "bob", [*brief, *asked]))
                later = [*asked, {"role": "assistant", "content": SAID}, {"role": "user", "content": "And why?"}]
                bob = partial(talk.ask, "bob", api, stream, [*brief, *later])
                [first] = await talk.beside(bob)
                other = [{"role": "system", "content": "You are Carol."}, *later]
                [second, third] = await talk.beside(partial(talk.ask, "carol", api, stream, other), bob)
                found.append([first, second, third])

    play(body)
    return found


API = ("chat/completions", "responses")
CELLS = [
    pytest.param(*cell, id="-".join(map(str, cell)).replace("/", "-"), marks=() if cell in QUICK else pytest.mark.slow)
    for cell in product(("float32", "bfloat16"), API, ("whole", "stream"), ("society", "no society"))
]


@pytest.mark.parametrize(("dtype", "api", "form", "place"), CELLS)
def test_no_bit_depends_on_how_long_a_hidden_message_beside_it_is(
    engines: Engines, dtype: str, api: str, form: str, place: str
) -> None:
    engine = engines(middle_sized(), dtype)
    first, *others = shown(engine, LENGTHS, api, form == "stream", place == "society", "exact")
    assert [other == first for other in others] == [True] * (len(LENGTHS) - 1)


@pytest.mark.parametrize("place", ["society", pytest.param("no society", marks=pytest.mark.slow)])
def test_raw_ones_tell_of_it(engines: Engines, place: str) -> None:
    first, *others = shown(engines(middle_sized()), LENGTHS, API[0], False, place == "society", "raw")
    assert [other == first for other in others] == [False] * (len(LENGTHS) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("place", ["society", "no society"])
def test_no_bit_depends_on_any_length_from_0_to_25(engines: Engines, dtype: str, place: str) -> None:
    first, *others = shown(engines(middle_sized(), dtype), range(26), API[0], True, place == "society", "exact")
    assert [other == first for other in others] == [True] * 25


class Watched(FakeEngine):
    """An engine that notes for each encoding what it was made over, and whether a step outside the deterministic
    profile contributed to it. `asked` are the encodings of calls that request log-probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.over: dict[int, list[int]] = {}
        self.fast, self.asked, self.salts = set[int](), set[int](), dict[int, str]()

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[int, ...]:
        """Notes the submitted calls."""
        ids = super().submit(calls, turn)
        of = {id(call): number for call, number in zip(calls, ids, strict=True)}
        for call, number in zip(calls, ids, strict=True):
            self.salts[number] = call.salt
            self.over[number] = [parent if isinstance(parent, int) else of[id(parent)] for parent in call.parents]
            self.asked |= {number} if isinstance(call, Decode) and call.logprobs is not None else set()
        return ids

    def step(self, deterministic: bool = False) -> StepResult:
        """Notes which calls are in progress."""
        self.fast |= set() if deterministic else self._scheduler.in_flight
        return super().step(deterministic)

    def behind(self, id: int) -> set[int]:
        """An encoding, and all encodings that it was made over."""
        return {id}.union(*map(self.behind, self.over[id]))


@pytest.mark.parametrize("mode", ["enforce", "audit", "baseline", None])
def test_all_behind_a_logarithm_that_is_shown_was_made_in_the_deterministic_profile(
    mode: ServedMode | None, tmp_path: Path
) -> None:
    engine = Watched()

    async def body() -> None:
        async with served(None if mode is None else tmp_path, engine) as at:
            talk = [user("shall we build a bridge")]
            said = dict[tuple[str, int | None], Answers]()

            async def one(name: str, logprobs: int | None) -> None:
                who = Caller() if mode is None else agent(name, mode=mode)
                request = ChatRequest((system(f"you are {name}"), *talk), max_tokens=4, logprobs=logprobs)
                said[name, logprobs] = await at.model.answer(who, request, lambda delta: None)

            for turn in range(3):
                await one("cem", None)  # alone: no request for log-probabilities beside it
                async with anyio.create_task_group() as group:
                    for name, logprobs in (("ann", None), ("ann", 2), ("bob", 0), ("dan", None)):
                        group.start_soon(one, name, logprobs)
                await one("ann", 2)
                await one("ann", 2)  # of two at once, each may have encoded a message itself
                used, opening = said["ann", 2].usage, engine.framing.opening("assistant", mode and "ann")
                assert used.exact + used.reused == used.prompt - len(opening) - int(engine.bos), "all was there"
                quoted = said[("ann", 2) if turn % 2 else ("cem", None)].answers[0]
                talk += [assistant(quoted.text), user(f"and then, {turn}")]

    play_model(body)
    assert len(engine.asked) == 12
    behind = set[int]().union(*map(engine.behind, engine.asked))
    assert engine.fast.isdisjoint(behind)
    assert {engine.salts[id] for id in engine.fast}.isdisjoint(engine.salts[id] for id in behind), "keys are shared"
    assert engine.fast, "requests that ask for none run as ever"
    assert mode is None or conclusion(tmp_path) == ("findings" if mode == "audit" else "clean")


def test_a_server_that_refuses_them_opens_no_society_for_such_a_request(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, logprobs="refuse") as at:
            for who in (Caller(), agent("ann")):
                with pytest.raises(ApiError, match="--logprobs exact") as refused:
                    await at.ask(user("hello"), who=who, logprobs=0)
                assert (refused.value.status, refused.value.param) == (400, "logprobs")
            assert at.model.society_info(agent("ann")) is None
            await at.ask(user("hello"), who=agent("ann"), max_tokens=2)

    play_model(body)


def test_raw_ones_contradict_a_deterministic_server() -> None:
    assert ServeConfig().logprobs_rule == "exact"
    with pytest.raises(ValidationError, match="logprobs=raw contradicts deterministic"):
        ServeConfig(deterministic=True, logprobs="raw")


@pytest.mark.parametrize(("rule", "deterministic"), [("exact", False), ("raw", False), ("raw", True)])
def test_what_log_probabilities_need_is_proved_before_the_first_request(
    rule: LogprobsRule, deterministic: bool, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, proofs, told = engines.own(), list[object](), list[str]()

    def proved(*given: Any) -> tuple[int, ...]:
        proofs.append(given)
        return ()

    monkeypatch.setattr("agentcho.runner.runner.prove_invariant_sizes", proved)
    model = ServedModel("m", engine, RunConfig(), Serving(logprobs=rule, deterministic=deterministic))
    model.prepare(lambda what, done, of: told.append(f"{done} of {of} {what}"))
    needed = deterministic or rule == "exact"
    assert len(proofs) == needed
    assert [line[:6] for line in told] == (["0 of 1", "1 of 1"] if needed else [])
    assert all("log-probabilities" in line for line in told)

    async def body() -> None:
        async with model.serving():
            await model.answer(Caller(), ChatRequest((user("hello"),), max_tokens=2, logprobs=1), lambda delta: None)

    play_model(body)
    assert len(proofs) == needed


def test_an_engine_that_proves_nothing_is_ready_at_once() -> None:
    ServedModel("m", FakeEngine(), RunConfig(), Serving()).prepare(lambda *told: pytest.fail(str(told)))
