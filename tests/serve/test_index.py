"""Which of many messages a quoted message refers to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentcho.message import Audience
from agentcho.serve.sharing import message_index
from agentcho.serve.sharing.message_index import MessageIndex, PromptPosition, QuotableMessage, Reader
from agentcho.serve.sharing.request_prompt import FramedMessage

BOB = Reader("bob", True)
SECRET = "the key lies under the mat by the door"
EVERYBODY, ANN = Audience(None), Audience(frozenset({"ann"}))


def known(number: int, audience: Audience = EVERYBODY, before: bytes = b"") -> QuotableMessage:
    return QuotableMessage(f"s.{number}", f"msg_{number}", "user", "yes", None, None, audience, before)


def test_what_is_private_of_others_takes_nobody_s_place() -> None:
    """Otherwise a miss would tell Bob that others hold a text in private, and how often."""
    texts = MessageIndex()
    texts.add(public := known(0))
    for number in range(1, message_index.MOST + 2):
        texts.add(known(number, ANN))
    assert texts.find(FramedMessage("user", "yes"), BOB, PromptPosition(["s.other"])) is public


def test_of_ever_new_readers_the_latest_are_kept_and_all_find_what_they_may_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_index, "MOST_SHELVES", 3)
    texts = MessageIndex()
    texts.add(secret := known(0, ANN))
    for name in ("ann", *map(str, range(9)), "ann"):
        assert texts.find(FramedMessage("user", "yes"), Reader(name, True), PromptPosition()) is (
            secret if name == "ann" else None
        )
    assert list(texts._own) == ["7", "8", "ann"]
    texts.add(later := known(1, ANN))
    assert texts.find(FramedMessage("user", "yes"), Reader("ann", True), PromptPosition(["s.0"])) is later


def test_a_long_prompt_of_equal_texts_is_matched_with_a_few_looks_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, looks, most = MessageIndex(), list[QuotableMessage](), 200
    same = message_index._same_words

    def counted(quoted: FramedMessage, one: QuotableMessage) -> bool:
        looks.append(one)
        return same(quoted, one)

    monkeypatch.setattr(message_index, "_same_words", counted)
    before = PromptPosition()
    for number in range(most):
        texts.add(one := known(number, before=before.key))
        before.add(one.id)
        assert len(one.before) <= 16, "it grows with the prompt"
    for first in ([], ["s.other"]):
        here, found = PromptPosition(first), list[QuotableMessage | None]()
        for _ in range(most):
            found.append(texts.find(FramedMessage("user", "yes"), BOB, here))
            assert found[-1] is not None
            here.add(found[-1].id)
        assert len(set(found)) == most
    assert len(looks) <= 4 * most


@pytest.mark.parametrize(
    "quoted",
    [
        FramedMessage("assistant", SECRET),
        FramedMessage("user", f"ann: {SECRET}"),
        FramedMessage("user", f"so: {SECRET}!"),
    ],
)
def test_a_guess_at_hidden_words_takes_no_look_more_than_any_other(
    quoted: FramedMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup never compares with a message that the reader may not read."""
    looks, ids = list[str](), tuple(range(20))

    def counted(name: str) -> Callable[..., object]:
        same = getattr(message_index, name)

        def looked(*given: object) -> object:
            looks.append(name)
            found: object = same(*given)
            return found

        return looked

    for name in ("_same_words", "_same_until", "_fits"):
        monkeypatch.setattr(message_index, name, counted(name))
    found = list[list[str]]()
    for audience in (ANN, EVERYBODY):
        texts, before = MessageIndex(), PromptPosition()
        hidden = QuotableMessage(
            "ann.0", "msg_0", "assistant", SECRET, None, "ann", audience, b"", True, quotable=(ids,)
        )
        texts.add(hidden)
        looks.clear()
        told = [texts.find(quoted, BOB, before), texts.restyled(quoted, BOB), texts.part("part", None, ids, BOB)]
        inside = texts.inside(quoted, (99, *ids, 99), BOB)
        assert (hidden in told or bool(inside)) == (audience is EVERYBODY)
        texts.why(quoted, BOB, before)
        found.append(list(looks))
    assert found[0] == []
    assert found[1], "it would be looked at if it were not hidden, so this test can fail"
