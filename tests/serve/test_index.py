"""Which message is meant by a quoted one, however many there are."""

from __future__ import annotations

import pytest

from agentcho.message import Audience
from agentcho.serve.sharing import index
from agentcho.serve.sharing.index import Known, MessageIndex, Reader, Standing
from agentcho.serve.sharing.prompt import Framed

BOB = Reader("bob", True)
EVERYBODY, ANN = Audience(None), Audience(frozenset({"ann"}))


def known(number: int, audience: Audience = EVERYBODY, before: bytes = b"") -> Known:
    return Known(f"s.{number}", f"msg_{number}", "user", "yes", None, None, audience, before)


def test_what_is_private_of_others_takes_nobody_s_place() -> None:
    """Otherwise a miss would tell bob that others have a text in private, and how often."""
    texts = MessageIndex()
    texts.add(public := known(0))
    for number in range(1, index.MOST + 2):
        texts.add(known(number, ANN))
    assert texts.find(Framed("user", "yes"), BOB, Standing(["s.other"])) is public


def test_a_long_prompt_of_equal_texts_is_matched_with_a_few_looks_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, looks, most = MessageIndex(), list[Known](), 200
    same = index._same_words

    def counted(quoted: Framed, one: Known) -> bool:
        looks.append(one)
        return same(quoted, one)

    monkeypatch.setattr(index, "_same_words", counted)
    before = Standing()
    for number in range(most):
        texts.add(one := known(number, before=before.key))
        before.add(one.id)
        assert len(one.before) <= 16, "it grows with the prompt"
    for first in ([], ["s.other"]):
        here, found = Standing(first), list[Known | None]()
        for _ in range(most):
            found.append(texts.find(Framed("user", "yes"), BOB, here))
            assert found[-1] is not None
            here.add(found[-1].id)
        assert len(set(found)) == most
    assert len(looks) <= 4 * most
