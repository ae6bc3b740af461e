"""Requests outside of societies: equal prefixes are reused exactly, but never between tenants or cache salts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio
import pytest

from agentcho.errors import ContextOverflow, RequestError
from agentcho.protocol.call import Call, Decode, Prefill, SamplingOptions, SchedulingPriority
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import AnswerDelta, Caller, ChatRequest, QuotedMessage, TokenUsage, ToolDefinition, Tools
from agentcho.serve.sharing.prefix_tree import PrefixTree
from agentcho.serve.sharing.request_prompt import FramedMessage
from agentcho.serve.sharing.society import RetentionLimits
from agentcho.testing import FakeEngine
from tests.serve.stage import Asked, assistant, play, served, system, user

BRIEF, QUESTION = system("be short"), user("what is new today")


def test_an_equal_beginning_is_reused_and_nothing_else() -> None:
    async def body() -> None:
        async with served() as at:
            first = await at.ask(BRIEF, QUESTION, max_tokens=8)
            again = await at.ask(BRIEF, QUESTION, max_tokens=8)
            other = await at.ask(BRIEF, user("and tomorrow"), max_tokens=8)
            turned = await at.ask(QUESTION, BRIEF, max_tokens=8)
            assert first.usage.exact == 0
            assert again.usage.prompt == first.usage.prompt
            assert 0 < other.usage.exact < again.usage.exact < again.usage.prompt
            assert turned.usage.exact == 0
            assert {each.usage.reused for each in (first, again, other, turned)} == {0}

    play(body)


def test_an_answer_that_is_quoted_is_reused() -> None:
    async def body() -> None:
        async with served() as at:
            first = await at.ask(BRIEF, QUESTION, max_tokens=8)
            text = first.answers[0].text
            whole = await at.ask(BRIEF, QUESTION, assistant(text), user("more"), max_tokens=8)
            changed = await at.ask(BRIEF, QUESTION, assistant(text + " no"), user("more"), max_tokens=8)
            assert whole.usage.exact > changed.usage.exact > 0

    play(body)


BETA = FakeEngine().framing.content.encode(" beta")[0]


@pytest.mark.parametrize(
    ("options", "reason"), [({"stop": ["beta"]}, "beta"), ({"stop_token_ids": [BETA]}, BETA)], ids=["string", "id"]
)
def test_an_answer_that_was_cut_is_read_as_its_text_says(options: SamplingOptions, reason: int | str) -> None:
    async def body() -> None:
        async with served(engine=FakeEngine(reply=lambda call, prompt: "alpha beta gamma")) as at:
            whole = await at.ask(QUESTION)
            cut = await at.ask(QUESTION, options=options)
            assert whole.answers[0].text.startswith(cut.answers[0].text)
            assert cut.answers[0].ended in ("stop_string", "stop_token")
            assert (cut.answers[0].reason, whole.answers[0].reason) == (reason, None)
            question = (await at.ask(QUESTION)).usage.exact
            quoted = [(await at.ask(QUESTION, assistant(said.answers[0].text))).usage.exact for said in (whole, cut)]
            assert quoted[0] > quoted[1] == question > 0

    play(body)


@pytest.mark.parametrize(("tenant", "salt"), [("other", ""), ("", "salted")])
def test_nothing_is_reused_between_tenants_or_salts(tenant: str, salt: str) -> None:
    async def body() -> None:
        made: list[str] = []
        engine = FakeEngine()
        engine.guilty = lambda call: made.append(call.salt) if isinstance(call, Prefill | Decode) else None
        async with served(engine=engine) as at:
            await at.ask(BRIEF, QUESTION, max_tokens=8)
            other = await at.ask(BRIEF, QUESTION, max_tokens=8, who=Caller(tenant), cache_salt=salt)
            assert other.usage.exact == 0
            assert len(set(made)) == 2, "calls of both would share what is stored"
            assert all(len(salt) >= 32 for salt in made)

    play(body)


@pytest.mark.parametrize("society", [None, "town"])
def test_who_is_served_first_and_who_shares_turns_is_said_to_the_engine(
    society: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, submit = list[SchedulingPriority](), FakeEngine.submit

    def heard(engine: FakeEngine, calls: Sequence[Call], turn: SchedulingPriority) -> tuple[int, ...]:
        turns.append(turn)
        return submit(engine, calls, turn)

    async def body() -> None:
        async with served() as at:
            for tenant, priority in (("red", 3), ("blue", -2), ("red", 0)):
                who = Caller(tenant, society, "ann" if society else None)
                await at.ask(QUESTION, who=who, priority=priority, max_tokens=2)

    monkeypatch.setattr(FakeEngine, "submit", heard)
    play(body)
    assert [turn.priority for turn in turns] == [3, -2, 0]
    assert [(turn.group, turn.workflow) for turn in turns] == [(each, society or "") for each in ("red", "blue", "red")]


def test_two_servers_have_no_salt_in_common() -> None:
    async def body() -> None:
        async with served() as one, served() as other:
            assert one.model._salt(("t", "s", "")) == one.model._salt(("t", "s", ""))
            assert one.model._salt(("t", "s", "")) != other.model._salt(("t", "s", ""))

    play(body)


def test_what_is_kept_stays_within_its_quota_and_the_oldest_goes_first() -> None:
    async def body() -> None:
        async with served(keeping=RetentionLimits(tokens=200)) as at:
            await at.ask(BRIEF, QUESTION, max_tokens=8)
            for n in range(40):
                await at.ask(BRIEF, user(f"question number {n} is this"), max_tokens=8)
                assert sum(each.tokens for each in at.model._prompts.values()) <= 200
            gone = await at.ask(BRIEF, QUESTION, max_tokens=8)
            assert gone.usage.exact > 0, "what stands before all was used last"
            again = await at.ask(BRIEF, user("question number 39 is this"), max_tokens=8)
            assert again.usage.exact > gone.usage.exact

    play(body)


def test_a_prompt_that_a_request_uses_is_not_given_up() -> None:
    frames, tree = FakeEngine(), PrefixTree("salt")
    prompt = [
        (framed, framed.words(frames))
        for framed in (FramedMessage("system", "be short"), FramedMessage("user", "well"))
    ]
    path = tree.find(prompt)
    tree.hold(path)
    for id, node in enumerate(path, 1):
        assert tree.enter(node, id) is None
    assert tree.forget(0) == []
    tree.let_go(path)
    assert tree.forget(0) == [2, 1], "the end of a prompt goes before its beginning"
    assert tree.tokens == len(tree) == 0


def test_requests_side_by_side_share_what_they_have_in_common() -> None:
    async def body() -> None:
        async with served() as at:
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(_one, at)
            assert at.engine.pages <= 2 + 5

    async def _one(at: Asked) -> None:
        await at.ask(BRIEF, QUESTION, max_tokens=8)

    play(body)


def test_a_request_that_is_given_up_frees_its_rows() -> None:
    async def body() -> None:
        async with served(engine=FakeEngine(reply=lambda call, prompt: "and " * 4000)) as at:
            with anyio.CancelScope() as scope:
                await at.model.answer(Caller(), ChatRequest((BRIEF, QUESTION)), lambda delta: scope.cancel())
            assert scope.cancelled_caught
            await at.ask(BRIEF, user("next"), max_tokens=2)
            assert at.engine.rows == 0

    play(body)


def test_several_answers_differ_by_their_seeds_and_a_seed_repeats_them() -> None:
    async def body() -> None:
        async with served() as at:
            three = await at.ask(BRIEF, QUESTION, max_tokens=8, choices=3, seed=7)
            again = await at.ask(BRIEF, QUESTION, max_tokens=8, choices=3, seed=7)
            assert three.usage.exact == 0 < again.usage.exact, "what one choice brought another did not find"
            assert three.usage.completion == sum(len(answer.tokens) for answer in three.answers)
            texts = [answer.text for answer in three.answers]
            assert len(set(texts)) == 3
            assert texts == [answer.text for answer in again.answers]
            assert {delta.choice for delta in at.heard} == {0, 1, 2}
            for n, answer in enumerate(again.answers):
                assert "".join(delta.text for delta in at.heard if delta.choice == n) == answer.text

    play(body)


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_done() -> None:
    async def body() -> None:
        async with served(engine=FakeEngine(context=64)) as at:
            with pytest.raises(ContextOverflow):
                await at.ask(user("word " * 80))
            with pytest.raises(RequestError, match="temperature"):
                await at.ask(user("word"), options={"temperature": -1.0})
            assert at.engine.steps == 0
            cut = await at.ask(user("word " * 40), max_tokens=10_000)
            assert cut.usage.prompt + cut.usage.completion <= 64

    play(body)


def test_an_answer_of_many_tokens_has_room_for_them_or_is_refused() -> None:
    async def body() -> None:
        async with served(engine=FakeEngine(context=400), keeping=RetentionLimits(most=9)) as at:
            assert (await at.ask(QUESTION, options={"min_tokens": 300})).usage.completion >= 300
            with pytest.raises(ContextOverflow) as caught:
                await at.ask(QUESTION, options={"min_tokens": 396}, max_tokens=500)
            assert caught.value.needed > caught.value.limit == 400

    play(body)


def test_a_tenant_may_ask_for_so_many_tokens_at_a_time() -> None:
    async def body() -> None:
        engine = FakeEngine(reply=lambda call, prompt: "and " * 4000)
        async with served(engine=engine, generating=100) as at:
            for more in ({"max_tokens": 101}, {"max_tokens": 51, "choices": 2}, {}, {"options": {"min_tokens": 200}}):
                with pytest.raises(ApiError, match=r"max_tokens: .* may generate .* allows a tenant 100") as alone:
                    await at.ask(QUESTION, **more)
                assert (alone.value.status, alone.value.param) == (400, "max_tokens")

            async def meanwhile() -> None:
                with pytest.raises(ApiError, match="may generate 60 tokens, and 100 are allowed") as beside:
                    await at.ask(QUESTION, max_tokens=41)
                assert (beside.value.status, beside.value.retry_after) == (429, 1)
                assert (await at.ask(QUESTION, max_tokens=3)).usage.completion == 3
                assert (await at.ask(QUESTION, who=Caller(tenant="blue"), max_tokens=99)).usage.completion == 99
                scope.cancel()

            async with anyio.create_task_group() as group:
                with anyio.CancelScope() as scope:
                    heard = list[AnswerDelta]()

                    def hear(delta: AnswerDelta) -> None:
                        if not heard:
                            group.start_soon(meanwhile)
                        heard.append(delta)

                    await at.model.answer(Caller(), ChatRequest((QUESTION,), max_tokens=60), hear)
            assert (await at.ask(QUESTION, max_tokens=100)).usage.completion == 100

    play(body)


def test_an_answer_is_one_of_some_texts_where_it_is_no_call() -> None:
    offered = Tools((ToolDefinition("look"),))

    async def body() -> None:
        for text in ("tin", '{"name": "look", "arguments": {}}'):
            said_so = FakeEngine(answer=partial(lambda text, call, prompt: text, text))
            async with served(engine=said_so) as at:
                said = (await at.ask(QUESTION, options={"choices": ["tin", "tins"]}, tools=offered)).answers[0]
                assert (text in said.text, len(said.calls)) == (True, int("look" in text))

    play(body)


def test_cache_salts_are_as_few_as_societies() -> None:
    async def body() -> None:
        async with served(societies=3) as at:
            for n in range(8):
                await at.ask(BRIEF, QUESTION, max_tokens=4, cache_salt=f"salt {n}")
                await at.ask(BRIEF, QUESTION, max_tokens=4, cache_salt="kept")
                assert len(at.model._prompts) <= 3
            again = await at.ask(BRIEF, QUESTION, max_tokens=4, cache_salt="kept")
            gone = await at.ask(BRIEF, QUESTION, max_tokens=4, cache_salt="salt 0")
            assert again.usage.exact > gone.usage.exact == 0

    play(body)


def test_what_is_said_to_be_new_is_what_the_model_was_fed_also_of_requests_that_come_together() -> None:
    async def body() -> None:
        async with served() as at:
            told = list[TokenUsage]()

            async def one(*messages: QuotedMessage) -> None:
                told.append((await at.ask(*messages, max_tokens=8)).usage)

            async with anyio.create_task_group() as group:
                for more in ((), (), (user("and then"),), (user("and then"),), (user("or else"),)):
                    group.start_soon(one, BRIEF, QUESTION, *more)
            framing = at.engine.framing
            around = len(framing.closing("assistant")) - int(at.engine.bos)
            new = sum(usage.prompt - usage.exact - usage.reused for usage in told)
            assert at.model.choreographer.encoded == new + sum(usage.completion + around for usage in told)
            assert sorted(usage.exact > 0 for usage in told) == [False, True, True, True, True]

    play(body)


def test_a_salt_under_which_nothing_is_kept_takes_no_place() -> None:
    async def body() -> None:
        async with served(keeping=RetentionLimits(tokens=0)) as at:
            for n in range(3):
                await at.ask(BRIEF, QUESTION, max_tokens=4, cache_salt=f"salt {n}")
            assert not at.model._prompts

    play(body)
