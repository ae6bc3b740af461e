"""Functions that a model may call, and calls of them: what a server and an engine's framing say to each other.

Plain values. Does not know: how a chat template writes these; `engine/tools.py` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class ToolDefinition(NamedTuple):
    """A function that the model may call. `parameters` is the JSON schema of its arguments (None: it takes none)."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class ToolCall(NamedTuple):
    """A call of a function: its name, and its arguments as JSON text, as the model wrote them. `id` is the one by which
    the message with its result names it; where a template writes none in calls, neither does a model."""

    name: str
    arguments: str
    id: str = ""


def made_up_id(of: str) -> str:
    """An id for a call that has none, from what tells it from others: nine letters and digits, as templates of Mistral
    ask for."""
    return hashlib.blake2b(of.encode(errors="surrogatepass"), digest_size=5).hexdigest()[:9]


class AnswerForm(NamedTuple):
    """One way in which an answer may be written: the content ids `lead`, JSON of a schema (None: nothing), the content
    ids `trail`."""

    lead: tuple[int, ...]
    schema: dict[str, Any] | None
    trail: tuple[int, ...] = ()


Written = tuple[str, tuple[int, ...]]
"""The content of a message: its text, and its token ids for `Prefill.tokens`."""


class ToolsPort(Protocol):
    """How a framing writes functions, their calls and the results of these, and reads the calls that a model wrote.

    `auto`: the chat template has a format for calls, so that the model knows how to begin one. Without it, a call is
    asked for in plain words, as bare JSON. `opening`: the text by which a call begins ("{" where it is bare JSON).
    Every text given is the words of a user: none becomes a special token. `RequestError`: the tokenizer cannot write
    it.
    """

    @property
    def auto(self) -> bool: ...
    @property
    def opening(self) -> str: ...
    def listing(self, tools: Sequence[ToolDefinition], system: str = "") -> Written:
        """The content of a system message that lists the functions, and says how to call one. `system`: what else it
        says, put where the template puts it."""

    def called(self, name: str, arguments: str) -> Written:
        """The content of an assistant's message that is one call."""

    def spoken(self, before: str, calls: Sequence[ToolCall]) -> Written:
        """The content of an assistant's message with `before`, and then these calls."""

    def result(self, text: str, id: str = "", name: str = "") -> Written:
        """The content of a message of role tool with the result of the call `id` of the function `name`."""

    def returned(self, text: str, id: str = "", name: str = "") -> str:
        """The result that stands in the content of such a message, as it was given."""

    def read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The text before the first call, and the calls, with the ids that the template has in them, in what was
        generated. Where there is none: all of the text, and no calls."""

    def forms(
        self, tools: Sequence[ToolDefinition], named: str | None = None, answer: Mapping[str, Any] | None = None
    ) -> tuple[AnswerForm, ...]:
        """The ways to write one call as the template does, of any of the functions or of the one `named`, and, where
        the schema of an `answer` is given, that one too: for `Decode.forms`. `read` reads what has one of them.
        `RequestError`: there is no such function, or its parameters are the schema of no object."""
