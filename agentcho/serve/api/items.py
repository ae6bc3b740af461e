"""Reads items of /v1/responses into messages for the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ValidationInfo, model_validator

from agentcho.serve.api import ids
from agentcho.serve.api.body import Body, Several, count, wrapped, wrong
from agentcho.serve.api.messages import MOST_NAME, PARSED_ARGUMENTS, CalledName, Id, TextPart, joined
from agentcho.serve.request import ChatRole, QuotedMessage, ToolCall

TYPES = ("message", "function_call", "function_call_output", "item_reference")
THOUGHT = "rs_"
"""How ids of thoughts begin."""


class ItemPart(TextPart):
    """A piece of an item's text."""

    types: ClassVar[Mapping[str, str]] = {
        "input_text": "text",
        "output_text": "text",
        "text": "text",
        "refusal": "refusal",
    }
    within = "input.content."
    ignored = TextPart.ignored | {"logprobs"}


Content = Annotated[Several[ItemPart], BeforeValidator(lambda given: wrapped(given, "input_text", "text"))]
NEEDED = {
    "message": ("role", "content"),
    "function_call": ("name", "arguments", "call_id"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
    "item_reference": ("id",),
}
"""The accepted types of items, and the fields that each must have."""


class Item(Body):
    """A message, a function call or its result, as clients send them and as they send back what they received, or a
    reference to such an item. Thoughts are dropped, and counted."""

    within = "input."
    ignored = frozenset({"caller", "namespace", "phase", PARSED_ARGUMENTS})

    type: Literal["message", "function_call", "function_call_output", "reasoning", "item_reference"] = "message"
    id: Id | None = None
    status: str | None = None
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: Content = ()
    name: CalledName | None = None
    call_id: Id | None = None
    arguments: str = ""
    output: Content = ()

    @model_validator(mode="before")
    @classmethod
    def _of_its_type(cls, given: Any, info: ValidationInfo) -> Any:
        """Raise for an item of another type, or without a needed field."""
        if not isinstance(given, dict):
            return given
        type = given.get("type", "message")
        if not isinstance(type, str) or type not in NEEDED:
            raise wrong("type", f"this server does not know this item; give one of type {', '.join(TYPES)}")
        if type == "reasoning" or (type == "item_reference" and str(given.get("id")).startswith(THOUGHT)):
            count(info, "input.reasoning")
            return {"type": "reasoning"}
        for field in NEEDED[type]:
            if given.get(field) is None:
                raise wrong(field, f"it is missing, and items of type {type} need it; give it")
        return given

    @model_validator(mode="after")
    def _short_speaker(self) -> Item:
        """Raise for a name that is longer than those of speakers, unless it is the name of a function."""
        if self.type != "function_call" and self.name is not None and len(self.name) > MOST_NAME:
            raise wrong("name", f"it has {len(self.name)} characters; give at most {MOST_NAME}")
        return self


Input = Annotated[Several[Item], BeforeValidator(lambda given: wrapped(given, "message", "content", role="user"))]


def quoted(items: Iterable[Item]) -> list[QuotedMessage]:
    """The messages that the items belong to: calls are part of the message that made them."""
    found = list[QuotedMessage]()
    for item in items:
        match item.type:
            case "message":
                role: ChatRole = "system" if item.role == "developer" else item.role
                of = ids.answer(item.id) if item.id else None
                found.append(QuotedMessage(role, joined(item.content), item.name, of))
            case "function_call":
                _add(found, item)
            case "function_call_output":
                found.append(QuotedMessage("tool", joined(item.output), item.name, call_id=item.call_id))
            case "item_reference":
                found.append(QuotedMessage("assistant", "", id=item.id, refers=True))
    return found


def written(messages: Iterable[QuotedMessage], response: str) -> list[dict[str, Any]]:
    """The messages as items, the reverse of `quoted`. Those without an id of their own, and those whose
    id a message before them has, get one from that of their `response`."""
    found, known = list[dict[str, Any]](), set[str | None]()
    for number, message in enumerate(messages):
        made = f"in_{response}_{number}"
        if message.role == "tool":
            own = {"type": "function_call_output", "call_id": message.call_id, "output": message.text}
            found.append({"id": made, **own, "status": "completed"})
            continue
        of = None if message.id in known or message.role != "assistant" else message.id
        known.add(of)
        if message.text or not message.calls:
            found.append(_written_message(message, ids.item(of) if of else made))
        for nth, call in enumerate(message.calls):
            id = ids.item(of, nth) if of else f"{made}_{nth}"
            own = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
            found.append({"id": id, **own, "status": "completed"})
    return found


def _written_message(message: QuotedMessage, id: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "input_text", "text": message.text}
    if message.role == "assistant":
        part = {"type": "output_text", "text": message.text, "annotations": [], "logprobs": []}
    return {"id": id, "type": "message", "role": message.role, "status": "completed", "content": [part]}


def _add(found: list[QuotedMessage], item: Item) -> None:
    """Add a call to the message before it, if both belong to one answer, or both come from another server."""
    of = ids.of_calls([item.call_id or ""]) or ids.of_calls([item.id or ""])
    call, last = ToolCall(item.name or "", item.arguments, item.call_id or ""), found[-1] if found else None
    if last is not None and last.role == "assistant" and last.id == of and (last.calls or of is not None):
        found[-1] = last._replace(calls=(*last.calls, call))
    else:
        found.append(QuotedMessage("assistant", "", id=of, calls=(call,)))
