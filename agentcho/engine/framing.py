"""How messages of each role are framed in a model's ids: what opens and closes them, what every conversation begins
with, and what is put where there is no system prompt. Does not know: how it is found in a chat template; contexts,
positions; `layout` has those.
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
        """The same, where the content brings the blank that stands before it."""
        named = (self.named[0], self.named[1].removesuffix(" ")) if self.named else None
        return self._replace(opening=self.opening.removesuffix(" "), named=named)


@dataclass(frozen=True)
class Framing:
    """Openings and closings as token ids.

    Attributes:
        frames: The frame of each role that the template can frame by itself, as text.
        aliases: The role that a role is framed as.
        begin: The ids that every conversation begins with, encoded once, at position 0: a BOS, or more (GLM's two
            tokens, the system message of gpt-oss). Empty: a conversation begins with its first message.
        stops: The ids that end a decode; after each comes the canonical `closing` of the assistant.
        content: Tokenises what stands between frames.
        ids: The ids of each piece of a frame.
        tools: How functions, calls and their results are written.
        conversations: How the template writes a conversation as a whole.
        answer: What the template opens for an answer to be generated, where that is not what stands before one in a
            conversation (None: it is).
        thinking: How the model thinks before it answers.
        default: What the template writes where a conversation has no system message (None: nothing).
        varied: How the template writes whole conversations given other variables, as JSON, and how the model thinks
            then.
        later: The ids before a system message behind others, which has no preamble (None: it is opened as the first).
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
        """Whether an answer begins inside a thought, which the template opens for it."""
        return self.answer is not None and opens_thought(self.answer)

    @property
    def leaves_open(self) -> bool:
        """Whether the template opens an answer and leaves control tokens to the model that stand before one in a
        conversation and that it may not say, such as the channel of gpt-oss. What is said is the answer alone then."""
        opening = self.frames["assistant"].opening
        return self.answer is not None and bool(self.content.control(opening) - self.content.control(self.answer))

    @property
    def prompted(self) -> tuple[int, ...]:
        """What the template opens for an answer of nobody by name."""
        return self.ids[self.frames["assistant"].opening if self.answer is None else self.answer]

    @property
    def bos(self) -> int | None:
        """The BOS, where that is all that a conversation begins with."""
        return self.begin[0] if len(self.begin) == 1 else None

    @property
    def fingerprint(self) -> dict[str, str]:
        """What a record says of it, in the fingerprint of its engine."""
        chats = self.conversations
        found = {"markers": "plain"} if self.plain else {}
        found |= {} if chats.date is None else {"prompt_date": chats.date}
        return found | ({"chat_template_kwargs": written(chats.variables)} if chats.variables else {})

    @property
    def plain(self) -> tuple[tuple[str, str], ...]:
        """Pairs of roles whose messages, one right after the other, have nothing between them but what a text can spell
        or a model can say: there, one message can pass for two. A control token is something that neither can."""
        control = self.content.forbidden

        def spellable(one: str, other: str) -> bool:
            return any(control.isdisjoint((*self.closing(one), *opening)) for opening in self._openings(other))

        return tuple((one, other) for one, other in product(self.frames, repeat=2) if spellable(one, other))

    @property
    def apart(self) -> bool:
        """Whether the model was trained on messages that were tokenised one by one."""
        return self.conversations.apart

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

    def opening(self, role: str, name: str | None, answer: bool = False) -> tuple[int, ...]:
        """Ids before a message's content; none for what is no message's beginning (see `Part`).

        Args:
            role: The role of the message, or a piece of one.
            name: Its speaker. A name that the template cannot frame is left to the header.
            answer: Whether the message is an answer that is generated, without a thought before it, and so has all that
                the template opens for it.
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
        """Ids after a message's content; none for what is no message's end (see `Part`)."""
        whole, _, closes = framed_as(role)
        closing = self.ids[self.frame(whole).closing]
        return closing if closes else ()

    @property
    def end(self) -> int:
        """The first id of the assistant's closing that ends a decode."""
        return next(id for id in self.closing("assistant") if id in self.stops)

    def prompt(self, conversation: Sequence[ChatMessage], variables: Variables = NO_VARIABLES) -> RenderedPrompt | None:
        """A conversation as the template writes it as a whole; see `FramingPort` and `ChatRenderer`. Where the first
        message is the default prompt, the template itself writes that, or what it writes in its place where it lists
        functions."""
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
        """The frame of a role, that of its alias where it has none."""
        if role not in self.aliases:
            raise RequestError(f"unknown role {role!r}; roles are {', '.join(ROLES)}")
        return self.frames[self.aliases[role]]
