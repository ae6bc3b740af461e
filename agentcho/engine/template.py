"""Finds how a chat template frames messages: the fixed ids that open and close a message of each role.

The template is rendered with sentinels as contents, and the text around them becomes the frames. A role that it cannot
frame by itself becomes user. Injected text is kept: text that begins every conversation becomes `begin`, a preamble or
a date inside the system message is part of that frame, a default system prompt becomes a system message with that text,
and an answer is opened as the template opens it. Frames are tokenised after the text that precedes them in a
conversation, so that joined pieces are the ids of the whole. `call_layout` has contexts and positions.
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
"""Number of variable settings for which the derived renderer and thinking are cached."""
PROBE = "Hello there"
"""A text of two words, which shows whether joined frames and contents have the ids of the whole."""


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
        model: The model's name, for errors.
        eos: The model's own end tokens.
        variables: Variables that the template gets beside the conversation, such as `enable_thinking`.

    Returns:
        The framing.

    Raises:
        UnsupportedModel: The template cannot be used. The error has the cause.
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
    if not framed["assistant"].closing:  # the model ends a message with the token that opens the next one
        openers = (content.first_control(frame.opening) for frame in ended.values())
        eos |= {opener for opener in openers if opener is not None}
    source = _Source(tokenizer, model, template, now, answer, _default(tokenizer, template, ended))
    framing = _framed(source, content, frames | _tool_frame(found, frames), found, eos)
    if any("tool" in pair for pair in framing.plain):  # prefer an unforgeable frame over the template's own tool frame
        framing = _framed(source, content, frames, found, eos)
    later = template.later(frames)
    behind = None if later is None else _ids_behind(tokenizer, frames["user"].closing or PROBE, later)

    @lru_cache(maxsize=VARIED)
    def varied(asked: str) -> tuple[ChatRenderer, Thinking | None]:
        other = json.loads(asked)
        conversations, given = framing.conversations.given(other), template.given(other)
        try:
            opened = _answer(given, ended["assistant"], frames)
        except UnsupportedModel:  # the template does not accept the value
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
    """How the model thinks before it answers, given how the template opens an answer. None if it does not."""
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
    """The inputs of a framing other than frames. `answer` and `default`: as in `Framing`."""

    tokenizer: PreTrainedTokenizerBase
    model: str
    template: _Template
    now: datetime
    answer: str | None
    default: DefaultPrompt | None


def _default(tokenizer: PreTrainedTokenizerBase, template: _Template, frames: dict[str, Frame]) -> DefaultPrompt | None:
    """The system prompt that the template writes before the user's message if there is no system message."""
    injected, system = template.injected(frames["user"]), frames.get("system")
    if not injected:
        return None
    start, stop = _text_within(template, injected, system)
    behind = frames["user"].opening
    opening, begun, tokens = (_ids_before(tokenizer, injected, behind, cut) for cut in (start, stop, len(injected)))
    shown = injected[start:stop] or injected  # distinguishes it from an empty system message
    return DefaultPrompt(shown, tokens, (len(opening), len(begun)))


def _text_within(template: _Template, injected: str, system: Frame | None) -> tuple[int, int]:
    """The (start, stop) of the visible text of a default prompt: the content if it is framed like a system message,
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
    """The text that the template opens an answer with. None if it is the opening of the assistant's frame. `written`:
    the assistant's frame before blanks were left to contents."""
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
    """The frames, with a closing for the assistant. If the template writes none, or only whitespace, the closing begins
    with the model's own end token, because an encoded message has to end with a token."""
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
    """The tokenizer of contents, and the frames, such that contents between frames have the ids that they have in the
    whole.

    SentencePiece puts a blank before a text. A frame that ends in a blank leaves that to the content; in a frame that
    ends in a line break, or in a token without a blank after it, the content is tokenised without one.

    With other tokenizers the content also brings the blank if the frames end in one and the template's opening of an
    answer does not, because the model itself then begins with the blank.
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
    if not without["assistant"].opening:  # the opening of an answer must not be empty
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
    """The framing with these frames. A role without a frame is framed as user."""
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
    """The parts of a found tool format that can be content. Control tokens that occur only in calls become ordinary
    tokens in `content`, because the model has to sample them. Those of frames stay control tokens."""
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
    """The template's own frame for a tool's result, if it has one. It must not be the beginning of another role's
    opening, because a result could then pass for a message of that role."""
    if found.frame is None or any(frame.opening.startswith(found.frame[0]) for frame in frames.values()):
        return {}
    return {"tool": Frame(*found.frame, None)}


def _ids_behind(tokenizer: PreTrainedTokenizerBase, before: str, piece: str) -> tuple[int, ...]:
    """The ids of a piece of the template's text after another one. If one token spans both, the ids of the piece
    alone."""
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
    """The ids of the beginning of a conversation before the text `behind`, or only those up to offset `stop`."""
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
    """The control tokens of a closing, or else its first non-whitespace token, and the model's own end tokens."""
    ends = [id for id in closing if id in special] or [id for id in closing if str(tokenizer.decode([id])).strip()][:1]
    if not ends:
        raise UnsupportedModel.unframed(model, "its template closes the assistant's message with whitespace only")
    own = {tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set()
    return frozenset({*ends, *own, *eos})


class _Template:
    """Renders conversations of sentinels, and takes the frames from the text between them. `begin`: the text that every
    conversation begins with. `source`: the template in place of the tokenizer's own (None: the tokenizer's).
    `variables`: variables that it gets beside the conversation."""

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
        """A copy with other variables."""
        other = copy(self)
        other.variables = variables
        return other

    def _begins_with(self) -> str:
        """The BOS that every conversation begins with. Empty if each user message opens with that token, if blanks
        precede it in conversations with a system message, or if the template does not write it, because stock
        transformers then does not encode it either."""
        bos = str(self._tokenizer.bos_token or "")
        before, _, between, _ = self._render("user", "assistant", "user")
        if not bos or not before.startswith(bos) or self._is_indented(bos):
            return ""
        opens = self._common_end(before, between)
        return "" if bos in opens else bos

    def _is_indented(self, bos: str) -> bool:
        """Whether blanks precede the BOS of a conversation with a system message."""
        try:
            before = self._render("system", "user")[0]
        except UnsupportedModel:
            return False
        return before.lstrip().startswith(bos) and not before.startswith(bos)

    def frames(self) -> dict[str, Frame]:
        """The frame of each role that the template can frame by itself. Text that precedes everything else in every
        conversation becomes part of `begin`."""
        user, assistant = self._turns()
        if injected := self.injected(user):
            try:
                system = self._render("system", "user", "assistant")[0]
            except UnsupportedModel:
                system = f"{injected}\0"  # there are no conversations with a system message
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
        """The text before the first message of a conversation that the user begins."""
        before = self._render("user", "assistant", "user")[0]
        return before.removesuffix(user.opening) if before.endswith(user.opening) else ""

    def later(self, frames: dict[str, Frame]) -> str | None:
        """The opening of a system message in the middle of a conversation, if it differs from that of the first one and
        the rest of its frame is the same, else None."""
        user, system = frames["user"], frames.get("system")
        try:
            _, _, before, behind, _ = self._render("system", "user", "system", "user")
        except UnsupportedModel:
            return None
        opening = before.removeprefix(user.closing)
        alike = system is not None and system.opening != opening and behind == system.closing + user.opening
        own = before.startswith(user.closing) and self.added.match(opening) is not None
        more = system is not None and opening.endswith(system.opening)  # the rest closes the message before it
        return opening if alike and own and not more else None

    def longest_text(self, text: str) -> tuple[int, int]:
        """The (start, stop) of the longest part of a text between added tokens, without whitespace around it."""
        ends = [(0, 0), *(found.span() for found in self.added.finditer(text)), (len(text), len(text))]
        start, stop = max(((a, b) for (_, a), (b, _) in pairwise(ends)), key=lambda span: span[1] - span[0])
        part = text[start:stop]
        start, stop = stop - len(part.lstrip()), start + len(part.rstrip())
        return (start, stop) if start < stop else (stop, stop)

    def _render(self, *roles: str, name: str | None = None, prompt: bool = False) -> list[str]:
        """The text before, between and after the sentinels of a conversation of these roles. `prompt`: with the opening
        of an answer."""
        turns: list[dict[str, Any]] = [
            {"role": role, "content": _sentinel(i)} | ({"name": name} if name else {}) for i, role in enumerate(roles)
        ]
        try:
            text = self._rendered(turns, prompt)
        except Exception as error:  # the template is foreign code: any error means it cannot render this
            raise UnsupportedModel.unframed(self._model, f"its template fails on {'/'.join(roles)}: {error}") from error
        return self._cut(text, len(roles))

    def _rendered(self, turns: list[dict[str, Any]], prompt: bool) -> str:
        """The text of a conversation. Some templates that support functions fail if `tools` is missing."""
        given: Any = {**self.variables, "tokenize": False, "add_generation_prompt": prompt}
        given["chat_template"] = self._source
        try:
            return str(self._tokenizer.apply_chat_template(turns, **given))
        except Exception:
            return str(self._tokenizer.apply_chat_template(turns, tools=[], **given))

    def render(self, turns: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str | None:
        """The text of a conversation without its beginning. Functions are listed in the system message if the template
        supports that option. None if the template cannot render it."""
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
        """The text that the template writes after the user's content to open an answer."""
        return self._render("user", prompt=True)[1]

    def _turns(self) -> tuple[Frame, Frame]:
        """The frames of user and assistant, taken from the middle of a conversation, where there is no preamble or
        think block."""
        first, to_assistant, to_user, after_user = self._render("user", "assistant", "user")
        *_, at_end = self._render("user", "assistant")
        self._begins = self.added.match(first)
        close_user = self._closing(after_user, to_assistant)
        if first and to_user.endswith(first):  # a conversation that the user begins starts with the user's opening
            close = to_user.removesuffix(first)
        else:  # a template may end the last answer differently; the closing of earlier answers is then canonical
            close = self._closing(at_end, to_user) or self._closing(close_user, to_user) or at_end
        close = close or self._left_open(first, to_assistant, to_user)
        if not close_user and close and to_assistant.removeprefix(close) not in ("", to_assistant):
            close_user = close  # the template leaves the last message open, and closes all others in the same way
        start = to_assistant.removeprefix(close_user)
        if not start:  # the opening must not be empty: take all text between the user's content and the answer
            start, close_user = to_assistant, ""
        return Frame(to_user.removeprefix(close), close_user, None), Frame(start, close, None)

    def _left_open(self, first: str, to_assistant: str, to_user: str) -> str:
        """The closing of an answer in the middle of a conversation, for a template that leaves the last one open. Empty
        if it closes none. `first`: the text before the first content of the user."""
        shared = self._common_start(to_assistant, to_user)
        if len(self.added.findall(shared)) > 1:
            return self._first_token_of(shared)
        opening = self._common_end(first, to_user).lstrip()
        return self._first_token_of(to_user.removesuffix(opening)) if opening else ""

    def _closing(self, end: str, between: str) -> str:
        """The closing of a message, from the text after it at the end of a conversation and in the middle. If the
        template opens an answer without being asked to, that opening is cut off: at the token that conversations begin
        with, if it occurs."""
        shared = self._common_start(end, between)
        if self._begins is not None and (cut := shared.find(self._begins[0])) > 0:
            return shared[:cut]
        return shared if shared == end and not self._opens_unasked else self._first_token_of(shared)

    def _first_token_of(self, closing: str) -> str:
        """A closing up to its first added token and the whitespace after it. The rest opens the next message."""
        found = self.added.search(closing)
        if found is None:
            return closing
        rest = closing[found.end() :]
        return closing[: found.end()] + rest[: len(rest) - len(rest.lstrip())]

    def _system(self, user: Frame) -> Frame | None:
        """The system frame. None if the template has none or folds it into the user's message."""
        try:
            before, between, *_ = self._render("system", "user", "assistant")
        except UnsupportedModel:
            return None
        if not user.opening or not between.endswith(user.opening):
            return None
        opening, closing = before, between.removesuffix(user.opening)
        if not closing and not (self.added.search(opening) and self.added.match(user.opening)):
            return None  # nothing would separate it from the text before or after it
        return Frame(opening, closing, None)

    def _with_name(self, talk: tuple[str, ...], frame: Frame, before: str) -> Frame:
        """The frame with its `named` opening, if the template writes speaker names. `before`: the closing of the
        message before the last one of `talk`."""
        try:
            opening = self._render(*talk, name=NAME)[len(talk) - 1]
        except UnsupportedModel:
            return frame
        head, found, tail = opening.rpartition(before)[2].partition(NAME) if before else opening.partition(NAME)
        return frame._replace(named=(head, tail)) if found else frame

    def _common_start(self, a: str, b: str) -> str:
        """The longest common prefix of two texts. An added token counts as one character."""
        pairs = zip(self._atoms.findall(a), self._atoms.findall(b), strict=False)
        return "".join(x for x, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _common_end(self, a: str, b: str) -> str:
        """The longest common suffix of two texts, counted in the same way."""
        pairs = zip(self._atoms.findall(a)[::-1], self._atoms.findall(b)[::-1], strict=False)
        return "".join([x for x, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)][::-1])
