"""Finds a chat template's format of functions, calls and results by rendering conversations with sentinels.

Only certain results are used: the pieces that are found must reproduce a second conversation as the template writes it.
Independent of tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import product
from typing import Any, NamedTuple, Protocol

from agentcho.engine.tools import ID, NAME, CallPieces, JsonStyle, ListingPieces, ResultPieces

USER, SYSTEM, SAID, RESULT, LAST = (f"Zq{word}sentinelqZ" for word in ("user", "system", "said", "result", "last"))
OTHER_ID, OTHER_NAME = "Zq9callid", "Zq9calledqZ"
ARGUMENTS: dict[str, Any] = {"Zqkey": "Zqvalue"}
HARD: dict[str, Any] = {"Zqkey": {"a": [1, 2.5, None, True], "b": 'ä "quoted" \\ <x>\n'}, "empty": {}}
STYLES = (
    JsonStyle(),
    JsonStyle(separators=(",", ":")),
    JsonStyle(4),
    JsonStyle(2),
    JsonStyle(ascii=True),
)
Turns = list[dict[str, Any]]


class RoleFrame(Protocol):
    """The frame of a role, as text."""

    @property
    def opening(self) -> str: ...
    @property
    def closing(self) -> str: ...


class TemplateRenderer(Protocol):
    """A chat template. `added` matches its added tokens. `render` returns the text of a conversation without BOS, or
    None."""

    added: re.Pattern[str]

    def render(self, turns: Turns, tools: list[dict[str, Any]] | None) -> str | None: ...


class FoundToolFormat(NamedTuple):
    """A template's format of tools. None for parts that are uncertain. `frame`: opening and closing of a result."""

    calls: CallPieces | None = None
    listing: ListingPieces | None = None
    results: ResultPieces = ResultPieces()
    frame: tuple[str, str] | None = None


def derive_tool_format(template: TemplateRenderer, user: RoleFrame, assistant: RoleFrame) -> FoundToolFormat:
    """The tool format of a template with these frames for user and assistant."""
    search = _Search(template, user, assistant)
    frame, results = search.result() or (None, ResultPieces())
    return FoundToolFormat(search.calls(), search.listing(), results, frame)


def _function(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"Zqkey": {"type": "string"}}, "required": ["Zqkey"]}
    described = {"name": name, "description": f"{name} described", "parameters": parameters}
    return {"type": "function", "function": described}


TOOLS = [_function("ZqtooloneqZ"), _function("ZqtooltwoqZ")]


class _Search:
    def __init__(self, template: TemplateRenderer, user: RoleFrame, assistant: RoleFrame) -> None:
        self._template = template
        self._user = user
        self._assistant = assistant
        self._listed, self._named = True, True  # functions are listed; a result has the name of its function
        self._texts = False  # arguments are given as JSON text, which some templates expect, instead of objects

    def calls(self) -> CallPieces | None:
        """How calls are written."""
        self._listed, self._named = True, True
        ways = product((False, True), ("user", "assistant", None), ("", None), STYLES)
        taken = False
        for self._texts, last, content, style in ways:
            if self._texts and taken:  # the template takes objects, and writes them in its own way
                return None
            rest = self._after_user(last, self._calling(ARGUMENTS, content))
            taken = taken or (rest is not None and NAME in rest and all(key in rest for key in ARGUMENTS))
            pieces = None if rest is None else self._call(rest, style)
            if pieces is None or not self._confirmed(pieces, last, content):
                continue
            pieces = self._with_more(pieces, last, content)
            if pieces.is_json or pieces.is_marked:
                return pieces
        return None

    def _calling(self, arguments: dict[str, Any], content: str | None, twice: bool = False) -> dict[str, Any]:
        """An assistant's turn with one call, or two."""
        given = JsonStyle().write(arguments) if self._texts else arguments
        named = [(ID, NAME), (OTHER_ID, OTHER_NAME)][: 1 + twice]
        calls = [{"id": id, "type": "function", "function": {"name": name, "arguments": given}} for id, name in named]
        return {"role": "assistant", "content": content, "tool_calls": calls}

    def _after_user(self, last: str | None, call: dict[str, Any], result: str = RESULT) -> str | None:
        """The text after the user's content in a conversation with a call, its result, and a message of the role
        `last`. "tool" ends it with the result, None with the call."""
        turns: Turns = [{"role": "user", "content": USER}, call]
        if last is not None:
            named = {"name": NAME} if self._named else {}
            turns.append({"role": "tool", "content": result, "tool_call_id": ID} | named)
        if last not in ("tool", None):
            turns.append({"role": last, "content": LAST})
        text = self._template.render(turns, TOOLS if self._listed else None)
        _, found, rest = (text or "").partition(USER)
        return rest if found else None

    def _call(self, rest: str, style: JsonStyle) -> CallPieces | None:
        """The pieces around one call, with nothing before it."""
        head, named, more = rest.partition(NAME)
        middle, argued, more = more.partition(style.write(ARGUMENTS))
        tail, closed, _ = more.partition(self._assistant.closing)
        opened = self._opened(head)
        if not (named and argued and closed) or opened is None:
            return None
        return CallPieces(opened, middle, f"{tail}\n{opened}", tail, style=style)

    def _opened(self, head: str) -> str | None:
        """The text before a name, without the framing of the message."""
        if not head.startswith(self._user.closing):
            return None
        head, opening = head.removeprefix(self._user.closing), self._assistant.opening
        if head.startswith(opening):
            return head.removeprefix(opening)
        return None if opening.strip() else head

    def _confirmed(self, pieces: CallPieces, last: str | None, content: str | None) -> bool:
        """Whether the template writes other arguments with the same pieces."""
        rest = self._after_user(last, self._calling(HARD, content))
        written = f"{pieces.head}{NAME}{pieces.middle}{pieces.style.write(HARD)}{pieces.tail}"
        return rest is not None and f"{written}{self._assistant.closing}" in rest

    def _with_more(self, pieces: CallPieces, last: str | None, content: str | None) -> CallPieces:
        """The pieces with the text between two calls, and between text and the first call, if the template supports
        these."""
        written, text = pieces.style.write(ARGUMENTS), self._after_user(last, self._calling(ARGUMENTS, SAID))
        join = (text or "").partition(SAID)[2].partition(f"{pieces.head}{NAME}")
        if join[1]:
            pieces = pieces._replace(join=join[0])
        text = self._after_user(last, self._calling(ARGUMENTS, content, twice=True)) or ""
        between, found, rest = text.partition(f"{NAME}{pieces.middle}{written}")[2].partition(OTHER_NAME)
        tail = pieces.tail.replace(ID, OTHER_ID)
        alike = rest.startswith(f"{pieces.middle}{written}{tail}{self._assistant.closing}")
        return pieces._replace(between=between) if found and alike else pieces

    def result(self) -> tuple[tuple[str, str], ResultPieces] | None:
        """The frame of a result, and the pieces around its text within the frame."""
        truth = (False, True)
        lasts = ("user", "assistant", "tool")
        contents = ("", None, SAID)
        ways = product(truth, lasts, truth, truth, contents)
        for self._texts, last, self._listed, self._named, content in ways:
            around = self._around(last, content)
            if around is not None and (found := self._cut(*around)) is not None:
                return self._unquoted(*found, last, content)
        return None

    def _around(self, last: str, content: str | None) -> tuple[str, str] | None:
        """The text before and after a result, framing included."""
        follows = {"user": self._user.opening, "assistant": self._assistant.opening}.get(last, "")
        text = self._after_user(last, self._calling(ARGUMENTS, content)) or ""
        before, found, after = text.partition(RESULT)
        _, closed, opening = before.rpartition(self._assistant.closing)
        after, ended, _ = after.partition(LAST)
        whole = (ended or last == "tool") and not any(key in opening for key in ARGUMENTS)  # else it contains the call
        if not (found and closed and opening and whole) or not after.endswith(follows):
            return None
        return opening, after.removesuffix(follows)

    def _cut(self, opening: str, closing: str) -> tuple[tuple[str, str], ResultPieces] | None:
        """The frame, without the parts that differ between calls, which become pieces."""
        before = after = ""
        if (at := _first(opening)) is not None:
            cut = max((found.end() for found in self._template.added.finditer(opening, 0, at)), default=0)
            opening, before = opening[:cut], opening[cut:]
        if (at := _first(closing[::-1], True)) is not None:
            found = self._template.added.search(closing, len(closing) - at)
            closing, after = (closing[found.start() :], closing[: found.start()]) if found else ("", closing)
        return ((opening, closing), ResultPieces(before, after)) if opening and closing else None

    def _unquoted(
        self, frame: tuple[str, str], results: ResultPieces, role: str, content: str | None
    ) -> tuple[tuple[str, str], ResultPieces]:
        """The same frame and pieces, but if a result is written as JSON text, without the quotes around it."""
        hard = f'{RESULT} "quoted"\n'
        text = self._after_user(role, self._calling(ARGUMENTS, content), hard) or ""
        if json.dumps(hard, ensure_ascii=False) not in text:
            return frame, results
        (opening, closing), (before, after, _) = frame, results
        opening, before = (opening, before.removesuffix('"')) if before else (opening.removesuffix('"'), before)
        closing, after = (closing, after.removeprefix('"')) if after else (closing.removeprefix('"'), after)
        return (opening, closing), ResultPieces(before, after, quoted=True)

    def listing(self) -> ListingPieces | None:
        """The pieces of a list of functions in a system message."""
        turns: Turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}]
        texts = self._template.render(turns, TOOLS), self._template.render(turns, None)
        listed, plain = (re.split(f"{SYSTEM}|{USER}", text or "") for text in texts)
        if len(listed) != 3 or len(plain) != 3 or listed[2] != plain[2]:
            return None
        before, after = (_inserted(old, new) for old, new in zip(plain[:2], listed[:2], strict=True))
        if before is None or after is None:
            return None
        return next(_listings(before, after), None)


def _first(text: str, backwards: bool = False) -> int | None:
    """The offset of the first sentinel in a text, or None."""
    words = (ID[::-1], NAME[::-1]) if backwards else (ID, NAME)
    return min((at for word in words if (at := text.find(word)) >= 0), default=None)


def _inserted(old: str, new: str) -> str | None:
    """The text that is inserted in `new` relative to `old`. None if there are other differences."""
    more, line = len(new) - len(old), old.rfind("\n") + 1
    for start in (0, len(old), line):  # at the beginning, at the end, or before the last line
        if more >= 0 and new[:start] == old[:start] and new[start + more :] == old[start:]:
            return new[start : start + more]
    lines, others = old.splitlines(True), new.splitlines(True)
    steps = SequenceMatcher(None, lines, others, autojunk=False).get_opcodes()
    if {kind for kind, *_ in steps} - {"equal", "insert"}:
        return None
    return "".join("".join(others[low:high]) for kind, _, _, low, high in steps if kind == "insert")


def _listings(before: str, after: str) -> Iterator[ListingPieces]:
    """The possible pieces of a listing before or after the other text of the system message."""
    for style, bare, first in product(STYLES, (False, True), (False, True)):
        one, two = (style.write(tool["function"] if bare else tool) for tool in TOOLS)
        listed, other = (before, after) if first else (after, before)
        lead, found, rest = listed.partition(one)
        between, another, trail = rest.partition(two)
        if found and another:
            yield ListingPieces(
                lead=lead, between=between, trail=trail, other=other, first=first, bare=bare, style=style
            )
