"""The framing of messages in a model's token ids: the openings and closings of each role, the ids that every
conversation begins with, and the default system prompt.

`template` derives it from a chat template; `call_layout` has contexts and positions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import NamedTuple

from agentcho.engine.chat_renderer import ChatRenderer
from agentcho.engine.content_tokenizer import ContentTokenizer
from agentcho.engine.thinking import Thinking, opens_thought
from agentcho.engine.tools import ToolFormat
from agentcho.errors import RequestError
from agentcho.message import framed_as
from agentcho.protocol.call import ChatMessage, DefaultPrompt, PromptPiece, RenderedPrompt
from agentcho.protocol.variables import NO_VARIABLES, Variables, written

ROLES = ("system", "user", "assistant", "tool")


class Frame(NamedTuple):
    """The framing of one role, as text. `named`: the opening is split around the name of the speaker."""

    opening: str
    closing: str
    named: tuple[str, str] | None

    def without_blank(self) -> Frame:
        """The same frame for contents that bring the blank before them."""
        named = (self.named[0], self.named[1].removesuffix(" ")) if self.named else None
        return self._replace(opening=self.opening.removesuffix(" "), named=named)


@dataclass(frozen=True)
class Framing:
    """Openings and closings as token ids.

    Attributes:
        frames: The frame of each role that the template can frame by itself, as text.
        aliases: The role that a role is framed as.
        begin: The ids that every conversation begins with, encoded once, at position 0: a BOS, or more (GLM's two
            tokens, the system message of gpt-oss). Empty if a conversation begins with its first message.
        stops: The ids that end a decode. The canonical `closing` of the assistant follows in each case.
        content: Tokenises the contents between frames.
        ids: The ids of each piece of a frame.
        tools: How functions, calls and their results are written.
        conversations: Renders whole conversations.
        answer: The opening that the template writes for an answer to be generated. None if it is the same as before an
            answer in a conversation.
        thinking: How the model thinks before it answers.
        default: The system prompt that the template writes if a conversation has no system message. None if it writes
            none.
        varied: Returns the renderer and the thinking for other variables, which are given as JSON.
        later: The ids before a system message that is not the first, without a preamble. None if it is opened like the
            first.
    """

    frames: dict[str, Frame]
    aliases: dict[str, str]
    begin: tuple[int, ...]
    stops: frozenset[int]
    content: ContentTokenizer
    ids: dict[str, tuple[int, ...]]
    tools: ToolFormat
    conversations: ChatRenderer
    answer: str | None = None
    default: DefaultPrompt | None = None
    later: tuple[int, ...] | None = None
    thinking: Thinking | None = None
    varied: Callable[[str], tuple[ChatRenderer, Thinking | None]] | None = None

    @property
    def opens_thought(self) -> bool:
        """Whether the template opens a thought, so that an answer begins inside it."""
        return self.answer is not None and opens_thought(self.answer)

    @property
    def leaves_open(self) -> bool:
        """Whether the opening for a generated answer lacks control tokens that precede an answer in a conversation and
        that the model may not sample, such as the channel of gpt-oss. Decodes then generate the answer alone."""
        opening = self.frames["assistant"].opening
        return self.answer is not None and bool(self.content.control(opening) - self.content.control(self.answer))

    @property
    def prompted(self) -> tuple[int, ...]:
        """The ids that the template opens an unnamed answer with."""
        return self.ids[self.frames["assistant"].opening if self.answer is None else self.answer]

    @property
    def bos(self) -> int | None:
        """The BOS. None if a conversation does not begin with exactly one token."""
        return self.begin[0] if len(self.begin) == 1 else None

    @property
    def fingerprint(self) -> dict[str, str]:
        """Its entries in the engine's fingerprint for run records."""
        chats = self.conversations
        found = {"markers": "plain"} if self.plain else {}
        found |= {} if chats.date is None else {"prompt_date": chats.date}
        return found | ({"chat_template_kwargs": written(chats.variables)} if chats.variables else {})

    @property
    def plain(self) -> tuple[tuple[str, str], ...]:
        """Pairs of roles with no control token between two adjacent messages. A text or a model could write everything
        between these, so one message can pass for two."""
        control = self.content.forbidden

        def spellable(one: str, other: str) -> bool:
            return any(control.isdisjoint((*self.closing(one), *opening)) for opening in self._openings(other))

        return tuple((one, other) for one, other in product(self.frames, repeat=2) if spellable(one, other))

    @property
    def apart(self) -> bool:
        """Whether the model was trained on messages that were tokenised one by one."""
        return self.conversations.apart

    def _openings(self, role: str) -> Iterator[tuple[int, ...]]:
        """The ids before the content of a message, without a name and with one. The name itself is left out."""
        frame = self.frames[role]
        yield self.ids[frame.opening]
        if frame.named is not None:
            yield sum((self.ids[part] for part in frame.named), ())

    def unsayable(self, vocabulary: int, known: int) -> list[int]:
        """Control tokens that do not end a message, and the ids from `known` on, which the tokenizer lacks."""
        control = {id for id in self.content.forbidden - self.stops if id < vocabulary}
        return sorted(control.union(range(known, vocabulary)))

    def opening(self, role: str, name: str | None, answer: bool = False) -> tuple[int, ...]:
        """The ids before a message's content. Empty for a piece that does not begin a message (see `Part`).

        Args:
            role: The role of the message, or of a piece of it.
            name: Its speaker. A name that the template cannot frame is left to the header.
            answer: Whether the message is a generated answer, which without a thought before it gets all that the
                template opens for an answer.
        """
        whole, opens, _ = framed_as(role)
        frame = self.frame(whole)
        if not opens:
            return ()
        opened = self.answer if answer and self.thinking is None and not self.leaves_open else None
        if not name or frame.named is None:
            return self.ids[frame.opening if opened is None else opened]
        before, after = frame.named
        more = () if opened is None else self.ids.get(opened.removeprefix(frame.opening), ())
        return (*self.ids[before], *self.content.encode(name), *self.ids[after], *more)

    def closing(self, role: str) -> tuple[int, ...]:
        """The ids after a message's content. Empty for a piece that does not end a message (see `Part`)."""
        whole, _, closes = framed_as(role)
        closing = self.ids[self.frame(whole).closing]
        return closing if closes else ()

    @property
    def end(self) -> int:
        """The first id of the assistant's closing that ends a decode."""
        return next(id for id in self.closing("assistant") if id in self.stops)

    def prompt(self, conversation: Sequence[ChatMessage], variables: Variables = NO_VARIABLES) -> RenderedPrompt | None:
        """A whole conversation as the template writes it; see `FramingPort` and `ChatRenderer`. If the first message is
        the default prompt, it is left to the template, which may write another one when it lists functions."""
        known = self.conversations.variables
        if (wanted := {**known, **variables}) != known and self.varied is not None:
            conversations, thinking = self.varied(written(wanted))
            found = conversations.prompt(conversation)
        else:
            thinking, found = self.thinking, self._whole(conversation)
        return None if found is None else found._replace(thinking=thinking)

    def unread(self, names: Collection[str]) -> list[str]:
        """See `FramingPort.unread`."""
        return self.conversations.unread(names)

    def _whole(self, conversation: Sequence[ChatMessage]) -> RenderedPrompt | None:
        default, first = self.default, conversation[0] if conversation else None
        if default is None or first is None or (first.role, first.text) != ("system", default.text):
            return self.conversations.prompt(conversation)
        found = self.conversations.prompt(conversation[1:])
        pieces = [] if found is None else [(ids, tuple(place + 1 for place in of)) for ids, of in found.pieces]
        if found is None or not pieces:
            return self.conversations.prompt(conversation)
        (first_ids, of), *rest = pieces
        length = len(default.tokens)
        begun: tuple[PromptPiece, ...]
        if first_ids[:length] == default.tokens and len(first_ids) > length:
            begun = PromptPiece(default.tokens, (0,)), PromptPiece(first_ids[length:], of)
        elif any(said.tools for said in conversation):
            begun = (PromptPiece(first_ids, (0, *of)),)
        else:
            return self.conversations.prompt(conversation)
        return RenderedPrompt((*begun, *starmap(PromptPiece, rest)), found.opening)

    def frame(self, role: str) -> Frame:
        """The frame of a role, or of the role that it is framed as."""
        if role not in self.aliases:
            raise RequestError(f"unknown role {role!r}; roles are {', '.join(ROLES)}")
        return self.frames[self.aliases[role]]
