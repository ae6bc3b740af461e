"""A model's template: the fixed ids that open and close a message of each role, and text to content ids and back.

The chat template is rendered with sentinels and the text around them is taken. Preambles that a template injects
(dates, default system prompts, think blocks) are dropped; a role that it cannot frame by itself becomes user. Content
is tokenised by the tokenizer's own fast backend with its added tokens taken out, so that no special token can come of
it. Does not know: contexts, positions; `layout` has those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from agentcho.engine.tool_template import Found, found_tools
from agentcho.engine.tools import ResultPieces, ToolFormat, without_names
from agentcho.errors import RequestError, UnsupportedModel
from agentcho.message import framed_as

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer
    from transformers import PreTrainedTokenizerBase

ROLES = ("system", "user", "assistant", "tool")
LONG = 1 << 14
"""From so many letters on a text is tokenised as a batch of one, for which the library lets other threads run."""
NAME = "Qnamesentinel"


def _sentinel(index: int) -> str:
    return f"Zq{index}sentinel{index}qZ"


class Frame(NamedTuple):
    """The framing of one role, as text. `named`: the opening is split around the name of the speaker."""

    opening: str
    closing: str
    named: tuple[str, str] | None


@dataclass(frozen=True)
class Framing:
    """Openings and closings as token ids. `aliases`: the role that a role is framed as. `stops`: the ids that end a
    decode; after each comes the canonical `closing` of the assistant. `bos`: the id that is encoded once, at position
    0, or None. `tools`: how functions, calls and their results are written."""

    frames: dict[str, Frame]
    aliases: dict[str, str]
    bos: int | None
    stops: frozenset[int]
    content: ContentTokenizer
    ids: dict[str, tuple[int, ...]]
    tools: ToolFormat

    @property
    def plain(self) -> tuple[tuple[str, str], ...]:
        """Pairs of roles whose messages, one right after the other, have nothing between them but what a text can spell
        or a model can say: there, one message can pass for two. A control token is something that neither can."""
        control = self.content.forbidden

        def spellable(one: str, other: str) -> bool:
            return any(control.isdisjoint((*self.closing(one), *opening)) for opening in self._openings(other))

        return tuple((one, other) for one, other in product(self.frames, repeat=2) if spellable(one, other))

    def _openings(self, role: str) -> Iterator[tuple[int, ...]]:
        """The ids before the content of a message, with a name and without; the name itself is left out."""
        frame = self.frames[role]
        yield self.ids[frame.opening]
        if frame.named is not None:
            yield sum((self.ids[part] for part in frame.named), ())

    def unsayable(self, vocabulary: int, known: int) -> list[int]:
        """Control tokens that do not end a message, and the ids beyond those that the tokenizer knows (`known`)."""
        control = {id for id in self.content.forbidden - self.stops if id < vocabulary}
        return sorted(control.union(range(known, vocabulary)))

    def opening(self, role: str, name: str | None) -> tuple[int, ...]:
        """Ids before a message's content; none for what is no message's beginning (see `Part`). A name the template
        cannot frame is left to the header."""
        whole, opens, _ = framed_as(role)
        frame = self.frame(whole)
        if not opens:
            return ()
        if not name or frame.named is None:
            return self.ids[frame.opening]
        before, after = frame.named
        return (*self.ids[before], *self.content.encode(name), *self.ids[after])

    def closing(self, role: str) -> tuple[int, ...]:
        """Ids after a message's content; none for what is no message's end (see `Part`)."""
        whole, _, closes = framed_as(role)
        closing = self.ids[self.frame(whole).closing]
        return closing if closes else ()

    def frame(self, role: str) -> Frame:
        """The frame of a role, that of its alias where it has none."""
        if role not in self.aliases:
            raise RequestError(f"unknown role {role!r}; roles are {', '.join(ROLES)}")
        return self.frames[self.aliases[role]]


def derive(tokenizer: PreTrainedTokenizerBase, model: str, eos: frozenset[int] = frozenset()) -> Framing:
    """Derive the framing, or raise `UnsupportedModel` with the cause. `eos` are the model's own end tokens."""
    if not getattr(tokenizer, "chat_template", None):
        raise unframed(model, "its tokenizer has no chat template")
    content, template = ContentTokenizer(tokenizer, model), _Template(tokenizer, model)
    frames = template.frames()
    if not frames["assistant"].closing:
        raise unframed(model, "its template closes the assistant's message with no token to stop at")
    found = _usable(found_tools(template, frames["user"], frames["assistant"]), frames, content)
    framing = _framed(tokenizer, content, frames | _tool_frame(found, frames), found, eos)
    if any("tool" in pair for pair in framing.plain):  # a frame that nobody can forge is better than one of its own
        framing = _framed(tokenizer, content, frames, found, eos)
    return framing


def _framed(
    tokenizer: PreTrainedTokenizerBase,
    content: ContentTokenizer,
    frames: dict[str, Frame],
    found: Found,
    eos: frozenset[int],
) -> Framing:
    """The framing with these frames; a role without a frame is framed as user."""
    aliases = {role: role if role in frames else "user" for role in ROLES}
    pieces = {p for f in frames.values() for p in (f.opening, f.closing, *(f.named or ()))}
    ids = {piece: _framing_ids(tokenizer, piece) for piece in pieces}
    stops = _stops(tokenizer, ids[frames["assistant"].closing], content.special, eos)
    results = found.results if "tool" in frames else ResultPieces()
    tools = ToolFormat(content, found.calls, found.listing, results)
    return Framing(frames, aliases, _bos(tokenizer), stops, content, ids, tools)


def _usable(found: Found, frames: dict[str, Frame], content: ContentTokenizer) -> Found:
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
    return Found(calls, listing, results, frame)


def _tool_frame(found: Found, frames: dict[str, Frame]) -> dict[str, Frame]:
    """The template's own frame for a tool's result, if it has one: not that of another role, nor the beginning of one,
    for then a result could pass for what another role says."""
    if found.frame is None or any(frame.opening.startswith(found.frame[0]) for frame in frames.values()):
        return {}
    return {"tool": Frame(*found.frame, None)}


def unframed(model: str, cause: str) -> UnsupportedModel:
    """The chat template is missing, or does not frame messages one by one."""
    remedy = (
        "Use an instruction-tuned model whose tokenizer carries a chat template, or put a chat_template.jinja beside "
        "its tokenizer"
    )
    return UnsupportedModel(model, cause, remedy, f"no framing for {model}")


def _framing_ids(tokenizer: PreTrainedTokenizerBase, piece: str) -> tuple[int, ...]:
    return tuple(tokenizer(piece, add_special_tokens=False)["input_ids"]) if piece else ()


def _stops(
    tokenizer: PreTrainedTokenizerBase, closing: tuple[int, ...], special: frozenset[int], eos: frozenset[int]
) -> frozenset[int]:
    ends = {id for id in closing if id in special} or set(closing[:1])
    own = {tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set()
    return frozenset(ends | own | set(eos))


def _bos(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The BOS id, if the rendered template, or else the tokenizer's own encoding, begins with it."""
    bos = tokenizer.bos_token
    if not bos:
        return None
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    if str(rendered).startswith(bos):
        return int(tokenizer.bos_token_id)
    own = tokenizer("x")["input_ids"]
    return int(tokenizer.bos_token_id) if own and own[0] == tokenizer.bos_token_id else None


class _Template:
    """Renders sentinels and reads the frames off the text between them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, model: str) -> None:
        self._tokenizer, self._model = tokenizer, model
        self._bos = tokenizer.bos_token or ""
        self.added = _any_of(map(str, tokenizer.added_tokens_encoder))
        self._atoms = re.compile(f"{self.added.pattern}|.", re.DOTALL)

    def frames(self) -> dict[str, Frame]:
        """The frame of each role that the template can frame by itself."""
        user, assistant = self._turns()
        frames = {
            "user": self._with_name(("user", "assistant", "user"), user, assistant.closing),
            "assistant": self._with_name(("user", "assistant"), assistant, user.closing),
        }
        system = self._system(user)
        if system is not None:
            frames["system"] = self._with_name(("system",), system, user.closing)
        return frames

    def _render(self, *roles: str, name: str | None = None) -> list[str]:
        """The text before, between and after the sentinels of a conversation of these roles."""
        turns: list[dict[str, Any]] = [
            {"role": role, "content": _sentinel(i)} | ({"name": name} if name else {}) for i, role in enumerate(roles)
        ]
        try:
            text = self._tokenizer.apply_chat_template(turns, tokenize=False)
        except Exception as error:  # the template is foreign code: any error means it cannot render this
            raise unframed(self._model, f"its template fails on {'/'.join(roles)}: {error}") from error
        return self._cut(str(text), len(roles))

    def render(self, turns: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str | None:
        """The text of a talk without BOS, functions listed in its system message where the template lets one choose;
        None: the template cannot render it."""
        given: Any = {"tools": tools, "tools_in_user_message": False}
        try:
            text = self._tokenizer.apply_chat_template(turns, tokenize=False, **given)
        except Exception:  # foreign code, as above
            return None
        return str(text).removeprefix(self._bos)

    def _cut(self, text: str, count: int) -> list[str]:
        parts, rest = [], text.removeprefix(self._bos) if self._bos else text
        for i in range(count):
            before, found, rest = rest.partition(_sentinel(i))
            if not found:
                raise unframed(self._model, "its template leaves out or rewrites the content of a message")
            parts.append(before)
        return [*parts, rest]

    def _turns(self) -> tuple[Frame, Frame]:
        """The frames of user and assistant, read from the middle of a talk, where no preamble or think block stands."""
        _, to_assistant, to_user, after_user = self._render("user", "assistant", "user")
        *_, at_end = self._render("user", "assistant")
        close_user = self._common_start(after_user, to_assistant)
        # A template may end the last answer in another way than those before it; then the others' is canonical.
        close = self._common_start(at_end, to_user) or self._common_start(close_user, to_user) or at_end
        start = to_assistant.removeprefix(close_user)
        if not start:  # a decode has to begin with something: with what stands between the user's words and its own
            start, close_user = to_assistant, ""
        return Frame(to_user.removeprefix(close), close_user, None), Frame(start, close, None)

    def _system(self, user: Frame) -> Frame | None:
        """The system frame, or None where the template has none or folds it into the user's message."""
        try:
            before, between, *_ = self._render("system", "user", "assistant")
        except UnsupportedModel:
            return None
        if not user.opening or not between.endswith(user.opening):
            return None
        closing = between.removesuffix(user.opening)
        return Frame(_bare_opening(before, user), closing, None) if closing else None

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
        start = ""
        for x, y in zip(self._atoms.findall(a), self._atoms.findall(b), strict=False):
            if x != y:
                break
            start += x
        return start


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Any of these words, a longer one first."""
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)")


def _bare_opening(before: str, user: Frame) -> str:
    """A system opening without injected text.

    Whole messages before it end with a closing; a preamble inside it follows the user's opening with the role
    put in its place.
    """
    opening = before.rpartition(user.closing)[2] if user.closing else before
    analog = user.opening.replace("user", "system")
    return analog if opening.startswith(analog) and analog != user.opening else opening


class ContentTokenizer:
    """Tokenises what users and models say. `special`: the ids that no text turns into, those of every added token.
    `forbidden`: the control tokens among them, which are also never sampled and never accepted as content. (A model may
    say `<think>`; a text cannot.)"""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, model: str) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise unframed(model, "its tokenizer has no fast (tokenizers) backend")
        self._whole: Tokenizer = backend
        self.special = frozenset(tokenizer.added_tokens_decoder) | frozenset(tokenizer.all_special_ids)
        control = (id for id, token in tokenizer.added_tokens_decoder.items() if token.special)
        self.forbidden = frozenset(control) | frozenset(tokenizer.all_special_ids)
        self._ids = {str(token): id for token, id in tokenizer.added_tokens_encoder.items()}
        self._added = _any_of(self._ids)
        self._bare = _without_added_tokens(backend)

    def encode(self, text: str) -> list[int]:
        """The ids of `text` as plain characters. `RequestError` where the vocabulary makes that impossible."""
        ids, left = list[int](), [text]
        while left:
            part = left.pop()
            encoding = self._tokenised(part)
            found = encoding.ids
            cut = next((place for place, id in enumerate(found) if id in self.special), None)
            if cut is None:
                ids += found
            else:
                left += reversed(self._parts(part, found[cut], encoding.offsets[cut]))
        return ids

    def _tokenised(self, text: str) -> Encoding:
        if len(text) < LONG:
            return self._bare.encode(text, add_special_tokens=False)
        return self._bare.encode_batch([text], add_special_tokens=False)[0]

    def _parts(self, text: str, id: int, span: tuple[int, int]) -> tuple[str, str]:
        """A text, cut inside of what would become a special token."""
        start, stop = span
        if stop - start < 2:
            token = str(self._whole.id_to_token(id))
            raise RequestError(
                f"the tokenizer can only encode part of this text as its special token {token!r}, which would forge "
                "framing; remove that part of the text"
            )
        return text[: start + 1], text[start + 1 :]

    def weave(self, pieces: Sequence[str]) -> list[int]:
        """The ids of a text that is cut into pieces, in turns the template's own and words of users. Added tokens come
        of the template's own alone; what stands between two of them is tokenised as a whole."""
        ids, words = list[int](), ""
        for place, piece in enumerate(pieces):
            at = 0
            for found in self._added.finditer(piece if place % 2 == 0 else ""):
                ids += self.encode(words + piece[at : found.start()])
                ids.append(self._ids[found[0]])
                words, at = "", found.end()
            words += piece[at:]
        return ids + self.encode(words)

    def control(self, *pieces: str) -> frozenset[int]:
        """The control tokens in pieces of the template's own text."""
        return self.forbidden & {self._ids[token] for piece in pieces for token in self._added.findall(piece)}

    def decode(self, ids: Sequence[int]) -> str:
        """The text of content ids, nothing skipped; incomplete UTF-8 becomes U+FFFD."""
        return self._whole.decode(list(ids), skip_special_tokens=False)

    def check(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Ids that can be content. `RequestError`: one is a control token."""
        given = tuple(ids)
        if forged := self.forbidden.intersection(given):
            raise RequestError(f"token ids {sorted(forged)} are special and cannot be content; leave framing out")
        return given

    def spells(self, ids: Sequence[int], text: str) -> bool:
        """Whether `text` encodes to exactly these ids, so that they say nothing more than the text does."""
        try:
            return self.encode(text) == list(ids)
        except RequestError:
            return False

    def stream(self) -> TextStream:
        """A fresh incremental decoder."""
        return TextStream(self._whole)


class TextStream:
    """Decodes one message token by token. A piece of text comes as soon as its characters are complete."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=False)

    def push(self, id: int) -> str:
        """The text that token `id` completes, possibly empty."""
        return self._stream.step(self._tokenizer, id) or ""


def _without_added_tokens(backend: Tokenizer) -> Tokenizer:
    from tokenizers import Tokenizer

    spec = json.loads(backend.to_str())
    spec["added_tokens"] = []
    spec["post_processor"] = None
    spec["truncation"] = spec["padding"] = None
    return Tokenizer.from_str(json.dumps(spec))
