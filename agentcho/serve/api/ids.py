"""Ids sent to clients, made so that each leads back to the answer that it belongs to."""

from __future__ import annotations

import re
import secrets

from agentcho.serve.request import Answer, QuotedMessage

PART = re.compile(r"(?:call|fc)_(.+)_\d+|msg_(.+)", re.DOTALL)


def drawn() -> str:
    """A new id of 96 random bits, short enough for other servers to accept a `call` id made from it (at most 40
    characters)."""
    return secrets.token_hex(12)


def call(answer: str, number: int) -> str:
    """The id of a call by its number, from 0, in an answer. The result of the call refers to it."""
    return f"call_{answer}_{number}"


def item(answer: str, number: int | None = None) -> str:
    """The id of an item of /v1/responses: the message of an answer, or a call in it by its number."""
    return f"msg_{answer}" if number is None else f"fc_{answer}_{number}"


def answer(id: str) -> str:
    """The id of the answer that a `call` or `item` id was made from. Other ids are returned as they are."""
    found = PART.fullmatch(id)
    return (found[1] or found[2]) if found else id


def of_calls(given: list[str]) -> str | None:
    """The id of the one answer that the calls with these ids belong to. None: they do not all belong to one answer of
    this kind of server."""
    found = {answer(id) for id in given if answer(id) != id}
    return found.pop() if len(found) == 1 and all(answer(id) != id for id in given) else None


def quotation(said: Answer) -> QuotedMessage:
    """An answer in the form in which a client quotes it."""
    calls = tuple(each._replace(id=call(said.id, number)) for number, each in enumerate(said.calls))
    return QuotedMessage("assistant", said.before if calls else said.text, id=said.id, calls=calls)
