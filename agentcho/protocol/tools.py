"""Functions that a model may call, and calls of them: plain values that a server and an engine's framing exchange.

Independent of how a chat template writes these; `engine/tools.py` implements that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class ToolDefinition(NamedTuple):
    """A function that the model may call. `parameters` is the JSON schema of its arguments. None if it takes none."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class ToolCall(NamedTuple):
    """A call of a function: its name, and its arguments as JSON text, as the model wrote them. The message with the
    result refers to the call by `id`; if a template writes no ids in calls, neither does a model."""

    name: str
    arguments: str
    id: str = ""


def made_up_id(of: str) -> str:
    """An id for a call that has none, a hash of a text that identifies it: nine letters and digits, as Mistral's
    templates require."""
    return hashlib.blake2b(of.encode(errors="surrogatepass"), digest_size=5).hexdigest()[:9]


class AnswerForm(NamedTuple):
    """One format of an answer: the content ids `lead`, JSON of a schema (None: nothing), the content ids `trail`."""

    lead: tuple[int, ...]
    schema: dict[str, Any] | None
    trail: tuple[int, ...] = ()


Written = tuple[str, tuple[int, ...]]
"""The content of a message: its text, and its token ids for `Prefill.tokens`."""


class ToolsPort(Protocol):
    """How a framing writes functions, their calls and results, and reads the calls that a model wrote.

    `auto`: the chat template has a format for calls, which the model knows. Without it, the prompt asks in plain words
    for calls as bare JSON. `opening`: the text that a call begins with ("{" for bare JSON). Every given text is treated
    as content: none becomes a special token. Raises `RequestError` if the tokenizer cannot encode it.
    """

    @property
    def auto(self) -> bool: ...
    @property
    def opening(self) -> str: ...
    def listing(self, tools: Sequence[ToolDefinition], system: str = "") -> Written:
        """The content of a system message that lists the functions, and tells how to call one. `system`: its other
        text, placed as in the template."""

    def called(self, name: str, arguments: str) -> Written:
        """The content of an assistant's message that consists of one call."""

    def spoken(self, before: str, calls: Sequence[ToolCall]) -> Written:
        """The content of an assistant's message with `before`, and then these calls."""

    def result(self, text: str, id: str = "", name: str = "") -> Written:
        """The content of a message of role tool with the result of the call `id` of the function `name`."""

    def returned(self, text: str, id: str = "", name: str = "") -> str:
        """The result in the content of a message of role tool, as it was given."""

    def read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The text before the first call in generated text, and the calls, with ids if the template writes them. All of
        the text and no calls if there is no call."""

    def forms(
        self, tools: Sequence[ToolDefinition], named: str | None = None, answer: Mapping[str, Any] | None = None
    ) -> tuple[AnswerForm, ...]:
        """The formats of one call in the template, of any of the functions or of the one `named`, and that of an
        `answer` if its schema is given: for `Decode.forms`. `read` reads each of them. Raises `RequestError` if there
        is no such function, or its parameters are not the schema of an object."""
