"""Finds how a chat template frames messages: the fixed ids that open and close a message of each role.

The chat template is rendered with sentinels and the text around them is taken. A role that it cannot frame by itself
becomes user. What it injects is kept: text that every conversation begins with stands there, a preamble or a date
inside the system message is part of that frame, a default system prompt is a system message of that text, and an answer
is opened as the template opens it. Frames are tokenised behind what stands before them in a conversation, so that
pieces joined are the ids of the whole. `content` tokenises what stands between them. Does not know: contexts,
positions; `layout` has those.
"""

from __future__ import annotations

import json
import re
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from agentcho.engine.chat_renderer import ChatRenderer, with_frozen_date
from agentcho.engine.content_tokenizer import ContentTokenizer, alternation, template_source
from agentcho.engine.framing import ROLES, Frame, Framing
from agentcho.engine.thinking import MARKS, Thinking, thought_format
from agentcho.engine.tool_template import FoundToolFormat, derive_tool_format
from agentcho.engine.tools import ResultPieces, ToolFormat, without_names
from agentcho.errors import UnsupportedModel
from agentcho.protocol.call import DefaultPrompt
from agentcho.protocol.variables import NO_VARIABLES, Variables

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NAME = "Qnamesentinel"
VARIED = 16
"""For so many values of its variables what a template writes with them is kept."""
PROBE = "Hello there"
"""A text of two words, whose ids show whether frames and contents join as the whole is tokenised."""


def _sentinel(index: int) -> str:
    return f"Zq{index}sentinel{index}qZ"


def derive(
    tokenizer: PreTrainedTokenizerBase,
    model: str,
    eos: frozenset[int] = frozenset(),
    variables: Variables = NO_VARIABLES,
) -> Framing:
    """Find how a chat template frames messages.

    Args:
        tokenizer: The model's tokenizer.
        model: What errors call the model.
        eos: The model's own end tokens.
        variables: What the template is given beside the conversation, such as `enable_thinking`.

    Returns:
        The framing.

    Raises:
        UnsupportedModel: There is none, with the cause.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UnsupportedModel.unframed(model, "its tokenizer has no chat template")
    now = datetime.now()
    template = _Template(tokenizer, model, with_frozen_date(tokenizer, now), variables)
    framed = template.frames()
    ended = _ended(tokenizer, model, framed, eos)
    content, frames = _fitting(tokenizer, model, ended, template)
    answer = _answer(template, ended["assistant"], frames)
    if answer is not None:
        others = [frame.opening for role, frame in frames.items() if role != "assistant"]
        content.let_say(frames["assistant"].opening, answer, *others, *(frame.closing for frame in frames.values()))
    found = _usable(derive_tool_format(template, ended["user"], ended["assistant"]), frames, content)
    thinking = _thinking(tokenizer, template, content, frames, answer)
    if not framed["assistant"].closing:  # the model ends its message with the token that opens the next one
        openers = (content.first_control(frame.opening) for frame in ended.values())
        eos |= {opener for opener in openers if opener is not None}
    source = _Source(tokenizer, model, template, now, answer, _default(tokenizer, template, ended))
    framing = _framed(source, content, frames | _tool_frame(found, frames), found, eos)
    if any("tool" in pair for pair in framing.plain):  # a frame that nobody can forge is better than one of its own
        framing = _framed(source, content, frames, found, eos)
    later = template.later(frames)
    behind = None if later is None else _ids_behind(tokenizer, frames["user"].closing or PROBE, later)

    @lru_cache(maxsize=VARIED)
    def varied(asked: str) -> tuple[ChatRenderer, Thinking | None]:
        other = json.loads(asked)
        conversations, given = framing.conversations.given(other), template.given(other)
        try:
            opened = _answer(given, ended["assistant"], frames)
        except UnsupportedModel:  # the template takes no such value
            return conversations, None
        return conversations, _thinking(tokenizer, given, content, frames, answer=opened)

    return replace(framing, thinking=thinking, later=behind, varied=varied)


def _thinking(
    tokenizer: PreTrainedTokenizerBase,
    template: _Template,
    content: ContentTokenizer,
    frames: dict[str, Frame],
    answer: str | None,
) -> Thinking | None:
    """How the model thinks before it answers, which begins as the template opens an answer."""
    prompt = frames["assistant"].opening if answer is None else answer
    found = thought_format(template_source(tokenizer), prompt, lambda turns: template.render(turns, None))
    if found is None:
        return None
    (begin, end, behind), opening, kept = found
    ordinary, before = frames["assistant"].opening, frames["user"].closing or PROBE
    added: tuple[int, ...] = ()
    instead: tuple[int, ...] | None = None
    if opening.startswith(ordinary):
        added = _ids_behind(tokenizer, ordinary, opening.removeprefix(ordinary))
    else:
        instead = _ids_behind(tokenizer, before, opening)
    return Thinking(
        begin=begin,
        end=end,
        begins=_ids_behind(tokenizer, ordinary, begin),
        ends=_ids_behind(tokenizer, PROBE, end),
        behind=_ids_behind(tokenizer, end, behind),
        kept=kept,
        added=added,
        instead=instead,
        opened=opening.rstrip().endswith(begin.rstrip()),
    )


class _Source(NamedTuple):
    """What a framing is made from, beside frames: `answer` and `default` as in `Framing`."""

    tokenizer: PreTrainedTokenizerBase
    model: str
    template: _Template
    now: datetime
    answer: str | None
    default: DefaultPrompt | None


def _default(tokenizer: PreTrainedTokenizerBase, template: _Template, frames: dict[str, Frame]) -> DefaultPrompt | None:
    """What the template writes before the user's words where there is no system message."""
    injected, system = template.injected(frames["user"]), frames.get("system")
    if not injected:
        return None
    start, stop = _text_within(template, injected, system)
    behind = frames["user"].opening
    opening, begun, tokens = (_ids_before(tokenizer, injected, behind, cut) for cut in (start, stop, len(injected)))
    shown = injected[start:stop] or injected  # a text by which it is told from a system message that says nothing
    return DefaultPrompt(shown, tokens, (len(opening), len(begun)))


def _text_within(template: _Template, injected: str, system: Frame | None) -> tuple[int, int]:
    """The (start, stop) of what is shown of a default prompt: what stands in the place of a system message's words, or
    else the longest text between its control tokens, such as a date."""
    start = len(system.opening) if system is not None and injected.startswith(system.opening) else 0
    if start and system is not None and injected[start:].endswith(system.closing):
        stop = len(injected) - len(system.closing)
    else:
        begin, end = template.longest_text(injected[start:])
        start, stop = start + begin, start + end
    if start < stop:
        return start, stop
    start, stop = template.longest_text(injected)
    return (stop, stop) if injected[start:stop] in ROLES else (start, stop)


def _answer(template: _Template, written: Frame, frames: dict[str, Frame]) -> str | None:
    """What the template opens for an answer, where that is not the opening of the assistant's frame. `written`: the
    assistant's frame before blanks were left to contents."""
    opening, closing = frames["assistant"].opening, frames["user"].closing
    behind = template.behind_user()
    if not behind.startswith(closing):
        return None
    answer = behind.removeprefix(closing)
    if written.opening.endswith(" ") and not opening.endswith(" "):
        answer = answer.removesuffix(" ")
    return answer if answer not in ("", opening) else None


def _ended(
    tokenizer: PreTrainedTokenizerBase, model: str, frames: dict[str, Frame], eos: frozenset[int]
) -> dict[str, Frame]:
    """The frames, the assistant's with a closing. Where the template writes none, or blanks, it begins with the model's
    own end token: an encoded message has to end in a token."""
    assistant = frames["assistant"]
    if assistant.closing.strip():
        return frames
    own = tokenizer.eos_token_id
    ends = sorted(eos if own is None else {own})
    if not ends:
        raise UnsupportedModel.unframed(model, "its template closes the assistant's message without a token to stop at")
    closing = f"{tokenizer.convert_ids_to_tokens(ends[0])}{assistant.closing}"
    return frames | {"assistant": assistant._replace(closing=closing)}


def _fitting(
    tokenizer: PreTrainedTokenizerBase, model: str, frames: dict[str, Frame], template: _Template
) -> tuple[ContentTokenizer, dict[str, Frame]]:
    """How contents are tokenised, so that between the frames they have the ids that they have in the whole.

    SentencePiece puts a blank before a text. A frame that ends in a blank leaves that to the content; in a frame that
    ends in a line break, or in a token with no blank behind it, the content is tokenised without one.

    With other tokenizers too the content brings the blank where the frames end in one and the template's own prompt for
    an answer does not, so that the model itself begins with it.
    """
    pieces = [piece for frame in frames.values() for piece in (frame.opening, frame.closing, *(frame.named or ()))]
    thoughts = (mark for marks in MARKS for mark in marks[:2])
    content = ContentTokenizer(tokenizer, model, (template.begin, *pieces), thoughts)
    if not content.leads:
        user, assistant = frames["user"], frames["assistant"]
        prompt = template.behind_user().removeprefix(user.closing)
        blank = prompt and user.opening.endswith(" ") and prompt + " " == assistant.opening
        if not blank or any(frame.named for frame in frames.values()):
            return content, frames
        return content.with_lead(), {role: frame.without_blank() for role, frame in frames.items()}
    before, (opening, closing, _) = frames["assistant"].closing, frames["user"]
    whole = _ids_behind(tokenizer, before, opening + PROBE + closing)
    without = {role: frame.without_blank() for role, frame in frames.items()}
    if not without["assistant"].opening:  # a decode has to begin with something
        user, assistant = without["user"], without["assistant"]
        without["assistant"] = assistant._replace(opening=user.closing)
        without["user"] = user._replace(closing="")
    for fitting in (frames, without):
        opened = _ids_behind(tokenizer, before, fitting["user"].opening)
        if (*opened, *content.encode(PROBE), *_ids_behind(tokenizer, PROBE, closing)) == whole:
            return content, fitting
    return content.without_lead(), frames


def _framed(
    source: _Source, content: ContentTokenizer, frames: dict[str, Frame], found: FoundToolFormat, eos: frozenset[int]
) -> Framing:
    """The framing with these frames; a role without a frame is framed as user."""
    tokenizer, model, template, now, answer, default = source
    aliases = {role: role if role in frames else "user" for role in ROLES}
    ids: dict[str, tuple[int, ...]] = {}
    for role, frame in frames.items():
        before = frames["user" if role in ("assistant", "tool") else "assistant"].closing or PROBE
        ids.setdefault(frame.closing, _ids_behind(tokenizer, PROBE, frame.closing))
        for opening in (frame.opening, *(frame.named or ())[:1]):
            ids.setdefault(opening, _ids_behind(tokenizer, before, opening))
        for behind_name in (frame.named or ())[1:]:
            ids.setdefault(behind_name, _ids_behind(tokenizer, PROBE, behind_name))
    if answer is not None:
        ids.setdefault(answer, _ids_behind(tokenizer, frames["user"].closing or PROBE, answer))
        more = answer.removeprefix(frames["assistant"].opening)
        ids.setdefault(more, _ids_behind(tokenizer, frames["assistant"].opening, more))
    begin = _ids_before(tokenizer, template.begin, frames["user"].opening)
    stops = _stops(tokenizer, model, ids[frames["assistant"].closing], content.special, eos)
    results = found.results if "tool" in frames else ResultPieces()
    return Framing(
        frames=frames,
        aliases=aliases,
        begin=begin,
        stops=stops,
        content=content,
        ids=ids,
        tools=ToolFormat(content, found.calls, found.listing, results),
        conversations=ChatRenderer(
            tokenizer,
            content=content.of_wholes(),
            closings={role: frames[alias].closing for role, alias in aliases.items()},
            begin=begin,
            now=now,
            variables=template.variables,
        ),
        answer=answer,
        default=default,
    )


def _usable(found: FoundToolFormat, frames: dict[str, Frame], content: ContentTokenizer) -> FoundToolFormat:
    """What can be content of what was found. Control tokens that stand in calls alone become ordinary ones: the model
    has to say them. Those of frames stay what they are."""
    calls, listing, results, frame = found
    if frame is not None and content.control(*results[:2]):
        before, after = (without_names(piece) for piece in results[:2])
        frame, results = (frame[0] + before, after + frame[1]), ResultPieces(quoted=results.quoted)
    around = (piece for each in frames.values() for piece in each[:2])
    spoken = content.control(*calls[:5]) if calls else frozenset[int]()
    if spoken & content.control(*around, *(frame or ())):
        calls, spoken = None, frozenset()
    content.forbidden -= spoken
    if listing is not None and content.control(*listing[:4]):
        listing = None
    return FoundToolFormat(calls, listing, results, frame)


def _tool_frame(found: FoundToolFormat, frames: dict[str, Frame]) -> dict[str, Frame]:
    """The template's own frame for a tool's result, if it has one: not that of another role, nor the beginning of one,
    for then a result could pass for what another role says."""
    if found.frame is None or any(frame.opening.startswith(found.frame[0]) for frame in frames.values()):
        return {}
    return {"tool": Frame(*found.frame, None)}


def _ids_behind(tokenizer: PreTrainedTokenizerBase, before: str, piece: str) -> tuple[int, ...]:
    """The ids of a piece of the template's text where it stands behind another; alone, where one token spans both."""
    if not piece:
        return ()
    found = tokenizer(before + piece, add_special_tokens=False, return_offsets_mapping=True)
    cut = len(before)
    first = next((place for place, (_, stop) in enumerate(found["offset_mapping"]) if stop > cut), None)
    if first is None or found["offset_mapping"][first][0] < cut:
        return tuple(tokenizer(piece, add_special_tokens=False)["input_ids"])
    return tuple(found["input_ids"][first:])


def _ids_before(
    tokenizer: PreTrainedTokenizerBase, piece: str, behind: str, stop: int | None = None
) -> tuple[int, ...]:
    """The ids of the beginning of a conversation, where an opening stands behind it; those up to place `stop` of it."""
    if not piece:
        return ()
    cut = len(piece) if stop is None else stop
    found = tokenizer(piece + behind, add_special_tokens=False, return_offsets_mapping=True)
    within = takewhile(lambda span: span[1] <= cut, found["offset_mapping"])
    return tuple(found["input_ids"][: len(list(within))])


def _stops(
    tokenizer: PreTrainedTokenizerBase,
    model: str,
    closing: tuple[int, ...],
    special: frozenset[int],
    eos: frozenset[int],
) -> frozenset[int]:
    """The control tokens of a closing, or its first token that is no blank, and the model's own end tokens."""
    ends = [id for id in closing if id in special] or [id for id in closing if str(tokenizer.decode([id])).strip()][:1]
    if not ends:
        raise UnsupportedModel.unframed(model, "its template closes the assistant's message with whitespace only")
    own = {tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set()
    return frozenset({*ends, *own, *eos})


class _Template:
    """Renders sentinels and reads the frames off the text between them. `begin`: what every conversation begins with.
    `source`: the template in place of the tokenizer's own (None: that one). `variables`: what it is given beside the
    conversation."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, model: str, source: str | None, variables: Variables
    ) -> None:
        self._tokenizer, self._model, self._source = tokenizer, model, source
        self.variables = variables
        self.added = alternation(word for word in map(str, tokenizer.added_tokens_encoder) if word.strip())
        self._atoms = re.compile(f"{self.added.pattern}|.", re.DOTALL)
        self._begins: re.Match[str] | None = None
        self.begin = ""
        self.begin = self._bos = self._begins_with()
        self._opens_unasked = self._render("user") == self._render("user", prompt=True)

    def given(self, variables: Variables) -> _Template:
        """The same with other variables."""
        other = copy(self)
        other.variables = variables
        return other

    def _begins_with(self) -> str:
        """The BOS that every conversation begins with; none where each message of the user opens with that token, or
        blanks stand before it where there is a system message, or the template does not write it, for then stock
        transformers does not encode it either."""
        bos = str(self._tokenizer.bos_token or "")
        before, _, between, _ = self._render("user", "assistant", "user")
        if not bos or not before.startswith(bos) or self._is_indented(bos):
            return ""
        opens = self._common_end(before, between)
        return "" if bos in opens else bos

    def _is_indented(self, bos: str) -> bool:
        """Whether blanks stand before the BOS of a conversation with a system message."""
        try:
            before = self._render("system", "user")[0]
        except UnsupportedModel:
            return False
        return before.lstrip().startswith(bos) and not before.startswith(bos)

    def frames(self) -> dict[str, Frame]:
        """The frame of each role that the template can frame by itself. What stands before all else in every
        conversation becomes part of `begin`."""
        user, assistant = self._turns()
        if injected := self.injected(user):
            try:
                system = self._render("system", "user", "assistant")[0]
            except UnsupportedModel:
                system = f"{injected}\0"  # there are no other conversations
            if system.startswith(injected) and system != injected:
                self.begin += injected
                user, assistant = self._turns()
        frames = {
            "user": self._with_name(("user", "assistant", "user"), user, assistant.closing),
            "assistant": self._with_name(("user", "assistant"), assistant, user.closing),
        }
        if (found := self._system(user)) is not None:
            frames["system"] = self._with_name(("system",), found, "")
        return frames

    def injected(self, user: Frame) -> str:
        """What stands before the first message of a conversation that the user begins."""
        before = self._render("user", "assistant", "user")[0]
        return before.removesuffix(user.opening) if before.endswith(user.opening) else ""

    def later(self, frames: dict[str, Frame]) -> str | None:
        """What stands before a system message in the middle of a conversation, where that is another opening than that
        of the first one, and all else of its frame is the same."""
        user, system = frames["user"], frames.get("system")
        try:
            _, _, before, behind, _ = self._render("system", "user", "system", "user")
        except UnsupportedModel:
            return None
        opening = before.removeprefix(user.closing)
        alike = system is not None and system.opening != opening and behind == system.closing + user.opening
        own = before.startswith(user.closing) and self.added.match(opening) is not None
        more = system is not None and opening.endswith(system.opening)  # which ends the message before it
        return opening if alike and own and not more else None

    def longest_text(self, text: str) -> tuple[int, int]:
        """The (start, stop) of the longest part of a text between added tokens, blanks around it left out."""
        ends = [(0, 0), *(found.span() for found in self.added.finditer(text)), (len(text), len(text))]
        start, stop = max(((a, b) for (_, a), (b, _) in pairwise(ends)), key=lambda span: span[1] - span[0])
        part = text[start:stop]
        start, stop = stop - len(part.lstrip()), start + len(part.rstrip())
        return (start, stop) if start < stop else (stop, stop)

    def _render(self, *roles: str, name: str | None = None, prompt: bool = False) -> list[str]:
        """The text before, between and after the sentinels of a conversation of these roles. `prompt`: with what the
        template opens for an answer."""
        turns: list[dict[str, Any]] = [
            {"role": role, "content": _sentinel(i)} | ({"name": name} if name else {}) for i, role in enumerate(roles)
        ]
        try:
            text = self._rendered(turns, prompt)
        except Exception as error:  # the template is foreign code: any error means it cannot render this
            raise UnsupportedModel.unframed(self._model, f"its template fails on {'/'.join(roles)}: {error}") from error
        return self._cut(text, len(roles))

    def _rendered(self, turns: list[dict[str, Any]], prompt: bool) -> str:
        """The text of a conversation. Some templates that know functions fail where none are given at all."""
        given: Any = {**self.variables, "tokenize": False, "add_generation_prompt": prompt}
        given["chat_template"] = self._source
        try:
            return str(self._tokenizer.apply_chat_template(turns, **given))
        except Exception:
            return str(self._tokenizer.apply_chat_template(turns, tools=[], **given))

    def render(self, turns: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str | None:
        """The text of a talk without its beginning, functions listed in its system message where the template lets one
        choose; None: the template cannot render it."""
        given: Any = {**self.variables, "tools": tools, "tools_in_user_message": False, "chat_template": self._source}
        try:
            text = self._tokenizer.apply_chat_template(turns, tokenize=False, **given)
        except Exception:  # foreign code, as above
            return None
        return self._without_begin(str(text))

    def _without_begin(self, text: str) -> str:
        return text.removeprefix(self.begin if text.startswith(self.begin) else self._bos)

    def _cut(self, text: str, count: int) -> list[str]:
        parts, rest = [], self._without_begin(text)
        for i in range(count):
            before, found, rest = rest.partition(_sentinel(i))
            if not found:
                raise UnsupportedModel.unframed(
                    self._model, "its template leaves out or rewrites the content of a message"
                )
            parts.append(before)
        return [*parts, rest]

    def behind_user(self) -> str:
        """What the template writes behind the user's words for an answer to be generated."""
        return self._render("user", prompt=True)[1]

    def _turns(self) -> tuple[Frame, Frame]:
        """The frames of user and assistant, read from the middle of a talk, where no preamble or think block stands."""
        first, to_assistant, to_user, after_user = self._render("user", "assistant", "user")
        *_, at_end = self._render("user", "assistant")
        self._begins = self.added.match(first)
        close_user = self._closing(after_user, to_assistant)
        if first and to_user.endswith(first):  # a talk that begins with the user's words begins with their opening
            close = to_user.removesuffix(first)
        else:  # a template may end the last answer in another way than those before it: then the others' is canonical
            close = self._closing(at_end, to_user) or self._closing(close_user, to_user) or at_end
        close = close or self._left_open(first, to_assistant, to_user)
        if not close_user and close and to_assistant.removeprefix(close) not in ("", to_assistant):
            close_user = close  # it leaves the last message open, and closes all others alike
        start = to_assistant.removeprefix(close_user)
        if not start:  # a decode has to begin with something: with what stands between the user's words and its own
            start, close_user = to_assistant, ""
        return Frame(to_user.removeprefix(close), close_user, None), Frame(start, close, None)

    def _left_open(self, first: str, to_assistant: str, to_user: str) -> str:
        """The closing of an answer in the middle of a talk, where a template leaves the last one open. Empty: it closes
        none. `first`: what stands before the first words of the user."""
        shared = self._common_start(to_assistant, to_user)
        if len(self.added.findall(shared)) > 1:
            return self._first_token_of(shared)
        opening = self._common_end(first, to_user).lstrip()
        return self._first_token_of(to_user.removesuffix(opening)) if opening else ""

    def _closing(self, end: str, between: str) -> str:
        """The closing of a message, from what stands behind it at the end of a talk and in the middle. Where the
        template opens an answer unasked, that is cut off: at the token that talks begin with, if it is there."""
        shared = self._common_start(end, between)
        if self._begins is not None and (cut := shared.find(self._begins[0])) > 0:
            return shared[:cut]
        return shared if shared == end and not self._opens_unasked else self._first_token_of(shared)

    def _first_token_of(self, closing: str) -> str:
        """A closing up to its first added token and the blanks behind that: what comes then opens the next message."""
        found = self.added.search(closing)
        if found is None:
            return closing
        rest = closing[found.end() :]
        return closing[: found.end()] + rest[: len(rest) - len(rest.lstrip())]

    def _system(self, user: Frame) -> Frame | None:
        """The system frame, or None where the template has none or folds it into the user's message."""
        try:
            before, between, *_ = self._render("system", "user", "assistant")
        except UnsupportedModel:
            return None
        if not user.opening or not between.endswith(user.opening):
            return None
        opening, closing = before, between.removesuffix(user.opening)
        if not closing and not (self.added.search(opening) and self.added.match(user.opening)):
            return None  # nothing would tell it from what stands before or behind it
        return Frame(opening, closing, None)

    def _with_name(self, talk: tuple[str, ...], frame: Frame, before: str) -> Frame:
        """Where the template puts the name of a speaker, if it does. `before` closes what stands before the last
        sentinel of `talk`."""
        try:
            opening = self._render(*talk, name=NAME)[len(talk) - 1]
        except UnsupportedModel:
            return frame
        head, found, tail = opening.rpartition(before)[2].partition(NAME) if before else opening.partition(NAME)
        return frame._replace(named=(head, tail)) if found else frame

    def _common_start(self, a: str, b: str) -> str:
        """The longest common start of two texts; an added token counts as one letter."""
        pairs = zip(self._atoms.findall(a), self._atoms.findall(b), strict=False)
        return "".join(x for x, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _common_end(self, a: str, b: str) -> str:
        """The longest common end of two texts, counted in the same way."""
        pairs = zip(self._atoms.findall(a)[::-1], self._atoms.findall(b)[::-1], strict=False)
        return "".join([x for x, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)][::-1])
