"""Writes functions, calls and results in the format of a chat template, and reads the calls in a model's text.

A text consists of the template's own pieces, which may become special tokens, and of contents, which never do. If the
format of a template is not known for certain, bare JSON is used. `tool_template` finds the pieces of a template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from agentcho.engine.tool_schema import arguments_schema, call_schema, chosen_functions
from agentcho.protocol.tools import AnswerForm, ToolCall, ToolDefinition, Written, made_up_id
from agentcho.protocol.value_checks import checked_text as checked

ID, NAME = "Zq7callid", "Zq8calledqZ"
"""Placeholders in pieces for the id of a call and for the name of its function."""
KEYS = ("arguments", "parameters")
_HEAD = re.compile(r'\{\s*"name"\s*:\s*"$')
_MIDDLE = re.compile(r'"\s*,\s*"(arguments|parameters)"\s*:\s*')
_MARK = re.compile(r"[<\[|]")
_NAME = r'\s*([^\s{}\[\]<>|"]+)'
_SPACE = re.compile(r"[ \t\r\n]*")
_FENCE, _LANGUAGES = "```", ("", "json", "tool_call")
_TAG, _UNTAG = "<tool_call>", re.compile(r"\s*</tool_call>\s*")


class JsonStyle(NamedTuple):
    """How a template writes JSON. `ascii`: non-ASCII characters are escaped."""

    indent: int | None = None
    separators: tuple[str, str] | None = None
    ascii: bool = False

    def write(self, value: Any) -> str:
        """The value as JSON."""
        return json.dumps(value, ensure_ascii=self.ascii, indent=self.indent, separators=self.separators)

    @property
    def guidance(self) -> dict[str, Any]:
        """The keywords that tell llguidance the whitespace of a schema's JSON. Empty for JSON with line breaks."""
        if self.indent is not None:
            return {}
        item, key = self.separators or (", ", ": ")
        return {"x-guidance": {"item_separator": item, "key_separator": key}}


class CallPieces(NamedTuple):
    """The text around calls: `head`, a name, `middle`, arguments, `between`, the next name, `middle`, …, `tail`.
    `join` is between text and the first call."""

    head: str = '{"name": "'
    middle: str = '", "arguments": '
    between: str = '}\n{"name": "'
    tail: str = "}"
    join: str = "\n"
    style: JsonStyle = JsonStyle()

    @property
    def is_json(self) -> bool:
        """Whether a call is a JSON object with a name and arguments, with any text around it."""
        return _HEAD.search(self.head) is not None and _MIDDLE.fullmatch(self.middle) is not None

    @property
    def is_marked(self) -> bool:
        """Whether there are marks that are not JSON before a name, after it, and between two calls."""
        marks = (self.head, self.middle, self.between)
        return (
            all(map(str.strip, marks))
            and "{" not in self.head
            and ID not in self.head
            and bool(_MARK.search(self.head))
        )


class ListingPieces(NamedTuple):
    """The text around the functions in a system message: `lead`, a function, `between`, the next, …, `trail`. The other
    content of the message comes before `lead`, or after `trail` if the functions are `first`; `other` is beyond it.
    `bare`: a function is written without {"type": "function", …} around it."""

    lead: str
    between: str = "\n"
    trail: str = ""
    other: str = ""
    first: bool = False
    bare: bool = False
    style: JsonStyle = JsonStyle()


class ResultPieces(NamedTuple):
    """The text around a result, within the frame of the role tool. `quoted`: it is written as a JSON string."""

    before: str = ""
    after: str = ""
    quoted: bool = False


class PieceTokenizer(Protocol):
    """Tokenises the content of a message. `pieces` are alternately the template's own text and contents."""

    def weave(self, pieces: Sequence[str]) -> list[int]: ...


class ToolFormat:
    """Implements `ToolsPort` with the pieces of a template.

    `read` reads calls as the template writes them, and calls that are bare JSON. Without a format of the template's own
    it also reads JSON in a code fence that is the whole answer, and JSON in `<tool_call>` tags at its end, because
    models that were trained on other templates write calls in these ways.
    """

    def __init__(
        self,
        content: PieceTokenizer,
        calls: CallPieces | None = None,
        listing: ListingPieces | None = None,
        results: ResultPieces | None = None,
    ) -> None:
        self._content, self._calls, self._results = content, calls or CallPieces(), results or ResultPieces()
        self.auto = calls is not None
        self._listing = listing or _plain_listing(self._calls)
        head, json_like = self._calls.head, self._calls.is_json
        self.opening = (head.partition("{")[0].rstrip().removesuffix("[") if json_like else head).strip() or "{"
        found = _MIDDLE.fullmatch(self._calls.middle)
        self._key = found[1] if found else KEYS[0]
        self._named = None if json_like else re.compile(_NAME + _flexible(self._calls.middle))
        self._next = re.compile(_flexible(self._calls.between))

    def listing(self, tools: Sequence[ToolDefinition], system: str = "") -> Written:
        """The content of a system message that lists the functions; see `ToolsPort.listing`."""
        form, style = self._listing, self._listing.style
        functions = [function_object(tool) for tool in tools]
        listed = [style.write(each["function"] if form.bare else each) for each in functions]
        middle = [piece for each in listed for piece in (form.between, each)][1:] or [""]
        if system and form.first:
            return self._written([form.lead, *middle, form.trail, system, form.other])
        if system:
            return self._written([form.other, system, form.lead, *middle, form.trail])
        lead, trail = (form.lead, form.trail + form.other) if form.first else (form.other + form.lead, form.trail)
        return self._written([lead.lstrip(), *middle, trail.rstrip()])

    def called(self, name: str, arguments: str) -> Written:
        """The content of an assistant's message that consists of one call."""
        return self.spoken("", (ToolCall(name, arguments),))

    def spoken(self, before: str, calls: Sequence[ToolCall]) -> Written:
        """The content of an assistant's message with `before`, and then these calls."""
        form, pieces = self._calls, ["", before]
        for place, call in enumerate(calls):
            lead = form.between if place else (form.join if before else "") + form.head
            last = calls[place - 1] if place else call
            name = json.dumps(call.name, ensure_ascii=False)[1:-1] if form.is_json else call.name
            pieces += [*_filled(lead, last.id, last.name), name]
            pieces += [*_filled(form.middle, call.id, call.name), self._arguments(call.arguments)]
        pieces += _filled(form.tail, calls[-1].id, calls[-1].name) if calls else [""]
        return self._written(pieces)

    def result(self, text: str, id: str = "", name: str = "") -> Written:
        """The content of a message of role tool; see `ToolsPort.result`."""
        form, said = self._results, checked(text, "the result")
        said = json.dumps(said, ensure_ascii=False) if form.quoted else said
        return self._written([*_filled(form.before, id, name), said, *_filled(form.after, id, name)])

    def returned(self, text: str, id: str = "", name: str = "") -> str:
        """The result in the content of a message of role tool; see `ToolsPort.returned`."""
        form = self._results
        before, after = ("".join(_filled(piece, id, name)) for piece in (form.before, form.after))
        said = text.removeprefix(before).removesuffix(after)
        try:
            value = json.loads(said) if form.quoted else said
        except ValueError:
            return said
        return value if isinstance(value, str) else said

    def read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The text before the first call, and the calls. Anything but a complete JSON object with a name and arguments
        is text. Text after the first call is left out; without a format of the template's own, such text means that
        there is no call, because the JSON may be a quotation."""
        if not self.auto:
            return _read_plain(text)
        calls, end = _objects(text, 0)
        if calls and text.lstrip().startswith("{") and not text[end:].strip():
            return "", calls
        first, at, found = None, 0, list[ToolCall]()
        while self.opening != "{" and (at := text.find(self.opening, at)) >= 0:
            calls, end = self._after(text, at + len(self.opening))
            first = at if calls and first is None else first
            found += calls
            at = end if calls else at + len(self.opening)
        return (text, ()) if first is None else (text[:first].rstrip(), tuple(found))

    def forms(
        self, tools: Sequence[ToolDefinition], named: str | None = None, answer: Mapping[str, Any] | None = None
    ) -> tuple[AnswerForm, ...]:
        """The ways to write one call; see `ToolsPort.forms`. Bare JSON if the template has no format, or one that is
        not certain to be a frame of JSON."""
        wanted, style = chosen_functions(tools, named), self._calls.style
        if self.auto and not self._calls.is_json:
            made = [self._marked(tool) for tool in wanted]
            return (*made, AnswerForm((), dict(answer))) if answer is not None else tuple(made)
        lead, trail, more = _around_json(self._calls) if self.auto else ("", "", {})
        bare = not lead and not trail
        schema = call_schema(wanted, self._key, answer if bare else None, more) | style.guidance
        form = AnswerForm(tuple(self._content.weave([lead])), schema, tuple(self._content.weave([trail])))
        return (form,) if answer is None or bare else (form, AnswerForm((), dict(answer)))

    def _marked(self, tool: ToolDefinition) -> AnswerForm:
        """The form of a call of one function, with its name between marks and its arguments after them."""
        form, id = self._calls, made_up_id(tool.name)
        lead = [*_filled(form.head, id, tool.name), tool.name, *_filled(form.middle, id, tool.name)]
        trail, schema = _filled(form.tail, id, tool.name), arguments_schema(tool) | form.style.guidance
        return AnswerForm(tuple(self._content.weave(lead)), schema, tuple(self._content.weave(trail)))

    def _after(self, text: str, at: int) -> tuple[tuple[ToolCall, ...], int]:
        """The calls after an opening, and the offset of their end."""
        if self._named is None:
            return _objects(text, at)
        calls, end = list[ToolCall](), at
        while (found := self._named.match(text, at)) and (stop := _object_end(text, found.end())):
            calls.append(ToolCall(found[1], text[found.end() : stop], found["id"] if ID in self._calls.middle else ""))
            end = stop
            at = more.end() if (more := self._next.match(text, end)) else len(text)
        return tuple(calls), end

    def _arguments(self, text: str) -> str:
        """The arguments as the template writes them. Unchanged if they are not a JSON object."""
        try:
            value = json.loads(text, parse_constant=_refused)
            written = self._calls.style.write(value)
            written.encode()
        except (ValueError, RecursionError):
            return text
        return written if isinstance(value, dict) else text

    def _written(self, pieces: Sequence[str]) -> Written:
        """The text of pieces, and its ids. Pieces are alternately the template's own text and contents."""
        for piece in pieces:
            checked(piece, "a message or a function")
        return "".join(pieces), tuple(self._content.weave(pieces))


def _plain_listing(calls: CallPieces) -> ListingPieces:
    """A listing in agentcho's own words: one function per line, and how to write a call."""
    example = f"{calls.head}<name>{calls.middle}{{<arguments>}}{calls.tail}".replace(ID, "<id>")
    lead = "\n\nYou may call functions. Each is given as JSON, with the schema of its arguments:\n"
    trail = f"\nTo call one, answer with this and nothing else:\n{example}"
    return ListingPieces(lead, trail=trail)


def function_object(tool: ToolDefinition) -> dict[str, Any]:
    """A function in the form that chat templates get."""
    parameters = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _around_json(calls: CallPieces) -> tuple[str, str, dict[str, Any]]:
    """The text before and after the JSON object that is a call, and the schemas of its additional properties. Empty if
    that is not certain."""
    lead, (inner, closed, trail) = calls.head[: calls.head.rindex("{")], calls.tail.partition("}")
    try:
        more = json.loads("{" + inner.lstrip(" ,") + "}")
    except ValueError:
        return "", "", {}
    if not closed or without_names(lead + trail) != lead + trail or any(value != ID for value in more.values()):
        return "", "", {}
    return lead, trail, {key: {"type": "string", "pattern": "^[a-zA-Z0-9]{9}$"} for key in more}


def _filled(own: str, id: str, name: str) -> list[str]:
    """A piece of the template's own text, cut around the filled-in id and name: an odd number of pieces."""
    words = {ID: id, NAME: name}
    return [words.get(each, each) for each in re.split(f"({ID}|{NAME})", own)]


def without_names(own: str) -> str:
    """A piece of the template's own text, without the placeholders of id and name."""
    return own.replace(ID, "").replace(NAME, "")


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")


_decoder = json.JSONDecoder(parse_constant=_refused)


def _objects(text: str, at: int) -> tuple[tuple[ToolCall, ...], int]:
    """The consecutive calls as JSON objects from `text[at]` on, in a list or not, and the offset of their end."""
    calls, at = list[ToolCall](), _past(text, at)
    listed = text.startswith("[", at)
    at, end = at + listed, at
    while (found := _call(text, at)) is not None:
        call, end = found
        calls.append(call)
        at = _past(text, end)
        at += text[at : at + 1] in (",", ";")
    if listed and text.startswith("]", _past(text, end)):
        end = _past(text, end) + 1
    return tuple(calls), end


def _read_plain(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """The calls of an answer without a format of the template's own; see `ToolFormat`. If other text follows them, the
    whole answer is text."""
    whole = _unfenced(text.strip())
    calls, end = _objects(whole, 0)
    if calls and end == len(whole):
        return "", calls
    first = at = text.find(_TAG)
    tagged = list[ToolCall]()
    while first >= 0 and text.startswith(_TAG, at):
        calls, end = _objects(text, at + len(_TAG))
        closed = _UNTAG.match(text, end)
        if not calls or closed is None:
            break
        tagged += calls
        at = closed.end()
    return (text[:first].rstrip(), tuple(tagged)) if tagged and at == len(text) else (text, ())


def _unfenced(text: str) -> str:
    """The content of the code fence that the whole text is, stripped. If it is none, the text."""
    first, line_break, rest = text.partition("\n")
    begun = line_break and first.startswith(_FENCE) and rest.endswith(_FENCE)
    if not begun or first.removeprefix(_FENCE).rstrip().casefold() not in _LANGUAGES:
        return text
    return rest.removesuffix(_FENCE).strip()


def _call(text: str, at: int) -> tuple[ToolCall, int] | None:
    """The call that is the JSON object at `text[at]`, after whitespace, and the offset of its end. None if there is
    none."""
    at = _past(text, at)
    if (end := _object_end(text, at)) is None:
        return None
    value, _ = _decoder.raw_decode(text, at)
    name = value.get("name")
    if not isinstance(name, str) or not name or not _encodable(name):
        return None
    key = next((key for key in KEYS if isinstance(value.get(key), dict)), None)
    id = value.get("id")
    known = id if isinstance(id, str) and _encodable(id) else ""
    return None if key is None else (ToolCall(name, dict(_members(text, at))[key], known), end)


def _object_end(text: str, at: int) -> int | None:
    """The end of the JSON object that begins at `text[at]`. None if there is none."""
    try:
        return _decoder.raw_decode(text, at)[1] if text.startswith("{", at) else None
    except (ValueError, RecursionError):
        return None


def _encodable(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _flexible(own: str) -> str:
    """A pattern that matches a piece of the template's own text, with any whitespace around it and any id in it."""
    return rf"\s*{re.escape(own.strip()).replace(ID, '(?P<id>[^{[<]*?)', 1).replace(ID, '[^{[<]*?')}\s*"


def _members(text: str, at: int) -> Iterator[tuple[str, str]]:
    """The names and values of the complete JSON object at `text[at]`. Values are given as written."""
    at = _past(text, at + 1)
    while text[at] != "}":
        name, at = _decoder.raw_decode(text, at)
        start = _past(text, _past(text, at) + 1)
        _, end = _decoder.raw_decode(text, start)
        yield name, text[start:end]
        at = _past(text, end)
        at = _past(text, at + 1) if text[at] == "," else at


def _past(text: str, at: int) -> int:
    """The first offset from `at` on that is not whitespace."""
    found = _SPACE.match(text, at)
    return found.end() if found else at
