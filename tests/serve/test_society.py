"""Societies: what their agents share, what they never share, and what is recorded about them."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcho.audit.audit import audit_run
from agentcho.display.audit import show as show_audit
from agentcho.engine.tools import ToolFormat
from agentcho.errors import AgentchoError, AudienceError, CallbackFailed, ContextOverflow
from agentcho.protocol.call import Call, Decode
from agentcho.provenance.labels import EncodingRecord
from agentcho.records import record as record_file
from agentcho.records.transcript import TranscriptEntry
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import (
    Answers,
    Caller,
    ChatRequest,
    QuotedMessage,
    ServedMode,
    Sharing,
    TokenUsage,
    ToolCall,
    ToolDefinition,
    Tools,
)
from agentcho.serve.sharing import conversation
from agentcho.serve.sharing.conversation import UNREAD
from agentcho.serve.sharing.society import RetentionLimits
from agentcho.testing import FakeEngine
from tests.serve.stage import Asked, agent, assistant, conclusion, play, saved, served, system, tool, user

ANN, BOB = agent("ann"), agent("bob")
CANARY = "the canary sings at nine in the cellar"


def records(folder: Path) -> list[EncodingRecord]:
    """All encodings of the only record."""
    return [record for entries in saved(folder).games().values() for entry in entries for record in entry.made]


def spared(answers: Answers) -> int:
    """The number of prompt tokens that did not have to be encoded for this answer."""
    return answers.usage.exact + answers.usage.reused


def entries(folder: Path, game: int = 0) -> list[TranscriptEntry]:
    return saved(folder).games()[game]


def test_what_one_agent_was_told_in_public_another_reads_without_encoding_it_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            one = await at.ask(system("you are ann"), user("shall we build a bridge"), who=ANN, max_tokens=8)
            two = await at.ask(
                system("you are bob, quite another"),
                user("shall we build a bridge"),
                user(one.answers[0].text, "ann"),
                who=BOB,
                max_tokens=8,
            )
            assert one.usage.reused == 0
            assert two.usage.reused > 0
            assert two.usage.exact == 0

    play(body)
    assert conclusion(tmp_path) == "clean"
    made = [(record.message, record.recipe) for record in records(tmp_path)]
    assert len(made) == len(set(made)), "a message was encoded twice by one recipe"
    assert ("scenario.0", "audience") in made
    assert sum(entry.message.text == "shall we build a bridge" for entry in entries(tmp_path)) == 1
    bob = next(entry for entry in entries(tmp_path) if entry.message.id.startswith("bob.") and entry.own)
    assert "ann.1" in bob.message.parents, "ann's answer was quoted as a user's message, and is known"


def test_what_stands_where_it_was_said_counts_as_exact_and_what_another_wrote_as_its_messages() -> None:
    async def body() -> None:
        async with served() as at:
            brief, question = system("you are ann"), user("shall we build a bridge")
            one = await at.ask(question, who=ANN, max_tokens=8)
            said = assistant(one.answers[0].text)
            two = await at.ask(question, said, user("and then"), who=ANN, max_tokens=8)
            around = one.usage.prompt + one.usage.completion + len(at.engine.framing.closing("assistant"))
            assert (two.usage.exact, two.usage.reused) == (around - int(at.engine.bos), 0)
            other = await at.ask(brief, question, said, user("and then"), who=ANN, max_tokens=8)
            assert other.usage.exact == 0
            assert other.usage.reused >= two.usage.exact
            bob = await at.ask(question, user(one.answers[0].text), who=BOB, max_tokens=8)
            assert bob.usage.exact > 0
            again = await at.ask(user("well"), question, who=BOB, max_tokens=8)
            assert (again.usage.exact, again.usage.reused) == (0, len(question.text.split()) + 4)

    play(body)


def test_what_requests_bring_together_counts_once_among_what_is_kept() -> None:
    async def body() -> None:
        async with served() as at:

            async def one(name: str, society: str) -> None:
                await at.ask(user("build a bridge"), who=agent(name, society), max_tokens=1)

            async with anyio.create_task_group() as group:
                for name in ("ann", "bob", "cem"):
                    group.start_soon(one, name, "together")
            for name in ("ann", "bob", "cem"):
                await one(name, "apart")
            kept = {place[1]: society.tokens for place, society in at.model._societies.items()}
            assert kept["together"] == kept["apart"] > 0

    play(body)


def test_what_stands_at_its_place_behind_other_words_is_not_exact() -> None:
    async def body() -> None:
        async with served() as at:
            said = assistant((await at.ask(user("one two"), who=ANN, max_tokens=2)).answers[0].text)
            same = await at.ask(user("one two"), said, user("well"), who=ANN, max_tokens=2)
            other = await at.ask(user("six ten"), said, user("well"), who=ANN, max_tokens=2)
            assert same.usage.reused == other.usage.exact == 0
            assert same.usage.exact > other.usage.reused > 0

    play(body)


def test_of_several_answers_to_one_request_none_has_found_what_another_brought() -> None:
    async def body() -> None:
        async with served() as at:
            three = await at.ask(user("build a bridge"), who=ANN, choices=3, max_tokens=2)
            assert spared(three) == 0
            assert three.usage.completion == sum(len(answer.tokens) for answer in three.answers)
            assert spared(await at.ask(user("build a bridge"), who=ANN, max_tokens=2)) > 0

    play(body)


@pytest.mark.parametrize("mode", ["baseline", "enforce"])
def test_of_requests_that_come_together_one_is_told_that_it_brought_a_message(mode: ServedMode) -> None:
    told = list[TokenUsage]()

    async def body() -> None:
        engine = FakeEngine(reply=lambda call, prompt: "and " * 40)
        async with served(engine=engine, keeping=RetentionLimits(tokens=1)) as at:

            async def one(name: str, tokens: int) -> None:
                who = agent(name, mode=mode)
                told.append((await at.ask(user("build a bridge"), who=who, max_tokens=tokens)).usage)

            async with anyio.create_task_group() as group:
                for name, tokens in (("ann", 1), ("bob", 8), ("cem", 16)):
                    group.start_soon(one, name, tokens)
            assert at.model._societies["", "town", ""].tokens == 0

    play(body)
    assert sorted(usage.exact for usage in told) == [0, 7, 7]
    assert {usage.reused for usage in told} == {0}


Brings = Callable[[str], tuple[tuple[QuotedMessage, ...], dict[str, object]]]
KINDS: dict[str, Brings] = {
    "system": lambda text: ((system(text), user("go on")), {}),
    "tool": lambda text: ((user("go on"), tool(text)), {}),
    "quoted answer that nobody gave": lambda text: ((user("go on"), assistant(text)), {}),
    "user, to few": lambda text: ((user(text),), {"audience": ("carl",)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_canary_in_a_private_message_is_new_to_everybody_else(kind: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            messages, options = KINDS[kind](CANARY)
            await at.ask(*messages, who=ANN, max_tokens=4, **options)
            guesses = [system(CANARY), tool(CANARY), assistant(CANARY), user(CANARY), assistant(CANARY, "ann")]
            for guess in guesses:
                guessed = await at.ask(guess, who=BOB, max_tokens=4)
                wrong = await at.ask(guess._replace(text=guess.text[::-1]), who=BOB, max_tokens=4)
                assert guessed.usage == wrong.usage._replace(completion=guessed.usage.completion)

    play(body)
    assert conclusion(tmp_path) == "clean"
    hidden = {e.message.id for e in entries(tmp_path) if e.message.text == CANARY and e.message.id[:3] == "ann"}
    for record in records(tmp_path):
        if record.caller == "bob" or (record.message.startswith("bob") and record.recipe == "audience"):
            assert not hidden & set(record.cone)


def test_a_private_answer_is_new_to_everybody_else(tmp_path: Path) -> None:
    async def body() -> None:
        engine = FakeEngine(reply=lambda call, prompt: CANARY if "whisper" in prompt else "well")
        async with served(tmp_path, engine) as at:
            own = await at.ask(user("whisper"), who=ANN, audience=("ann",))
            said = own.answers[0]
            guesses = [assistant(CANARY), user(CANARY, "ann"), assistant(CANARY, id=said.id)]
            for n, quoted in enumerate(guesses):
                guessed = await at.ask(quoted, who=agent(f"guesser-{n}"), max_tokens=4, audience=("zoe",))
                assert spared(guessed) == 0
            again = await at.ask(user("whisper"), assistant(CANARY), user("on"), who=ANN, audience=("ann",))
            assert spared(again) > 0

    play(body)
    assert conclusion(tmp_path) == "clean"


def test_an_agent_has_its_own_words_as_it_said_them_and_others_have_them_without_its_secrets(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            brief = system(CANARY)
            one = await at.ask(brief, user("hello"), who=ANN, max_tokens=6)
            said = assistant(one.answers[0].text)
            await at.ask(brief, user("hello"), said, user("and"), who=ANN, max_tokens=6)
            await at.ask(user("hello"), said, who=BOB, max_tokens=6)

    play(body)
    by_id = {record.id: record for record in records(tmp_path)}
    through = {
        record.message: [by_id[read.id].recipe for read in record.receipt.context if by_id[read.id].message == "ann.1"]
        for record in by_id.values()
        if record.caller is not None
    }
    assert through["ann.2"] == ["author"]
    assert through["bob.0"] == ["audience"]
    assert conclusion(tmp_path) == "clean"


@pytest.mark.parametrize("brief", [(), (system(CANARY),)], ids=["nothing", "a secret"])
def test_how_many_answers_nobody_has_read_does_not_tell_what_their_author_had_read(brief: tuple[Any, ...]) -> None:
    """Above a limit, the next answer is encoded for others only when it is read, which its reader can notice."""
    counts = list[int]()

    async def body() -> None:
        async with served() as at:
            said = tuple[Any, ...]()
            for number in range(3):
                answer = await at.ask(*brief, user("hello"), *said, user(f"and {number}"), who=ANN, max_tokens=6)
                said += (user(f"and {number}"), assistant(answer.answers[0].text))
                counts.append(len(at.model._societies["", "town", ""]._talk._unread))
            await at.ask(user("hello"), *said, user("and I"), who=BOB, max_tokens=6)
            counts.append(len(at.model._societies["", "town", ""]._talk._unread))

    play(body)
    assert counts == [1, 2, 3, 1]


def test_of_equal_words_the_id_decides() -> None:
    async def body() -> None:
        async with served(engine=FakeEngine(reply=lambda call, prompt: "yes")) as at:
            first = await at.ask(user("is it red"), who=ANN)
            second = await at.ask(user("is it blue"), who=ANN)
            talk = at.model._societies["", "town", ""]._talk
            for answers in (first, second):
                quoted = assistant("yes", id=answers.answers[0].id)
                found = await _parents(at, quoted)
                assert found == [talk._index._by_id[answers.answers[0].id].id]
            forged = assistant("no", id=first.answers[0].id)
            assert await _parents(at, forged) != await _parents(at, assistant("yes", id=first.answers[0].id))

    async def _parents(at: Asked, quoted: QuotedMessage) -> list[str]:
        await at.ask(quoted, who=BOB)
        talk = at.model._societies["", "town", ""]._talk
        draft = list(talk._resolver.drafts.values())[-1]
        return [read.id for read in draft.reads.reads]

    play(body)


@pytest.mark.parametrize(("keys", "told"), [(("k1", "k2"), False), (("k1", "k1"), True)])
def test_a_report_says_where_one_client_spoke_for_several_agents(
    keys: tuple[str, str], told: bool, tmp_path: Path
) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            for name, key in zip(("ann", "bob", "ann"), (*keys, keys[0]), strict=True):
                await at.ask(user("hello"), who=agent(name, key=key), max_tokens=4)

    play(body)
    report = audit_run(saved(tmp_path))
    found = [finding.message for finding in report.findings if finding.rule == "AC011"]
    assert bool(found) == told
    assert report.conclusion == "clean"
    assert not told or "ann, bob" in found[0]
    shown = StringIO()
    show_audit(report, "plain", shown)
    assert ("AC011  one client spoke for ann, bob" in shown.getvalue()) == told


@pytest.mark.parametrize("setting", ["shared", "private"])
def test_a_report_names_user_messages_that_one_agent_alone_brought(setting: Sharing, tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, user_messages=setting) as at:
            for who, limit in ((ANN, 30), (BOB, 40), (ANN, 30)):
                brief = user(f"You are {who.agent}. Your limit is {limit}.")
                await at.ask(user("Agree on a price."), brief, who=who, max_tokens=4)

    play(body)
    report = audit_run(saved(tmp_path))
    found = {finding.carrier: finding for finding in report.findings if finding.rule == "AC020"}
    assert (report.conclusion, report.exit_code("error")) == ("clean", 0)
    if setting == "private":
        assert not found
        return
    texts = {entry.message.id: entry.message.text for entry in entries(tmp_path)}
    assert {name: [texts[id] for id in each.secrets] for name, each in found.items()} == {
        "ann": ["You are ann. Your limit is 30."],
        "bob": ["You are bob. Your limit is 40."],
    }
    assert all(each.level == "note" and each.secrets[0] in each.message for each in found.values())
    shown = StringIO()
    show_audit(report, "plain", shown)
    told = " ".join(shown.getvalue().split())
    assert f"AC020 only ann brought 1 user message that others may read: {found['ann'].secrets[0]}" in told


def test_where_one_agent_is_alone_no_user_message_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            for _ in range(2):
                await at.ask(user("Agree on a price."), who=ANN, max_tokens=4)

    play(body)
    assert not [finding for finding in audit_run(saved(tmp_path)).findings if finding.rule == "AC020"]


def test_of_a_client_with_ever_new_agents_the_first_are_named_and_that_there_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file, "MOST_SPOKEN_FOR", 2)

    async def body() -> None:
        async with served(tmp_path) as at:
            for number in range(5):
                await at.ask(user("hello"), who=agent(f"a{number}", key="k"), max_tokens=4)

    play(body)
    assert saved(tmp_path).info.clients == {"k": ("a0", "a1", "and others")}
    report = audit_run(saved(tmp_path))
    assert any("a0, a1, and others" in finding.message for finding in report.findings if finding.rule == "AC011")
    assert saved(tmp_path).info.cast == {"a0": "named", "a1": "named", "and others": "named"}


@pytest.mark.parametrize("who", ["by hash", "unknown"])
def test_who_is_not_named_has_its_own_words_only_behind_the_prompt_that_they_were_said_over(
    who: str, tmp_path: Path
) -> None:
    brief = (system("you are helpful"),) if who == "by hash" else ()

    async def body() -> None:
        async with served(tmp_path) as at:
            one = agent(None)
            first = await at.ask(*brief, user("how are you"), who=one, max_tokens=4)
            said = assistant(first.answers[0].text)
            await at.ask(*brief, user("how are you"), said, user("good"), who=one, max_tokens=4)
            await at.ask(*brief, user("what is my bill"), said, user("good"), who=one, max_tokens=4)

    play(body)
    by_id = {record.id: record for record in records(tmp_path)}
    answers = {entry.message.id for entry in entries(tmp_path) if entry.message.kind == "decode"}
    own = [record for record in by_id.values() if record.caller is not None and record.message in answers]
    first = next(record.message for record in own)
    recipes = [
        [by_id[read.id].recipe for read in record.receipt.context if by_id[read.id].message == first]
        for record in own
        if record.message != first
    ]
    as_said = "author" if brief else "audience"  # without a private system prompt, one encoding serves as both
    assert [found for found in recipes if found] == [[as_said], ["audience"]]
    assert conclusion(tmp_path) == "clean"


def test_what_is_private_of_who_is_not_named_stands_behind_the_same_messages_alone() -> None:
    async def body() -> None:
        async with served() as at:
            one = agent(None)
            await at.ask(system("helper"), user("look it up"), tool(CANARY), who=one, max_tokens=4)
            same = await at.ask(system("helper"), user("look it up"), tool(CANARY), who=one, max_tokens=4)
            other = await at.ask(system("helper"), user("something else"), tool(CANARY), who=one, max_tokens=4)
            wrong = await at.ask(system("helper"), user("something more"), tool(CANARY[::-1]), who=one, max_tokens=4)
            assert spared(same) > spared(other)
            assert spared(other) == spared(wrong)

    play(body)


@pytest.mark.parametrize("brief", [(system("you are helpful"),), ()])
def test_two_clients_with_equal_prompts_and_no_names_are_two(brief: tuple[QuotedMessage, ...]) -> None:
    async def body() -> None:
        async with served() as at:
            one, other = agent(None, key="one"), agent(None, key="other")
            await at.ask(*brief, user("look it up"), tool(CANARY), who=one, max_tokens=4)
            guess = await at.ask(*brief, user("look it up"), tool(CANARY), who=other, max_tokens=4)
            wrong = await at.ask(*brief, user("look it up"), tool(CANARY[::-1]), who=other, max_tokens=4)
            again = await at.ask(*brief, user("look it up"), tool(CANARY), who=one, max_tokens=4)
            assert spared(again) > spared(wrong) >= spared(guess)

    play(body)


def test_one_agent_is_told_no_numbers_that_go_by_what_others_keep_from_it() -> None:
    async def body() -> None:
        async with served() as at:
            told = list[object]()
            for text in ("short", "quite a long message, as it were"):
                await at.ask(user(text), who=ANN, audience=("ann",), max_tokens=4)
                told.append(at.model.society_info(agent("bob")))
            assert told[0] == told[1] != at.model.society_info(agent(None))

    play(body)


def test_a_mode_is_the_society_s_for_as_long_as_it_lives() -> None:
    async def body() -> None:
        async with served() as at:
            await at.ask(user("hello"), who=agent("ann", mode="audit"), max_tokens=4)
            await at.ask(user("hello"), who=ANN, max_tokens=4)
            with pytest.raises(ApiError, match="@audit") as told:
                await at.ask(user("hello"), who=agent("ann", mode="enforce"), max_tokens=4)
            assert (told.value.status, told.value.param) == (400, "model")
            assert at.model.end_society(ANN)
            await at.ask(user("hello"), who=agent("ann", mode="enforce"), max_tokens=4)

    play(body)


def test_another_tenant_s_society_is_as_if_it_were_not_there() -> None:
    async def body() -> None:
        async with served() as at:
            mine, theirs = agent("ann", tenant="one"), agent("ann", tenant="two")
            await at.ask(user(CANARY), who=mine, max_tokens=4)
            assert at.model.society_info(theirs) is None
            assert not at.model.end_society(theirs)
            info = at.model.society_info(mine._replace(agent=None))
            assert info is not None
            assert info["agents"] == ["ann"]
            assert CANARY not in str(info)
            guessed = await at.ask(user(CANARY), who=theirs, max_tokens=4)
            assert spared(guessed) == 0

    play(body)


def test_no_key_or_value_is_shared_across_societies_tenants_or_salts() -> None:
    salts: list[set[str]] = []
    engine = FakeEngine()
    engine.guilty = lambda call: salts[-1].add(call.salt)

    async def body() -> None:
        async with served(engine=engine) as at:
            places = [(ANN, ""), (agent("ann", "village"), ""), (agent("ann", tenant="t"), ""), (ANN, "pepper")]
            for who, salt in places:
                salts.append(set())
                await at.ask(system("s"), user("hello"), who=who, max_tokens=4, cache_salt=salt)

    play(body)
    assert len(salts) == 4
    assert all(not one & other for n, one in enumerate(salts) for other in salts[:n])


def test_the_key_of_one_agent_ends_no_other_society_by_using_many_salts() -> None:
    bob = agent("bob", "talk", bound=True)

    async def body() -> None:
        async with served(societies=2) as at:
            for society in ("other", "talk"):
                await at.ask(user("hello"), who=agent("ann", society), max_tokens=2)
            for salt in ("1", "2"):
                with pytest.raises(ApiError, match="the key of a single agent cannot end") as told:
                    await at.ask(user("hello"), who=bob, max_tokens=2, cache_salt=salt)
                assert told.value.status == 429
            await at.ask(user("hello"), who=bob, max_tokens=2)
            assert set(at.model._societies) == {("", "other", ""), ("", "talk", "")}

    play(body)


@pytest.mark.parametrize("bound", [True, False])
def test_the_salts_of_a_society_end_before_another_society_does(bound: bool) -> None:
    bob = agent("bob", "talk", bound=bound)

    async def body() -> None:
        async with served(societies=4) as at:
            for society in ("other", "talk"):
                await at.ask(user("hello"), who=agent("ann", society), max_tokens=2)
            for salt in ("1", "2", "3"):
                await at.ask(user("hello"), who=bob, max_tokens=2, cache_salt=salt)
            kept = {("", "other", ""), ("", "talk", ""), ("", "talk", "2"), ("", "talk", "3")}
            assert set(at.model._societies) == kept
            await at.ask(user("hello"), who=agent("ann", "third"), max_tokens=2)
            assert set(at.model._societies) == kept - {("", "talk", "2")} | {("", "third", "")}

    play(body)


def test_a_tenant_whose_keys_are_those_of_single_agents_gets_its_share_of_a_full_server() -> None:
    bob = agent("bob", "talk", "red", bound=True)

    async def body() -> None:
        async with served(records=3) as at:
            for society in ("one", "two", "three"):
                await at.ask(user("hello"), who=agent("ann", society), max_tokens=2)
            await at.ask(user("hello"), who=bob, max_tokens=2)
            with pytest.raises(ApiError, match="the key of a single agent cannot end"):
                await at.ask(user("hello"), who=bob._replace(society="walk"), max_tokens=2)
            assert set(at.model._societies) == {("", "two", ""), ("", "three", ""), ("red", "talk", "")}

    play(body)


def test_what_is_told_of_a_society_is_that_of_all_its_salts() -> None:
    async def body() -> None:
        async with served() as at:
            for who, salt in ((ANN, ""), (BOB, "pepper")):
                await at.ask(user("hello"), who=who, max_tokens=4, cache_salt=salt)
            one, other = at.model._societies.values()
            told = at.model.society_info(agent(None))
            assert told is not None
            assert told["agents"] == ["ann", "bob"]
            assert (told["messages"], told["turns"]) == (4, 2)
            assert told["encoded_tokens"] == one.tokens + other.tokens
            assert told["unmatched_tokens"] == {why: 2 * count for why, count in one.missed().items()} != {}

    play(body)


def test_a_turn_is_a_request_that_was_answered_or_begun() -> None:
    async def body() -> None:
        engine = FakeEngine(reply=lambda call, prompt: "and " * 4000, context=512)
        async with served(engine=engine) as at:

            def turns() -> int:
                [society] = at.model._societies.values()
                return society.turns

            await at.ask(user("hello"), who=ANN, max_tokens=4)
            with pytest.raises(ContextOverflow):
                await at.ask(user("word " * 600), who=ANN)
            with pytest.raises((ApiError, AgentchoError)):
                await at.ask(user("hello"), who=ANN, logprobs=99)
            assert turns() == 1
            with anyio.CancelScope() as scope:
                await at.model.answer(ANN, ChatRequest((user("tell me all"),)), lambda delta: scope.cancel())
            assert turns() == 2

    play(body)


def test_a_long_society_goes_on_in_another_game_and_still_knows_what_was_said(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, keeping=RetentionLimits(messages=8)) as at:
            text, talk = "begin", list[QuotedMessage]()
            for n in range(12):
                talk = [*talk[-3:], user(f"{text} {n}")]
                answers = await at.ask(*talk, who=(ANN, BOB)[n % 2], max_tokens=6)
                talk.append(user(answers.answers[0].text, "ann"))
            assert at.model._societies["", "town", ""].messages <= 10

    play(body)
    assert len(saved(tmp_path).games()) > 2
    assert conclusion(tmp_path) == "clean"
    carried = [e.message for e in entries(tmp_path, 1) if e.message.kind == "prefill" and e.message.author == "ann"]
    assert carried, "what ann said in the first game was quoted in the second"
    assert all(message.audience.members is None for message in carried)


def test_a_society_of_long_messages_goes_on_in_another_game(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, keeping=RetentionLimits(words=100)) as at:
            for n in range(6):
                await at.ask(user(f"{n} " * 30), who=ANN, max_tokens=6)

    play(body)
    assert [len(entries) for entries in saved(tmp_path).games().values()] == [6, 6]


def test_an_answer_that_takes_long_keeps_nobody_waiting_for_the_next_game() -> None:
    over = list[str]()

    async def body() -> None:
        engine = FakeEngine(reply=lambda call, prompt: "and " * 400 if "all" in prompt else "well")
        async with served(engine=engine, keeping=RetentionLimits(messages=4)) as at:
            begun = anyio.Event()

            async def long() -> None:
                request = ChatRequest((user("tell me all"), user("one"), user("two")), max_tokens=300)
                await at.model.answer(ANN, request, lambda delta: begun.set())
                over.append("long")

            async with anyio.create_task_group() as group:
                group.start_soon(long)
                await begun.wait()
                await at.ask(user("short"), who=BOB, max_tokens=2)
                over.append("short")
            await at.ask(user("next"), who=BOB, max_tokens=2)
            assert at.model._societies["", "town", ""].messages == 2

    play(body)
    assert over == ["short", "long"]


def test_a_private_answer_stays_private_in_the_next_game(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(
            tmp_path, FakeEngine(reply=lambda call, prompt: CANARY), keeping=RetentionLimits(messages=2)
        ) as at:
            await at.ask(user("whisper"), who=ANN, audience=("ann",))
            await at.ask(user("whisper"), assistant(CANARY), user("on"), who=ANN, audience=("ann",))
            quoted = await at.ask(assistant(CANARY), who=BOB)
            assert spared(quoted) == 0

    play(body)
    said = [e.message for entries in saved(tmp_path).games().values() for e in entries if e.message.text == CANARY]
    assert {m.audience.to_json() == "everyone" for m in said if (m.author, m.kind) == ("ann", "prefill")} == {False}
    assert conclusion(tmp_path) == "clean"


def test_over_its_quota_a_society_forgets_what_was_not_read_for_long(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, keeping=RetentionLimits(tokens=150)) as at:
            society = None
            for n in range(30):
                answers = await at.ask(system("ann"), user(f"round number {n} of all"), who=ANN, max_tokens=6)
                society = at.model._societies["", "town", ""]
                assert society.tokens <= 150
                assert at.engine.pages <= 40
            early = await at.ask(system("ann"), user("round number 0 of all"), who=ANN, max_tokens=6)
            assert 0 < spared(early) < early.usage.prompt
            quoted = await at.ask(user("x"), assistant(answers.answers[0].text), user("y"), who=BOB, max_tokens=6)
            assert spared(quoted) > 0

    play(body)
    assert conclusion(tmp_path) == "clean"


def test_over_its_quota_a_tenant_loses_what_was_asked_least_recently_and_no_other_tenant_anything() -> None:
    async def body() -> None:
        async with served(quota=lambda tenant: 100 if tenant == "red" else 1000) as at:

            def kept(tenant: str) -> dict[str, int]:
                own = {place: each.tokens for place, each in at.model._societies.items()}
                own |= {place: each.tokens for place, each in at.model._prompts.items()}
                return {place[1]: tokens for place, tokens in own.items() if place[0] == tenant and tokens}

            others = agent("ann", "town", "blue")
            await at.ask(user("hello " * 40), who=others, max_tokens=2)
            before = kept("blue")
            for society in ("one", "two", "three"):
                await at.ask(user(f"{society} " * 30), who=agent("ann", society, "red"), max_tokens=2)
                assert 0 < sum(kept("red").values()) <= 100
                assert society in kept("red")
            assert "one" not in kept("red")
            await at.ask(user("alone " * 30), who=Caller("red"), max_tokens=2)
            assert set(kept("red")) <= {"", "three"}
            assert kept("red")[""] > 30
            assert kept("blue") == before
            assert before["town"] > 40

    play(body)


def test_what_is_read_again_and_again_outlives_what_came_after_it() -> None:
    async def body() -> None:
        async with served(keeping=RetentionLimits(tokens=90)) as at:
            rules = "keep to these rules " * 4
            for n in range(10):
                answers = await at.ask(user(rules), user(f"round {n} " * 8), who=ANN, max_tokens=2)
                assert (spared(answers) >= len(rules.split())) == (n > 0)

    play(body)


@pytest.mark.slow
def test_what_nobody_reads_is_not_made_ready_for_others_without_end(tmp_path: Path) -> None:
    def put_off(at: Asked) -> int:
        return len(at.engine.debug.deferred)

    async def body() -> None:
        async with served(tmp_path) as at:
            said, counts = list[str](), list[int]()
            for n in range(UNREAD + 40):
                talk = [assistant(text) for text in said[-3:]]
                asked = await at.ask(system(CANARY), user("alone"), *talk, user(f"go on {n}"), who=ANN)
                said.append(asked.answers[0].text)
                counts.append(put_off(at))
            assert counts[UNREAD - 1 :] == [UNREAD] * 41
            heard = await at.ask(*(user(text, "ann") for text in said[-3:]), who=BOB)
            assert heard.usage.prompt
            early = await at.ask(user(said[4], "ann"), user(said[5], "ann"), who=BOB)
            assert spared(early) > 0
            now = put_off(at)
            assert now < UNREAD
            await at.ask(system(CANARY), user("once more"), who=ANN)
            assert put_off(at) == now + 1

    play(body)
    assert conclusion(tmp_path) == "clean"


def test_what_another_request_attends_to_is_not_forgotten(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, keeping=RetentionLimits(tokens=40)) as at:
            await at.ask(user("the common beginning"), who=ANN, max_tokens=2)
            async with anyio.create_task_group() as group:
                group.start_soon(_ask, at, BOB, [user("the common beginning")], 60)
                for n in range(6):
                    group.start_soon(_ask, at, agent("carl"), [user(f"{n} " * 20)], 2 + 4 * n)

    async def _ask(at: Asked, who: Caller, talk: list[QuotedMessage], tokens: int) -> None:
        assert (await at.ask(*talk, who=who, max_tokens=tokens)).answers

    play(body)
    assert conclusion(tmp_path) == "clean"


def test_a_request_that_is_given_up_is_on_record_as_far_as_it_went(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, FakeEngine(reply=lambda call, prompt: "and " * 4000)) as at:
            with anyio.CancelScope() as scope:
                request = ChatRequest((user("tell me all"),))
                await at.model.answer(ANN, request, lambda delta: scope.cancel())
            await at.ask(user("next"), who=ANN, max_tokens=2)
            assert at.engine.rows == 0

    play(body)
    assert [entry.ended for entry in entries(tmp_path) if entry.message.author == "ann"] == ["cancelled", None]


def test_what_is_wrong_is_refused_with_nothing_said(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, FakeEngine(context=64)) as at:
            with pytest.raises(ContextOverflow):
                await at.ask(user("word " * 80), who=ANN)
            with pytest.raises(AudienceError):
                await at.ask(user("word"), who=ANN, audience=("everyone", "ann"))
            with pytest.raises(AudienceError):
                await at.ask(user("word"), who=agent(" "))
            with pytest.raises(ApiError, match="~"):
                await at.ask(user("word"), who=agent("~unknown"))
            await at.ask(user("word"), who=ANN, max_tokens=4)

    play(body)
    assert len(entries(tmp_path)) == 2


def test_one_that_fails_hurts_nobody_else(tmp_path: Path) -> None:
    def fails(call: Call) -> Exception | None:
        return ValueError("boom") if isinstance(call, Decode) and "bob" in (call.name or "") else None

    async def body() -> None:
        engine = FakeEngine()
        engine.guilty = fails
        async with served(tmp_path, engine) as at:
            told: dict[str, Answers | Exception] = {}

            async def ask(name: str) -> None:
                try:
                    told[name] = await at.ask(user("hello"), who=agent(name), max_tokens=8)
                except Exception as error:
                    told[name] = error

            async with anyio.create_task_group() as group:
                for name in ("ann", "bob", "carl"):
                    group.start_soon(ask, name)
            assert isinstance(told["bob"], Exception)
            assert isinstance(told["ann"], Answers)
            assert isinstance(told["carl"], Answers)

    play(body)
    assert audit_run(saved(tmp_path)).conclusion == "clean"


@pytest.mark.parametrize("who", [Caller(), ANN], ids=["no society", "society"])
def test_the_end_of_each_of_several_answers_is_passed_on_at_once(who: Caller) -> None:
    async def body() -> None:
        async with served() as at:
            answers = (await at.ask(user("is it cold"), who=who, choices=2, max_tokens=4)).answers
            ends = {delta.choice: delta.ended for delta in at.heard if delta.ended is not None}
            assert ends == dict(enumerate(answers))
            await at.ask(user("is it cold"), who=who, max_tokens=4)
            assert not any(delta.ended for delta in at.heard)

    play(body)


WEATHER = ToolDefinition("weather", "Tells it.", {"type": "object", "properties": {"town": {"type": "string"}}})
CALL = ("weather", '{"town": "Oslo"}')
CALLED = '{"name": "weather", "arguments": {"town": "Oslo"}}'


def test_a_call_of_a_function_comes_back_as_what_was_said_and_its_result_is_its_agent_s_alone(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, FakeEngine(answer=lambda call, prompt: CALLED)) as at:
            tools = Tools((WEATHER,), "required")
            first = await at.ask(user("is it cold"), who=ANN, tools=tools)
            answer = first.answers[0]
            assert [(call.name, call.arguments) for call in answer.calls] == [("weather", '{"town": "Oslo"}')]
            [call] = answer.calls
            said = QuotedMessage(
                "assistant", "", None, answer.id, (call._replace(arguments='{"town":"Oslo"}', id="c1"),)
            )
            result = QuotedMessage("tool", "minus nine", call_id="c1")
            after = await at.ask(user("is it cold"), said, result, who=ANN, max_tokens=4)
            other = said._replace(calls=(call._replace(arguments='{"town": "Rome"}', id="c1"),))
            changed = await at.ask(user("is it cold"), other, result, who=ANN, max_tokens=4)
            lied = await at.ask(user("is it cold"), said._replace(text="no"), result, who=ANN, max_tokens=4)
            assert spared(after) > spared(changed)
            assert spared(after) > spared(lied)

    play(body)
    assert conclusion(tmp_path) == "clean"
    results = [entry.message for entry in entries(tmp_path) if entry.message.role == "tool"]
    assert [(message.author, message.audience.to_json()) for message in results] == [("ann", ["ann"])]


@pytest.mark.parametrize("who", [Caller(), ANN], ids=["no society", "society"])
def test_without_parallel_calls_the_first_call_of_an_answer_is_the_only_one(who: Caller) -> None:
    calls = (ToolCall(*CALL), ToolCall("weather", '{"town": "Rome"}'))
    said = [""]

    async def body() -> None:
        async with served(engine=FakeEngine(reply=lambda call, prompt: said[0])) as at:
            said[0] = at.engine.framing.tools.spoken("Let me see.", calls)[0]
            for parallel, shown in ((True, [*calls]), (False, [calls[0]])):
                asked = await at.ask(user("is it cold"), who=who, tools=Tools((WEATHER,)), parallel=parallel)
                assert [call[:2] for call in asked.answers[0].calls] == [call[:2] for call in shown]
                assert asked.answers[0].before == "Let me see."

    play(body)


@pytest.mark.parametrize("who", [Caller(), ANN], ids=["no society", "society"])
def test_a_call_is_left_to_the_model_whether_or_not_its_template_has_a_format(who: Caller) -> None:
    said = ["Let me see."]
    engine = FakeEngine(reply=lambda call, prompt: said[0])
    offered = Tools((WEATHER,), "auto")

    async def body() -> None:
        async with served(engine=engine) as at:
            said[0] = engine.framing.tools.spoken("Let me see.", [ToolCall(*CALL)])[0]
            [answer] = (await at.ask(user("is it cold"), who=who, tools=offered)).answers
            assert answer.before == "Let me see."
            assert [call[:2] for call in answer.calls] == [CALL]
            engine.framing.tools = ToolFormat(engine.framing.content)
            said[0] = engine.framing.tools.spoken("", [ToolCall(*CALL)])[0]
            [answer] = (await at.ask(user("is it cold"), who=who, tools=offered)).answers
            assert [call[:2] for call in answer.calls] == [CALL]
            quoted = QuotedMessage("assistant", "", None, answer.id, (answer.calls[0]._replace(id="c"),))
            talk, said[0] = (
                (user("is it cold"), quoted, QuotedMessage("tool", "rain", None, None, (), "c")),
                "It rains.",
            )
            after = await at.ask(*talk, who=who, tools=offered)
            assert (after.answers[0].text, after.answers[0].calls) == ("It rains.", ())
            assert after.usage.exact + after.usage.reused > 0

    play(body)


@pytest.mark.parametrize("text", ['{"note": "\\ud83d is half an emoji, and no character"}', "Let me see. "])
def test_half_a_character_in_an_answer_hurts_neither_it_nor_who_reads_it(text: str, tmp_path: Path) -> None:
    half = '{"name": "weather", "arguments": {"town": "half of \\ud83d, and more"}}'

    async def body() -> None:
        engine = FakeEngine(reply=lambda call, prompt: text if text.startswith("{") else f"{text}{half}")
        async with served(tmp_path, engine) as at:
            tools = None if text.startswith("{") else Tools((WEATHER,), "auto")
            first = (await at.ask(user("is it cold"), who=ANN, tools=tools, max_tokens=64)).answers[0]
            quoted = assistant(first.text, id=first.id)
            for who in (ANN, agent("bob")):
                await at.ask(user("is it cold"), quoted, user("and now"), who=who, tools=tools, max_tokens=64)

    play(body)
    assert conclusion(tmp_path) == "clean"
    ids = [entry.message.id for entry in entries(tmp_path)]
    assert len(ids) == len(set(ids))


def test_an_error_after_an_answer_was_recorded_leaves_the_society_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            with monkeypatch.context() as patched:
                patched.setattr(conversation, "calls_in", lambda *given: [][1])
                with pytest.raises(CallbackFailed):
                    await at.ask(user("is it cold"), who=ANN, max_tokens=4)
            for who in (ANN, agent("bob")):
                await at.ask(user("is it cold"), user("and now"), who=who, max_tokens=4)

    play(body)
    assert conclusion(tmp_path) == "clean"
    ids = [entry.message.id for entry in entries(tmp_path)]
    assert len(ids) == len(set(ids))


def test_an_answer_that_nobody_has_read_yet_can_be_quoted_twice(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path) as at:
            said = await at.ask(user("shall we build a bridge"), who=ANN, max_tokens=4)
            text = said.answers[0].text
            await at.ask(user(text), user(text), who=BOB, max_tokens=4)
            await at.ask(user("and what now"), who=ANN, max_tokens=4)

    play(body)
    assert conclusion(tmp_path) == "clean"


REFUSED: dict[str, dict[str, Any]] = {
    "what the engine refuses": {"logprobs": 99},
    "too long": {"messages": "word " * 4000},
    "an audience that is no name": {"audience": ("",)},
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_first_request_opens_nothing_fixes_nothing_and_leaves_no_record(tmp_path: Path, what: str) -> None:
    more = dict(REFUSED[what])
    text = more.pop("messages", "hello")

    async def body() -> None:
        async with served(tmp_path, FakeEngine(context=256)) as at:
            with pytest.raises((ApiError, AgentchoError)):
                await at.ask(user(text), who=ANN._replace(mode="audit"), **more)
            assert at.model.society_info(ANN) is None
            assert not at.model.end_society(ANN)
            assert not [*tmp_path.iterdir()]
            await at.ask(user("hello"), who=ANN._replace(mode="enforce"), max_tokens=4)
            with pytest.raises((ApiError, AgentchoError)):
                await at.ask(user(text), who=ANN, **more)
            assert at.model.society_info(ANN) is not None

    play(body)
    assert conclusion(tmp_path) == "clean"
