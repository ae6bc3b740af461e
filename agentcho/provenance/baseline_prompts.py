"""The prompt of a call in baseline mode: its messages as the chat template writes them together.

The whole conversation is rendered and tokenised as one text, as stock `apply_chat_template` does, and cut where
messages end (`FramingPort.prompt`). If the template cannot write these messages in this order, each is framed by
itself. Independent of encodings.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, get_args

from agentcho.errors import RequestError
from agentcho.message import Role
from agentcho.protocol.call import ChatMessage, FramePort, FramingPort
from agentcho.provenance.drafts import Draft

ENGINE = logging.getLogger("agentcho.engine")
REMEMBERED = 64
"""Number of prompts to cache, because each is needed when its call is made and when it is over."""
Ids = tuple[int, ...]


class PromptPart(NamedTuple):
    """Some ids of a prompt, and the messages that they belong to, in order: usually one. `tokens` is None for the ids
    of that message in its own frame."""

    messages: tuple[str, ...]
    tokens: Ids | None = None

    @property
    def name(self) -> str:
        """Distinguishes it from every other part at the same place of a prompt."""
        if self.tokens is None:
            return self.messages[0]
        ids = b"".join(id.to_bytes(8) for id in self.tokens)
        return f"{' '.join(self.messages)} {hashlib.blake2b(ids, digest_size=16).hexdigest()}"


class BaselinePrompt(NamedTuple):
    """Parts in order, and the ids that open the answer (None: those of the assistant's frame). `apart`: the template
    could not write its messages together, so each is framed by itself."""

    parts: tuple[PromptPart, ...]
    opening: Ids | None = None
    apart: bool = False


class PromptTurn(NamedTuple):
    """One message of a prompt: its id, the form that a template gets, its ids in its own frame, and the (start, stop)
    of its content within them."""

    id: str
    said: ChatMessage
    framed: Ids
    content: tuple[int, int]


def baseline_prompt(turns: Sequence[PromptTurn], framing: FramingPort) -> BaselinePrompt:
    """The prompt of these messages."""
    apart = tuple(PromptPart((turn.id,)) for turn in turns)
    if framing.apart:
        return BaselinePrompt(apart)
    return _written(turns, framing) or BaselinePrompt(apart, apart=True)


def _written(turns: Sequence[PromptTurn], framing: FramingPort) -> BaselinePrompt | None:
    """These messages as the template writes them together. None if it cannot, or if functions, calls or results in them
    are only known as text."""
    if any(_of_tools(turn, framing) or turn.said.role not in get_args(Role) for turn in turns):
        return None
    try:
        found = framing.prompt([turn.said for turn in turns])
    except RequestError:  # a content can only be encoded as a control token of the template
        return None
    if found is None:
        return None
    parts = list[PromptPart]()
    for tokens, places in found.pieces:
        own = len(places) == 1 and turns[places[0]].framed == tokens
        parts.append(PromptPart(tuple(turns[place].id for place in places), None if own else tokens))
    usual = framing.opening("assistant", None, answer=True)  # it may be longer than what the template opens
    return BaselinePrompt(tuple(parts), None if usual[: len(found.opening)] == found.opening else found.opening)


def _of_tools(turn: PromptTurn, framing: FramingPort) -> bool:
    """Whether a message lists functions, calls one, or is a result, in tokens that the form given to a template does
    not reproduce."""
    if turn.said.tools or turn.said.calls or turn.said.call_id:
        return False
    thinking, ids = framing.thinking, turn.framed[slice(*turn.content)]
    thoughts = () if thinking is None else (*thinking.begins, *thinking.ends, *thinking.behind)
    return turn.said.role == "tool" or framing.content.marked([id for id in ids if id not in thoughts])


class BaselinePrompts:
    """The baseline prompts of one game on one engine. `drafts` are its messages, which grow; `spells` tells whether the
    ids of one are of this engine's tokenizer; `frames` is None if every message is framed by itself."""

    def __init__(self, drafts: Mapping[str, Draft], frames: FramePort | None, spells: Callable[[Draft], bool]) -> None:
        self._drafts, self._spells = drafts, spells
        self._frames = None if frames is None or frames.framing.apart else frames
        self._known: dict[tuple[str, ...], BaselinePrompt] = {}
        self._told = False

    def of(self, ids: Sequence[str]) -> BaselinePrompt:
        """The prompt of these messages, all of which are out."""
        asked = tuple(ids)
        found = self._known.pop(asked, None) or self._made(asked)
        self._known[asked] = found
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return found

    def forget(self, message: str) -> None:
        """Drop the cached prompts with this message."""
        for ids in [ids for ids in self._known if message in ids]:
            del self._known[ids]

    def length(self, ids: Sequence[str], lengths: Sequence[int]) -> int:
        """The number of tokens of the prompt of these messages, whose `lengths` are in their own frames, plus those by
        which its opening is longer than that of the assistant's frame."""
        prompt, each = self.of(ids), dict(zip(ids, lengths, strict=True))
        more = 0
        if prompt.opening is not None and self._frames is not None:
            more = len(prompt.opening) - len(self._frames.framing.opening("assistant", None, answer=True))
        return more + sum(each[p.messages[0]] if p.tokens is None else len(p.tokens) for p in prompt.parts)

    def _made(self, ids: tuple[str, ...]) -> BaselinePrompt:
        if self._frames is None:
            return BaselinePrompt(tuple(PromptPart((id,)) for id in ids))
        turns = [self._turn(id, self._frames) for id in ids]
        found = baseline_prompt(turns, self._frames.framing)
        if found.apart and not self._told:
            self._told = True
            roles = ", ".join(turn.said.role for turn in turns)
            ENGINE.warning("the chat template does not write %s as one conversation: framed message by message", roles)
        return found

    def _turn(self, id: str, frames: FramePort) -> PromptTurn:
        draft = self._drafts[id]
        assert draft.message is not None
        role, name, whole = draft.metadata.role, draft.name, draft.whole
        words = draft.message.words if self._spells(draft) else frames.frame(role, name, whole)
        if draft.framed is not None and self._spells(draft):  # a thought, and the answer after it
            whole = frames.framing.content.decode(words.tokens[slice(*words.content)])
        said = (
            ChatMessage(role, whole, name) if draft.said is None else draft.said._replace(name=draft.said.name or name)
        )
        return PromptTurn(id, said, words.tokens, words.content)
