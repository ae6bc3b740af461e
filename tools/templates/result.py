"""The versioned format of results on real chat templates."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from tools.templates.families import Kind

Alike = Literal["ids", "text", "other", "none"]
"""How far a conversation equals that of stock transformers: its ids, only its text, neither, or the template cannot
render it."""
Tools = Literal["none", "derived", "plain words", "no calls"]


class Row(BaseModel):
    """The result for one template.

    Attributes:
        name: Its name, without its text.
        file: Its path in the package or folder.
        digest: The SHA-256 of its text.
        vocabulary: The tokenizer it was tried with, and `kind`, where that comes from.
        refused: Why it was refused (empty: it loads).
        plain: In how many of the conversations that stock transformers renders, `of`, plain chats have its ids.
        agents: In how many of them messages framed one by one have its ids.
        plain_first: The first difference of plain chats, as texts: stock and ours.
        agents_first: The same for messages framed one by one.
        thoughts: How far a conversation with thoughts in an earlier answer equals stock's. Marks of thoughts in a
            content are text, so ids may differ.
        spelt: The same for contents that spell every control token, which must stay text. `forged`: one did not.
        stops: The tokens that end an answer.
        tools: How it writes function calls: not at all; in a format that was derived; in one that was not, so that
            plain words are used; or it lists functions and writes no calls.
        tools_written: Whether a call and its result are in a conversation as the template writes them.
        tools_read: Whether a call that the template wrote is read as the same call.
        tools_listed: Whether a conversation with functions has the ids of stock transformers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    file: str
    digest: str
    vocabulary: str
    kind: Kind
    refused: str = ""
    plain: int = 0
    agents: int = 0
    of: int = 0
    plain_first: tuple[str, str] = ("", "")
    agents_first: tuple[str, str] = ("", "")
    thoughts: Alike = "none"
    spelt: Alike = "none"
    forged: bool = False
    stops: tuple[str, ...] = ()
    tools: Tools = "none"
    tools_written: bool | None = None
    tools_read: bool | None = None
    tools_listed: bool | None = None


class TemplatesResult(BaseModel):
    """The complete result. `places`: the packages and folders that templates were taken from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["agentcho-templates/1"] = "agentcho-templates/1"
    command: str
    environment: dict[str, str]
    places: tuple[str, ...]
    conversations: int
    rows: tuple[Row, ...]
