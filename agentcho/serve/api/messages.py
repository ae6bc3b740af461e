"""Reads messages of /v1/chat/completions into messages for the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from agentcho.serve.api import ids
from agentcho.serve.api.body import Body, Several, wrapped, wrong
from agentcho.serve.request import MOST_CALLED_NAME, ChatRole, QuotedMessage, ToolCall

TEXT_ALONE = "this server reads only text; give a part of type "
PARSED_ARGUMENTS = "parsed_arguments"
"""The field in which the `openai` client puts the parsed arguments of a call, and which it sends back; "parsed" is the
same for a text."""
LONGEST = 256
Id = Annotated[str, Field(min_length=1, max_length=LONGEST)]
MOST_NAME = 128
Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
CalledName = Annotated[str, Field(min_length=1, max_length=MOST_CALLED_NAME)]
"""The name of a function in a call that is quoted. It need not be one that a client may offer, because the server also
returns calls of other functions."""


class TextPart(Body):
    """A piece of a message's text. A piece of another type is an error that says so."""

    types: ClassVar[Mapping[str, str]] = {"text": "text", "refusal": "refusal"}
    """The types of parts that are text, and the field that holds it."""
    within = "messages.content."
    ignored = frozenset({"annotations", "cache_control", "parsed", "prompt_cache_breakpoint"})

    text: str = ""

    @model_validator(mode="before")
    @classmethod
    def _text(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        type = given.get("type")
        if not isinstance(type, str) or type not in cls.types:
            raise wrong("type", TEXT_ALONE + " or ".join(cls.types))
        field = cls.types[type]
        if not isinstance(said := given.get(field), str):
            raise wrong(field, "it is not text; give a string")
        return {name: value for name, value in given.items() if name not in ("type", field)} | {"text": said}


Content = Annotated[Several[TextPart], BeforeValidator(lambda given: wrapped(given, "text", "text"))]


class CalledFunction(Body):
    """The function of a call, and its arguments as JSON."""

    within = "messages.tool_calls.function."
    ignored = frozenset({PARSED_ARGUMENTS})

    name: CalledName
    arguments: str = ""


class FunctionCall(Body):
    """A function call in an assistant message."""

    ignored = frozenset({"index", "extra_content", "provider_specific_fields"})
    within = "messages.tool_calls."
    kinds = ("function",)

    id: Id | None = None
    type: Literal["function"] = "function"
    function: CalledFunction

    @property
    def made(self) -> ToolCall:
        """The call, independent of the API's form."""
        return ToolCall(self.function.name, self.function.arguments, self.id or "")


class ChatMessageBody(Body):
    """A message as clients send it, and as they send back what they received."""

    within = "messages."
    ignored = frozenset({"annotations", "cache_control", "parsed", "reasoning", "reasoning_content"})
    refused: ClassVar[Mapping[str, str]] = {
        "audio": "this server hears no audio",
        "function_call": "it is of an older API; give tool_calls",
    }

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = ()
    refusal: str | None = None
    name: Name | None = None
    id: Id | None = None
    provider_specific_fields: dict[str, Any] = Field(default_factory=dict)
    tool_calls: Several[FunctionCall] = ()
    tool_call_id: Id | None = None

    @model_validator(mode="after")
    def _whole(self) -> ChatMessageBody:
        """Raise for a field that the role requires or does not allow."""
        if not self._has_content and self.role != "assistant":
            raise wrong("content", "it is missing; give a string, or a list of text parts")
        if self.tool_calls and self.role != "assistant":
            raise wrong("tool_calls", "only messages of the assistant can have these; leave them out")
        if (self.tool_call_id is None) is (self.role == "tool"):
            raise wrong(
                "tool_call_id",
                (
                    "messages of role tool need it, and other messages must not have it; give the id of the call "
                    "that this message answers"
                ),
            )
        return self

    @property
    def _has_content(self) -> bool:
        return "content" in self.model_fields_set

    @property
    def _own_id(self) -> str | None:
        """The id that it claims. litellm keeps the id of an answer among fields that it does not know, and sends it
        back there."""
        kept = self.provider_specific_fields.get("id")
        return self.id or (kept if isinstance(kept, str) and len(kept) <= LONGEST else None)

    @property
    def quoted(self) -> QuotedMessage:
        """The message, independent of the API's form."""
        role: ChatRole = "system" if self.role == "developer" else self.role
        said = joined(self.content) if self._has_content else self.refusal or ""
        calls = tuple(each.made for each in self.tool_calls)
        of = ids.answer(self._own_id) if self._own_id else ids.of_calls([each.id or "" for each in self.tool_calls])
        return QuotedMessage(role=role, text=said, name=self.name, id=of, calls=calls, call_id=self.tool_call_id)


def joined(parts: Iterable[TextPart]) -> str:
    """The text of all parts, one per line, as in vLLM."""
    return "\n".join(part.text for part in parts)


def letters(quoted: Collection[QuotedMessage]) -> int:
    """The number of characters of all messages, function calls included."""
    return sum(len(each.text) + sum(len(call.name) + len(call.arguments) for call in each.calls) for each in quoted)
