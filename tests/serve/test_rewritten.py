"""Answers that come back changed: with other whitespace, after a name, merged, quoted in a prompt. They are found by
their words, only among messages that their reader may read, and the model reads what the client sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentcho.engine.call_layout import encoded
from agentcho.message import Audience
from agentcho.protocol.call import Call, Decode, Prefill
from agentcho.records.transcript import TranscriptEntry
from agentcho.serve.request import Answers, QuotedMessage
from agentcho.serve.sharing import conversation, message_index
from agentcho.serve.sharing.message_index import EDGE
from agentcho.serve.sharing.request_prompt import FramedMessage
from agentcho.serve.sharing.society import RetentionLimits
from agentcho.testing import FakeEngine
from tests.serve.stage import Asked, agent, assistant, conclusion, play, saved, served, system, user

ANN, BEN, CAL, EVE = agent("ann"), agent("ben"), agent("cal"), agent("eve")
LONG = "we could meet at nine under the old bridge and count all the coins again"
OTHER = "nobody should ever pay more than thirty for a boat of that kind in winter"
TASK = user("agree on a price")


def spared(answers: Answers) -> int:
    return answers.usage.exact + answers.usage.reused


def missed(answers: Answers) -> dict[str, int]:
    return dict(answers.usage.missed)


def saying(call: Call, prompt: str) -> str:
    """Replies with a long text for Ann, another for Ben, and a short one for everybody else."""
    name = call.name if isinstance(call, Decode) else ""
    return {"ann": LONG, "ben": OTHER}.get(name or "", "well then")


def engine() -> FakeEngine:
    return FakeEngine(reply=saying)


async def both_have_spoken(at: Asked, **ann: object) -> tuple[QuotedMessage, ...]:
    """Lets Ann say `LONG`, and Ben `OTHER`."""
    await at.ask(system("you are ann"), TASK, who=ANN, **ann)
    await at.ask(system("you are ben"), TASK, who=BEN)
    return (TASK,)


REWRITTEN: dict[str, QuotedMessage] = {
    "stripped": assistant(f"\n{LONG}\n\n"),
    "behind a name": user(f"ann: {LONG}"),
    "behind a name in bold": user(f"**Ann**: {LONG}"),
    "merged": user(f"{LONG}\n\n{OTHER}"),
    "merged with names": user(f"ann: {LONG}\nben: {OTHER}"),
    "quoted in a prompt": user(f"This is the context: {LONG} ---------- Begin! Give your best answer."),
    "quoted in a system message": system(f"You read: {LONG} and {OTHER}. Judge."),
    "quoted as an answer": assistant(f"As ann said, {LONG}, and I agree with her on that."),
}


@pytest.mark.parametrize("how", REWRITTEN)
def test_a_rewritten_answer_is_encoded_once_for_all_who_read_it(how: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, engine()) as at:
            before = await both_have_spoken(at)
            first = await at.ask(system("cal"), *before, REWRITTEN[how], who=CAL, max_tokens=2)
            second = await at.ask(system("dan"), *before, REWRITTEN[how], who=agent("dan"), max_tokens=2)
            of_it = (len(LONG.split()) - EDGE) * (1 + (OTHER in REWRITTEN[how].text))  # tokens at its edges may differ
            assert spared(second) - spared(first) >= of_it
            assert sum(missed(first).values()) == first.usage.prompt - spared(first) - _around(at, "cal")
            assert {"restyled", "inside"} & set(missed(first))
            assert not {"restyled", "inside"} & set(missed(second))

    play(body)
    assert conclusion(tmp_path) == "clean"


def _around(at: Asked, name: str) -> int:
    """Tokens that are not of a message: BOS, and the opening of the answer."""
    return int(at.engine.bos) + len(at.engine.framing.opening("assistant", name))


@pytest.mark.parametrize(
    ("as_json", "quoted"),
    [
        ("written anew", assistant(f'{{ "reply":  "{LONG}" }}')),
        ("its string alone", user(f"ann says this: {LONG} -- and what do you say?")),
    ],
)
def test_an_answer_in_json_is_found_in_another_form_and_by_its_strings(as_json: str, quoted: QuotedMessage) -> None:
    said = f'{{"reply": "{LONG}"}}'

    async def body() -> None:
        async with served(engine=FakeEngine(reply=lambda call, prompt: said)) as at:
            await at.ask(TASK, who=ANN)
            first = await at.ask(quoted, who=CAL, max_tokens=2)
            assert {"restyled", "inside"} & set(missed(first))
            second = await at.ask(system("dan"), quoted, who=agent("dan"), max_tokens=2)
            assert spared(second) >= len(LONG.split()) - EDGE

    play(body)


def test_what_an_agent_adds_to_an_answer_in_json_stays_its_own() -> None:
    """Parsing would drop the first value of a duplicate key, and with it the secret."""

    async def body() -> None:
        async with served(engine=FakeEngine(reply=lambda call, prompt: '{"ok": true}')) as at:
            await at.ask(TASK, who=ANN)
            secret = assistant('{"ok": "the key lies under the mat by the door", "ok": true}')
            told = await at.ask(secret, who=CAL, max_tokens=2)
            assert set(missed(told)) == {"not_said_here"}
            assert spared(await at.ask(secret, who=BEN, max_tokens=2)) == 0

    play(body)


@pytest.mark.parametrize("how", REWRITTEN)
def test_the_model_reads_the_very_tokens_that_the_client_sent(how: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, engine()) as at:
            await both_have_spoken(at)
            await at.ask(REWRITTEN[how], who=CAL, max_tokens=2)
            said = REWRITTEN[how]
            sent.extend(encoded(at.engine.framing, said.role, None, said.text).tokens)

    sent = list[int]()
    play(body)
    entries = {entry.message.id: entry for entry in saved(tmp_path).games()[0]}
    last = next(entry for entry in entries.values() if entry.message.author == "cal" and entry.own is not None)
    assert [id for parent in last.message.parents for id in entries[parent].message.tokens] == sent


def test_what_was_cut_once_stays_cut_so(tmp_path: Path) -> None:
    """Otherwise a prompt that a framework resends would be encoded anew with every answer found in it."""

    async def body() -> None:
        async with served(tmp_path, engine()) as at:
            await at.ask(TASK, who=ANN)
            both = user(f"{LONG} {OTHER} and so on")
            first = await at.ask(both, who=CAL, max_tokens=2)
            await at.ask(TASK, who=BEN)
            again = await at.ask(both, who=CAL, max_tokens=2)
            assert spared(again) == first.usage.prompt - _around(at, "cal")

    play(body)


def test_how_messages_were_cut_is_remembered_of_the_latest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recombining the same few parts gives no new messages, but any number of prompts."""
    monkeypatch.setattr(conversation, "MOST_CUT", 100)

    async def body() -> None:
        async with served(engine=engine()) as at:
            before = await both_have_spoken(at)
            for number in range(20):
                await at.ask(*before, user(f"{LONG} {number} {OTHER}"), who=CAL, max_tokens=2)
                kept = at.model._societies["", "town", ""]._talk._cuts.values()
                assert 0 < sum(len(cut.ids) for cut in kept) <= 100

    play(body)


HIDDEN: dict[str, QuotedMessage] = {
    "as it is": assistant(LONG),
    "stripped": assistant(f" {LONG} "),
    "behind a name": user(f"ann: {LONG}"),
    "quoted": user(f"This is the context: {LONG} and that is all there is to it."),
    "quoted in private": system(f"This is the context: {LONG} and that is all there is to it."),
    "the end of it": user(f"was it {LONG.split(maxsplit=2)[2]} or so"),
}


@pytest.mark.parametrize("guess", HIDDEN)
def test_a_guess_at_a_hidden_answer_is_a_miss_like_any_other(guess: str, tmp_path: Path) -> None:
    """The same usage, the same information about the society, and the same calls of the engine."""
    told = list[object]()
    wrong = HIDDEN[guess]._replace(text=HIDDEN[guess].text.replace("nine", "four").replace("bridge", "tower"))

    async def body(quoted: QuotedMessage, hidden: bool) -> None:
        calls = list[tuple[object, ...]]()
        asked = engine()
        asked.guilty = lambda call: calls.append(_shape(call))
        async with served(None, asked) as at:
            await both_have_spoken(at, **({"audience": ("ann",)} if hidden else {}))
            calls.clear()
            answers = await at.ask(system("eve"), TASK, quoted, user("so?"), who=EVE, max_tokens=2)
            told.append((answers.usage, calls, at.model.society_info(EVE)))

    for quoted in (HIDDEN[guess], wrong):
        play(body, quoted, True)
    right, other = told
    assert right == other
    play(body, HIDDEN[guess], False)
    assert told[2] != right, "it would be found if it were not hidden, so this test can fail"


def _shape(call: Call) -> tuple[object, ...]:
    """A call without its words."""
    length = len(call.tokens or call.text.split()) if isinstance(call, Prefill) else 0
    return type(call).__name__, getattr(call, "role", ""), length, len(call.parents), call.salt.rpartition("/")[2]


@pytest.mark.parametrize(
    ("quoting", "role"),
    [(user(f"This is the context: {LONG} and that is all there is to it."), "part"), (user(f"ann: {LONG}"), "user")],
)
def test_a_rewritten_hidden_answer_is_for_its_readers_alone(quoting: QuotedMessage, role: str, tmp_path: Path) -> None:
    """Ann and Ben share what Ann whispered to Ben; for Eve, who sends the same prompt, everything is encoded anew."""

    async def body() -> None:
        async with served(tmp_path, engine(), user_messages="private") as at:
            await at.ask(TASK, who=ANN, audience=("ann", "ben"))
            await at.ask(quoting, who=BEN, audience=("ann", "ben"), max_tokens=2)
            eve = await at.ask(quoting, who=EVE, max_tokens=2)
            assert spared(eve) == 0
            ann = await at.ask(quoting, who=ANN, audience=("ann", "ben"), max_tokens=2)
            assert spared(ann) >= len(LONG.split()) - EDGE

    play(body)
    assert conclusion(tmp_path) == "clean"
    shared = [entry.message for entry in _entries(tmp_path) if entry.message.audience.to_json() == ["ann", "ben"]]
    rewritten = [(m.role, m.author) for m in shared if m.kind == "prefill"]
    assert rewritten == [(role, "ann")]


def _entries(folder: Path) -> Iterator[TranscriptEntry]:
    return (entry for game in saved(folder).games().values() for entry in game)


def test_a_prompt_in_the_baseline_is_read_as_one() -> None:
    async def body() -> None:
        async with served(engine=engine(), mode="baseline") as at:
            before = await both_have_spoken(at)
            await at.ask(*before, REWRITTEN["merged"], who=CAL, max_tokens=2)
            drafts = at.model._societies["", "town", ""]._talk._resolver.drafts.values()
            assert {draft.metadata.role for draft in drafts} == {"system", "user", "assistant"}

    play(body)


def test_an_answer_of_an_earlier_game_is_found_among_other_words(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, engine(), keeping=RetentionLimits(messages=2)) as at:
            await at.ask(TASK, who=ANN)
            first = await at.ask(REWRITTEN["quoted in a prompt"], who=CAL, max_tokens=2)
            assert missed(first)["inside"] >= len(LONG.split()) - EDGE

    play(body)
    assert conclusion(tmp_path) == "clean"


def test_a_short_answer_among_other_words_is_no_part() -> None:
    async def body() -> None:
        async with served(engine=engine()) as at:
            await at.ask(TASK, who=EVE)
            answers = await at.ask(user("she said well then and went"), who=CAL, max_tokens=2)
            assert missed(answers) == {"first_sent": answers.usage.prompt - _around(at, "cal")}

    play(body)


def test_a_text_full_of_beginnings_of_answers_is_done_with_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is linear in the length of a text, however often parts of it begin like an answer."""
    texts, everyone = message_index.MessageIndex(), Audience(None)
    for number in range(300):
        tokens = (*[1] * 400, number + 2)
        said = message_index.QuotableMessage(
            f"a.{number}", f"m{number}", "assistant", str(number), None, "ann", everyone, b"", True
        )
        texts.add(replace(said, quotable=(tokens,)))
    looked, same = [0], message_index._same_until

    def counted(answer: tuple[int, ...], ids: tuple[int, ...], at: int) -> int:
        looked[0] += len(answer)
        return same(answer, ids, at)

    monkeypatch.setattr(message_index, "_same_until", counted)
    found = texts.inside(FramedMessage("user", "x"), [1] * 5000, message_index.Reader("ben", True))
    assert looked[0] <= 5000 * message_index.WORK + 300 * 401 * 3
    assert all(inside.stop - inside.start >= message_index.LEAST for inside in found)
