"""Renders a whole conversation by its chat template, in the ids of stock `apply_chat_template`, and cuts it into
messages.

Some of what a template does depends on the whole conversation: it injects a default prompt or a date, trims contents,
cuts thoughts from earlier answers, folds the system message into a user turn, lists functions. So the conversation is
rendered and tokenised as a whole, calls and results included, and its messages are then located in the text. Templates
that ask for the date get the date at which the model was loaded. One difference from stock is deliberate: text in a
content that spells a control token stays text. Independent of engines, and of frames except their closings.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

from agentcho.engine.content_tokenizer import HIDDEN, THOUGHTS, ContentTokenizer, Placed, template_source
from agentcho.engine.tools import function_object
from agentcho.engine.variables import unread
from agentcho.protocol.call import ChatMessage, PromptPiece, RenderedPrompt
from agentcho.protocol.tools import ToolCall, ToolDefinition
from agentcho.protocol.variables import NO_VARIABLES, Variables

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

APART = "agentcho_messages"
"""The key of `tokenizer_config.json` that is "apart" if the checkpoint was trained on separately tokenised messages."""
_MARK = re.compile("Zq([0-9]+)(content|name)qZ")


class _Gap(NamedTuple):
    """The place of a message's content, or of its name (`named`), in rendered text. `message`: the message's index."""

    message: int
    named: bool


class _End(NamedTuple):
    """The offset in a text at which messages end, their closing included."""

    at: int
    messages: tuple[int, ...]


class _Own(NamedTuple):
    """A template's own text between gaps, and the offset of each part of it in a text."""

    literals: Sequence[str]
    gaps: Sequence[_Gap]
    starts: Sequence[int]


class _Calling(NamedTuple):
    """How a template takes tool calls. `texts`: arguments are JSON text, not objects. `content`: the content of a
    message that has only calls."""

    texts: bool
    content: str | None


class ChatRenderer:
    """Renders and tokenises whole conversations. `date` is the date that the template writes, in ISO format. None if it
    asks for none.

    `apart`: see `FramingPort`.

    Args:
        tokenizer: The model's tokenizer, with a chat template and a fast backend.
        content: Tokenises the contents of messages.
        closings: The text after the content of a message, by role.
        begin: The ids that the engine itself puts before every prompt.
        now: The time that templates get.
        variables: Variables that templates get beside the conversation.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        content: ContentTokenizer,
        closings: Mapping[str, str],
        begin: tuple[int, ...],
        now: datetime,
        variables: Variables = NO_VARIABLES,
    ) -> None:
        self._tokenizer, self._content, self._begin = tokenizer, content, begin
        self.variables: Variables = variables
        self.apart = getattr(tokenizer, "init_kwargs", {}).get(APART) == "apart"
        self._source = with_frozen_date(tokenizer, now)
        self._now = now
        self._bound = True
        self.date = None if self._source is None else now.date().isoformat()
        self._closings, self._framed = dict(closings), closings
        asked = self.render(_marked([ChatMessage("user", "")]))
        if asked is not None and _parts(asked)[0][-1] == closings.get("user"):
            self._closings["user"] = ""  # else the opening of an answer would be empty

    def given(self, variables: Variables) -> ChatRenderer:
        """The same renderer with other variables. The beginning of a conversation may differ then, see
        `RenderedPrompt`."""
        other = ChatRenderer(
            self._tokenizer,
            content=self._content,
            closings=self._framed,
            begin=self._begin,
            now=self._now,
            variables=variables,
        )
        other._bound = False
        return other

    def prompt(self, conversation: Sequence[ChatMessage]) -> RenderedPrompt | None:
        """The ids of a conversation; see `FramingPort.prompt`.

        Args:
            conversation: Its messages, in order, with the functions that the model may call.

        Returns:
            Its ids in pieces. After the ids that the engine puts first, the pieces and the opening concatenate to what
            stock `apply_chat_template` with `add_generation_prompt` gives. None if the template cannot render the
            conversation, if contents spell control tokens and cannot be located in the rendered text, if functions or
            calls spell control tokens, or if functions are offered and the template does not list them.

        Raises:
            RequestError: A content can only be encoded as a control token.
        """
        foreign = [[said.tools, said.calls] for said in conversation]
        if self._content.spells_control("\n".join(_strings(foreign))):
            return None
        text, lists = self.render(conversation), self._lists and any(said.tools for said in conversation)
        if not text or (lists and text == self.render(_without_tools(conversation))):
            return None
        marked = [_marked(conversation)]
        if not all(said.text for said in conversation):  # a template may leave out an empty message
            marked.append(_marked(conversation, empty=True))
        found = (self._cut(text, each, conversation) for each in marked)
        return next((prompt for prompt in found if prompt is not None), None)

    def _cut(
        self, text: str, marked: Sequence[ChatMessage], conversation: Sequence[ChatMessage]
    ) -> RenderedPrompt | None:
        """The ids of a rendered text, cut into messages by comparison with the rendering of `marked`, which has marks
        in place of contents. None if that fails."""
        skeleton = self.render(marked)
        if not skeleton:
            return None
        literals, gaps = _parts(skeleton)
        spans = self._spans(text, conversation, literals, gaps)
        if spans is not None:
            words = [span for span, gap in zip(spans, gaps, strict=True) if not conversation[gap.message].tools]
            placed: list[Placed] | None = self._placed(text, words)
            ends = self._borders(conversation, literals, gaps, spans)
            starts = {gap.message: start for gap, (start, _) in zip(gaps, spans, strict=True) if not gap.named}
            if self._lists and any(said.tools for said in conversation):
                own = _Own(literals, gaps, [0, *(stop for _, stop in spans)])
                ends = sorted([*ends, *self._of_functions(text, conversation, marked, own)])
            ends = self._with_calls(text, conversation, ends, starts)
            if self._lists and ends:
                ends = self._labelled(text, conversation, ends)
        else:
            placed = self._unlocated(text, conversation)
            answer = len(literals[-1]) if text.endswith(literals[-1]) else 0
            ends = [_End(len(text) - answer, tuple(range(len(conversation))))]
        count = len(self._begin)
        if not placed or not ends:
            return None
        if tuple(id for id, *_ in placed[:count]) == self._begin:
            return _cut(placed[count:], ends)
        return None if self._bound else _cut(placed, ends)._replace(begins=True)

    def unread(self, names: Collection[str]) -> list[str]:
        """The names among these that the template does not read as variables, sorted."""
        return unread(template_source(self._tokenizer), frozenset(names))

    def render(self, conversation: Sequence[ChatMessage]) -> str | None:
        """The text of a conversation up to its answer. None if the template cannot render it."""
        calling = self._calling if any(said.calls for said in conversation) else _Calling(texts=False, content="")
        if calling is None:
            return None
        functions = [function_object(tool) for said in conversation for tool in said.tools]
        said_so = [said for said in conversation if not said.tools or (said.text and not self._lists)]
        turns = [_turn(said, calling) for said in said_so]
        variants: tuple[dict[str, Any], ...] = ({"tools": functions},) if functions else ({}, {"tools": []})
        for more in variants:  # some templates that support functions fail if `tools` is missing
            options: dict[str, Any] = {**self.variables, "add_generation_prompt": True, **more}
            options["chat_template"] = self._source
            try:
                return str(self._tokenizer.apply_chat_template(turns, tokenize=False, **options))
            except Exception:  # the template is foreign code: any error means it cannot render this
                continue
        return None

    @cached_property
    def _lists(self) -> bool:
        """Whether the template lists the functions that it is given."""
        tool = ToolDefinition("Zqofferedfunction", "x")
        turns = [_turn(said, _Calling(texts=False, content="")) for said in (ChatMessage("user", "x"),)]
        given: Any = {"tools": [function_object(tool)], "tokenize": False, "chat_template": self._source}
        try:
            return tool.name in str(self._tokenizer.apply_chat_template(turns, **given))
        except Exception:  # the template is foreign code, as above
            return False

    @cached_property
    def _calling(self) -> _Calling | None:
        """The way in which the template takes tool calls. None if it writes none."""
        call = ToolCall("Zqcalledfunction", '{"Zqkey": "Zqvalue"}', "a1b2c3d4e")
        probe = (
            ChatMessage("user", "x"),
            ChatMessage("assistant", "", calls=(call,)),
            ChatMessage("tool", "y", call_id=call.id),
        )
        options: Any = {
            **self.variables,
            "tools": [function_object(ToolDefinition("Zqotherfunction"))],
            "chat_template": self._source,
        }
        for texts, content in product((False, True), ("", None)):
            turns = [_turn(said, _Calling(texts, content)) for said in probe]
            try:
                text = str(self._tokenizer.apply_chat_template(turns, tokenize=False, **options))
            except Exception:  # the template is foreign code, as above
                continue
            if call.name in text:
                return _Calling(texts, content)
        return None

    def _of_functions(
        self, text: str, conversation: Sequence[ChatMessage], marked: Sequence[ChatMessage], own: _Own
    ) -> Iterator[_End]:
        """The ends of those text parts that only the offered functions cause, each with the closing of a system message
        if one follows."""
        offers = tuple(place for place, said in enumerate(conversation) if said.tools)
        names = [tool.name for said in conversation for tool in said.tools]
        literals, gaps = _parts(self.render(_without_tools(marked)) or "")
        for place, literal in enumerate(own.literals if gaps == own.gaps else ()):
            start, stop = _added(literals[place], literal)
            if stop > start and (place < len(gaps) or any(name in literal[start:stop] for name in names)):
                end, closing = own.starts[place] + stop, self._closings.get("system", "")
                yield _End(end + (len(closing) if text.startswith(closing, end) else 0), offers)

    def _labelled(self, text: str, conversation: Sequence[ChatMessage], ends: Sequence[_End]) -> list[_End]:
        """The same ends, with the offers added to the piece that contains the first character that the offered
        functions change. All later pieces are encoded over that piece, so no call reads the functions unlabelled."""
        offers = tuple(place for place, said in enumerate(conversation) if said.tools)
        first = _in_common(text, self.render(_without_tools(conversation)) or "")
        return _with(ends, first, offers)

    def _with_calls(
        self, text: str, conversation: Sequence[ChatMessage], ends: Sequence[_End], starts: Mapping[int, int]
    ) -> list[_End]:
        """The ends of messages, in order, those with calls included. `starts`: the offsets of contents, by message. A
        message with calls ends at the first closing after them, because calls spell no control token. If none is found,
        the message belongs to the piece after the message before it."""
        found = sorted(end for end in ends if not conversation[end.messages[0]].calls)
        listed = [end.at for end in found if conversation[end.messages[0]].tools]
        own = {end.messages[0]: end.at for end in found if not conversation[end.messages[0]].tools}
        stops, before = [len(text)], 0
        for place in reversed(range(len(conversation))):
            stops.append(min(stops[-1], starts.get(place, len(text))))
        for place, stop in enumerate(reversed(stops[:-1])):
            before = max(before, own.get(place - 1, 0))
            if not conversation[place].calls:
                continue
            begin = max(before, starts.get(place, 0), *listed[: bisect_right(listed, stop)][-1:])
            closing = self._closings.get(conversation[place].role, "")
            name = text.find(conversation[place].calls[-1].name, begin, stop)
            end = text.find(closing, name, stop) if name >= 0 and self._content.control(closing) else -1
            if end >= 0:
                own[place] = end + len(closing)
                insort(found, _End(own[place], (place,)))
            else:
                found = _with(found, before, (place,))
        return found

    def _stock(self, text: str) -> list[Placed]:
        found: Any = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [(id, *span) for id, span in zip(found["input_ids"], found["offset_mapping"], strict=True)]

    def _placed(self, text: str, spans: Sequence[tuple[int, int]]) -> list[Placed]:
        """The tokens of a text. In these spans, which are contents, text that spells a control token stays text."""
        placed = self._stock(text)
        if not self._forged(text, placed, spans):
            return placed
        pieces, end = list[str](), 0
        for start, stop in spans:
            pieces += [text[end:start], text[start:stop]]
            end = stop
        return self._content.woven([*pieces, text[end:]])

    def _forged(self, text: str, placed: Sequence[Placed], spans: Sequence[tuple[int, int]]) -> bool:
        """Whether a control token covers part of one of these spans, other than whitespace."""
        starts = [start for start, _ in spans]
        for id, start, stop in placed:
            if id in self._content.special:
                for begin, end in spans[max(0, bisect_right(starts, start) - 1) : bisect_right(starts, stop)]:
                    if text[max(start, begin) : min(stop, end)].strip():
                        return True
        return False

    def _unlocated(self, text: str, conversation: Sequence[ChatMessage]) -> list[Placed] | None:
        """The tokens of a text in which contents were not located. Control words in contents are found by comparison
        with a rendering in which they are masked. None if that fails, or if one of them may become a control token.

        Thought marks in an answer are left to the template, which may write them elsewhere, and become tokens.
        """
        bare = self._content.without_control
        harmless = [
            each._replace(text=bare(each.text, each.role == "assistant"), name=each.name and bare(each.name, False))
            if not each.tools
            else each
            for each in conversation
        ]
        rendered = text if harmless == list(conversation) else self.render(harmless)
        if rendered is None or len(rendered) != len(text):
            return None
        others = [place for place, letters in enumerate(zip(text, rendered, strict=True)) if letters[0] != letters[1]]
        if any(rendered[place] != HIDDEN for place in others):
            return None
        placed, control = self._placed(text, _runs(others)), self._content.forbidden
        expected = self._placed(rendered, ())
        return (
            placed
            if [id for id, *_ in placed if id in control] == [id for id, *_ in expected if id in control]
            else None
        )

    def _spans(
        self,
        text: str,
        conversation: Sequence[ChatMessage],
        literals: Sequence[str],
        gaps: Sequence[_Gap],
    ) -> list[tuple[int, int]] | None:
        """The spans of contents and names in a text. None if the template changed them otherwise.

        They are located in a rendering in which they spell no control token, so that their text is not mistaken for the
        template's own.
        """
        bare = self._content.without_control
        harmless = [each._replace(text=bare(each.text), name=each.name and bare(each.name)) for each in conversation]
        rendered = text if harmless == list(conversation) else self.render(harmless)
        if rendered is None or len(rendered) != len(text):
            return None
        given = [str(harmless[gap.message].name if gap.named else harmless[gap.message].text) for gap in gaps]
        spans = _located(rendered, literals, given)
        if spans is None:
            return None
        between = zip([0, *(stop for _, stop in spans)], literals, strict=True)
        return spans if all(text.startswith(literal, start) for start, literal in between) else None

    def _borders(
        self,
        conversation: Sequence[ChatMessage],
        literals: Sequence[str],
        gaps: Sequence[_Gap],
        spans: Sequence[tuple[int, int]],
    ) -> list[_End]:
        """The end of each content, with its closing."""
        ends = list[_End]()
        for gap, (_, stop), literal in zip(gaps, spans, literals[1:], strict=True):
            if not gap.named:
                closing = self._closings.get(conversation[gap.message].role, "")
                ends.append(_End(stop + (len(closing) if literal.startswith(closing) else 0), (gap.message,)))
        return ends


def with_frozen_date(tokenizer: PreTrainedTokenizerBase, now: datetime) -> str | None:
    """The template of a tokenizer with a `strftime_now` that always returns the time `now`. None if the template does
    not ask for the time."""
    if "strftime_now" not in template_source(tokenizer):
        return None
    source = str(tokenizer.get_chat_template())
    said = {f"%{name}": now.strftime(f"%{name}") for name in "aAbBcdfHIjmMpSUwWxXyYzZ"}
    said |= {f"%-{name}": said[f"%{name}"].lstrip("0") or "0" for name in "dmHIMSjy"}
    known = ", ".join(f"({name!r}, {value!r})" for name, value in said.items())
    return (
        "{%- macro strftime_now(format) -%}{%- set text = namespace(said=format) -%}"
        f"{{%- for name, value in [{known}] -%}}{{%- set text.said = text.said | replace(name, value) -%}}"
        "{%- endfor -%}{{- text.said -}}{%- endmacro %}\n" + source
    )


def _turn(said: ChatMessage, calling: _Calling) -> dict[str, Any]:
    """A message in the form that a template gets."""
    turn: dict[str, Any] = {"role": said.role, "content": said.text} | ({"name": said.name} if said.name else {})
    if said.call_id:
        turn["tool_call_id"] = said.call_id
    if said.calls:
        turn["content"] = said.text or calling.content
        functions = [{"name": call.name, "arguments": _arguments(call.arguments, calling.texts)} for call in said.calls]
        turn["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(said.calls, functions, strict=True)
        ]
    return turn


def _arguments(text: str, as_text: bool) -> Any:
    """The arguments of a call in the form that a template gets. Unchanged if they are not a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) and not as_text else text


def _strings(value: Any) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _strings(each)


def _marked(conversation: Sequence[ChatMessage], empty: bool = False) -> list[ChatMessage]:
    """The same conversation, with a mark in place of every content and name. `empty`: empty contents get no mark."""
    return [
        said
        if said.tools and not said.text
        else said._replace(
            text="" if (empty or said.calls) and not said.text else f"Zq{place}contentqZ",
            name=f"Zq{place}nameqZ" if said.name else None,
        )
        for place, said in enumerate(conversation)
    ]


def _without_tools(conversation: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The same conversation without the functions that it offers."""
    return [said for said in conversation if not said.tools]


def _with(ends: Sequence[_End], place: int, messages: tuple[int, ...]) -> list[_End]:
    """The same ends, with these messages added to the piece that contains offset `place`, or else to the last one."""
    found = list(ends)
    at = min(bisect_right(found, place, key=lambda end: end.at), len(found) - 1)
    if found and not set(messages) <= set(found[at].messages):
        found[at] = _End(found[at].at, (*found[at].messages, *messages))
    return found


def _added(old: str, new: str) -> tuple[int, int]:
    """The (start, stop) of the part of `new` between its common prefix and its common suffix with `old`."""
    behind = _in_common(old[::-1], new[::-1])
    stop = len(new) - behind
    return _in_common(old[: len(old) - behind], new[:stop]), stop


def _in_common(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _parts(skeleton: str) -> tuple[list[str], list[_Gap]]:
    """The template's own text in a rendering with marks, and the gaps between its parts."""
    literals, gaps, end = list[str](), list[_Gap](), 0
    for found in _MARK.finditer(skeleton):
        literals.append(skeleton[end : found.start()])
        gaps.append(_Gap(int(found[1]), found[2] == "name"))
        end = found.end()
    return [*literals, skeleton[end:]], gaps


def _located(text: str, literals: Sequence[str], given: Sequence[str]) -> list[tuple[int, int]] | None:
    """The spans of the given contents and names in a text, between the template's own literals. None if the template
    changed them in a way that `_forms` does not list."""
    last = len(given)
    if not text.startswith(literals[0]):
        return None
    open_: list[tuple[int, int, tuple[Any, ...]]] = [(0, len(literals[0]), ())]
    seen = set[tuple[int, int]]()
    while open_:
        place, at, before = open_.pop()
        if place == last:
            if at == len(text):
                return _in_order(before)
            continue
        for form in reversed(list(_forms(given[place]))):
            end = at + len(form)
            then = end + len(literals[place + 1])
            if (
                (place + 1, then) not in seen
                and text.startswith(form, at)
                and text.startswith(literals[place + 1], end)
            ):
                seen.add((place + 1, then))
                open_.append((place + 1, then, (before, (at, end))))
    return None


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """The (start, stop) of each run of consecutive places."""
    starts = [at for at, place in enumerate(places) if not at or places[at - 1] != place - 1]
    return [(places[one], places[other - 1] + 1) for one, other in pairwise([*starts, len(places)])]


def _in_order(found: tuple[Any, ...]) -> list[tuple[int, int]]:
    spans = list[tuple[int, int]]()
    while found:
        found, span = found
        spans.append(span)
    return spans[::-1]


def _forms(text: str) -> Iterator[str]:
    """The forms in which templates write a content: unchanged, stripped, as JSON, or without its thoughts."""
    quoted = json.dumps(text, ensure_ascii=False)[1:-1]
    yield from dict.fromkeys((text, text.strip(), text.lstrip(), text.rstrip(), quoted))
    if THOUGHTS[1] in text:
        said = text.rpartition(THOUGHTS[1])[2]
        yield from dict.fromkeys((said, said.strip(), said.lstrip("\n"), said.lstrip()))


def _cut(placed: Sequence[Placed], ends: Sequence[_End]) -> RenderedPrompt:
    """Cut ids into those of messages, and the opening of the answer. A token that straddles an end belongs to what
    follows. A message without a token of its own joins the next one."""
    cuts, at = [0], 0
    for end in ends:
        while at < len(placed) and max(placed[at][2], placed[at][1]) <= end.at:
            at += 1
        cuts.append(at)
    ids = tuple(id for id, *_ in placed)
    if cuts[-1] == len(ids):  # the opening of an answer must not be empty
        cuts = [min(cut, len(ids) - 1) for cut in cuts]
    pieces, waiting = list[PromptPiece](), tuple[int, ...]()
    for end, (start, stop) in zip(ends, pairwise(cuts), strict=True):
        waiting += tuple(place for place in end.messages if place not in waiting)
        if stop > start:
            pieces.append(PromptPiece(ids[start:stop], waiting))
            waiting = ()
    if waiting and pieces:
        pieces[-1] = PromptPiece(pieces[-1].tokens, pieces[-1].messages + waiting)
    return RenderedPrompt(tuple(pieces), ids[cuts[-1] :])
