"""Ids of what a client is sent, made so that each leads back to the answer that it is a part of.

Does not know: which answers there were.
"""

from __future__ import annotations

import re
import secrets

from agentcho.serve.request import Answer, QuotedMessage

PART = re.compile(r"(?:call|fc)_(.+)_\d+|msg_(.+)", re.DOTALL)


def drawn() -> str:
    """A new id: 96 bits that nobody can guess, so short that other servers take `call` of it too (40 letters)."""
    return secrets.token_hex(12)


def call(answer: str, number: int) -> str:
    """The id of the call of that number, from 0, in an answer; the result of the call names it."""
    return f"call_{answer}_{number}"


def item(answer: str, number: int | None = None) -> str:
    """The id of an item of /v1/responses: the message of an answer, or the call of that number in it."""
    return f"msg_{answer}" if number is None else f"fc_{answer}_{number}"


def answer(id: str) -> str:
    """The id of the answer that `call` or `item` was made of; any other id as it is."""
    found = PART.fullmatch(id)
    return (found[1] or found[2]) if found else id


def of_calls(given: list[str]) -> str | None:
    """The id of the one answer whose calls have these ids. None: they are not all of one answer of a server of ours."""
    found = {answer(id) for id in given if answer(id) != id}
    return found.pop() if len(found) == 1 and all(answer(id) != id for id in given) else None


def quotation(said: Answer) -> QuotedMessage:
    """An answer as a client quotes it."""
    calls = tuple(each._replace(id=call(said.id, number)) for number, each in enumerate(said.calls))
    return QuotedMessage("assistant", said.before if calls else said.text, id=said.id, calls=calls)
