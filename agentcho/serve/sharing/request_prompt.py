"""Converts the messages of a request for a model: roles, texts and token ids, with functions as its template lists and
calls them. Also makes the options of the decodes that answer.

Independent of who may read what, and of what is encoded.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from agentcho.errors import ContextOverflow
from agentcho.message import Part, Role, Words
from agentcho.protocol.call import ChatMessage, FramePort, Sampling, ThinkingPort
from agentcho.protocol.tools import AnswerForm
from agentcho.protocol.variables import Variables
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import MOST_CALLED_NAME, ChatRequest, QuotedMessage, ToolCall, ToolDefinition, Tools
from agentcho.serve.sharing.argument_validation import any_fits
from agentcho.serve.worker_thread import beside

T = TypeVar("T")
FRAMED = (
    "the chat template does not write this chat as a whole, so that each message has a frame of its own, which is made "
    "at the server's start; start it with --chat-template-kwargs, or leave this out"
)
OF_SOCIETY = (
    "in a society each message has a frame of its own, which is made at the server's start; start it with "
    "--chat-template-kwargs, or leave this out"
)
"""Why a request cannot choose the variables of the chat template."""


class FramedMessage(NamedTuple):
    """One message of a prompt. `tokens` are the ids of its content if the text does not determine them (None: it does),
    and `whole` those of the message with its framing if no frame gives them (None: one does). `name` is the claimed
    name of its speaker, `id` the id that it claims to have. `calls` are the function calls that it makes, `lead` the
    text before them."""

    role: Role | Part
    text: str
    name: str | None = None
    id: str | None = None
    tokens: tuple[int, ...] | None = None
    calls: tuple[ToolCall, ...] = ()
    lead: str = ""
    whole: tuple[int, ...] | None = None

    def words(self, frames: FramePort) -> Words:
        """Its words, framing included. `RequestError`: the text cannot be encoded."""
        if self.whole is not None:
            return Words("", self.text, self.whole, (0, len(self.whole)), canonical=False)
        return frames.frame(self.role, self.name, self.text, self.tokens)


def prompt_of(request: ChatRequest, frames: FramePort) -> tuple[FramedMessage, ...]:
    """The messages of a request. The list of its functions goes where the template puts it: into the system message at
    the beginning, or into one of its own."""
    called = {call.id: call.name for quoted in request.messages for call in quoted.calls}
    said = tuple(_framed(quoted, called.get(quoted.call_id or "", ""), frames) for quoted in request.messages)
    if request.tools is None or request.tools.choice == "none":
        return said
    first = said[0] if said and said[0].role == "system" else FramedMessage("system", "")
    text, tokens = frames.framing.tools.listing(request.tools.tools, first.text)
    return (first._replace(text=text, tokens=tokens), *said[first in said[:1] :])


class RenderedChat(NamedTuple):
    """A prompt: its messages in order, and the ids that open the answer (None: those of the assistant's frame).
    `thinking`: how the model thinks after it (None: it does not). `begins`: see `RenderedPrompt`."""

    messages: tuple[tuple[FramedMessage, Words], ...]
    opening: tuple[int, ...] | None = None
    thinking: ThinkingPort | None = None
    begins: bool = False


def chat_of(request: ChatRequest, frames: FramePort) -> RenderedChat:
    """The prompt of a request as the chat template renders it as a whole, with the ids of `apply_chat_template`. If the
    template cannot render the chat, or the chat uses functions and the template's format of calls is unknown, each
    message gets its own frame."""
    tools = () if request.tools is None or request.tools.choice == "none" else request.tools.tools
    calls = tools or any(quoted.calls or quoted.role == "tool" for quoted in request.messages)
    offered = [ChatMessage("system", "", tools=tuple(tools))] if tools else []
    known, said = frames.framing.tools.auto or not calls, [*conversation_of(request), *offered]
    found = frames.framing.prompt(said, request.variables) if known else None
    if found is None:
        if known and request.variables and frames.framing.prompt(said) is not None:
            told = "the chat template refuses this chat with these values; give others, or leave them out"
            raise _unusable(request, told)
        check_framed(request, frames, FRAMED)
        one_by_one = tuple((framed, framed.words(frames)) for framed in prompt_of(request, frames))
        return RenderedChat(one_by_one, thinking=frames.framing.thinking)
    without = replace(request, tools=None) if tools else request
    apart = tuple((framed, framed.words(frames)) for framed in prompt_of(without, frames))
    messages = list[tuple[FramedMessage, Words]]()
    for tokens, places in found.pieces:
        framed = FramedMessage("user", "", whole=tokens)
        if len(places) == 1 and places[0] < len(apart) and apart[places[0]][1].tokens == tokens:
            framed = apart[places[0]][0]
        messages.append((framed, framed.words(frames)))
    usual = frames.framing.opening("assistant", None, answer=True)
    own = not request.variables and found.opening == usual
    return RenderedChat(tuple(messages), None if own else found.opening, found.thinking, found.begins)


def changes(variables: Variables, frames: FramePort) -> bool:
    """Whether these variables change the prompt of a chat of one message, or how the model thinks."""
    probe = [ChatMessage("user", "Hello")]
    return bool(variables) and frames.framing.prompt(probe, variables) != frames.framing.prompt(probe)


def check_framed(request: ChatRequest, frames: FramePort, why: str) -> None:
    """`ApiError`: a request whose messages are framed one by one sets variables that would change their frames."""
    if changes({name: request.variables[name] for name in request.asked}, frames):
        raise ApiError(400, f"chat_template_kwargs: {why}", "chat_template_kwargs")


def without_effect(request: ChatRequest, frames: FramePort, framed: bool) -> list[str]:
    """The fields of a request whose variables have no effect. `framed`: its messages are framed one by one."""
    if not request.variables:
        return []
    found = ["chat_template_kwargs"] if frames.framing.unread(request.asked) else []
    more = {name: value for name, value in request.variables.items() if name not in request.asked}
    return found + ([request.hard] if request.hard is not None and (framed or not changes(more, frames)) else [])


def _unusable(request: ChatRequest, why: str) -> ApiError:
    param = "chat_template_kwargs" if request.asked or request.hard is None else request.hard
    return ApiError(400, f"{param}: {why}", param)


def conversation_of(request: ChatRequest) -> list[ChatMessage]:
    """The messages of a request as the chat template gets them. A function result has the name of its function."""
    called = {call.id: call.name for quoted in request.messages for call in quoted.calls}
    return [
        ChatMessage(
            role=each.role,
            text=each.text,
            name=called.get(each.call_id or "") if each.role == "tool" else each.name,
            calls=tuple(call._replace(arguments=_encodable(call.arguments)) for call in each.calls),
            call_id=each.call_id or "",
        )
        for each in request.messages
    ]


def _encodable(arguments: str) -> str:
    """The arguments of a call, with a replacement character for each escape of half a character, which a template would
    write as it is."""
    try:
        value = json.dumps(json.loads(arguments), ensure_ascii=False)
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    except (ValueError, RecursionError):
        pass  # a template gets them as a text
    return arguments


async def tokenised(request: ChatRequest, work: Callable[[], T]) -> T:
    """Return what `work` returns, which tokenises texts of a request. If they are long, it runs in a thread so that
    other requests are served meanwhile."""
    return await beside(work) if request.is_long else work()


def speaker(name: str | None, role: str, frames: FramePort) -> str | None:
    """A name, if the template frames names of this role; otherwise None."""
    opening = frames.framing.opening
    return name if name and opening(role, name) != opening(role, None) else None


def _framed(quoted: QuotedMessage, function: str, frames: FramePort) -> FramedMessage:
    """A message as the template writes it. `function` is the name of the function whose result it is, if it is one."""
    name, tools = speaker(quoted.name, quoted.role, frames), frames.framing.tools
    if quoted.role == "tool":
        text, tokens = tools.result(quoted.text, quoted.call_id or "", function)
        return FramedMessage("tool", text, name, quoted.id, tokens)
    if quoted.calls:
        text, tokens = tools.spoken(quoted.text, quoted.calls)
        return FramedMessage("assistant", text, name, quoted.id, tokens, quoted.calls, quoted.text)
    return FramedMessage(cast(Role, quoted.role), quoted.text, name, quoted.id)


def calls_in(text: str, request: ChatRequest, frames: FramePort) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the text before the first function call, and the calls. Without functions in the request, everything is
    text. If the template has no format for calls, the model was told of one in plain words, and a call that does not
    fit the schema of its function is text, unless the answer can only be a call. Calls next to a valid one are returned
    whatever they call, except by a name that is too long to be quoted; the client answers that there is no such
    function."""
    tools = request.tools
    if tools is None or tools.choice == "none":
        return text, ()
    known = frames.framing.tools
    before, written = known.read(text)
    quotable = (call for call in written if len(call.name) <= MOST_CALLED_NAME)
    calls = tuple(call._replace(id="") for call in quotable)  # clients get ids that the server makes
    offered = {tool.name: tool for tool in tools.tools}
    mine = [call for call in calls if call.name in offered]
    if not mine:
        return text, ()
    pairs = ((offered[call.name], call.arguments) for call in mine)
    good = known.auto or _is_no_text(text, request) or any_fits(pairs, request.choices)
    return (before, calls) if good else (text, ())


def _is_no_text(text: str, request: ChatRequest) -> bool:
    """Whether the answer can only be a call: a call is required, or the request constrains other answers to a format
    that this text does not have. Calls are constrained only as far as a grammar can enforce their schema."""
    if request.tools is not None and request.tools.choice != "auto":
        return True
    choices, schema = request.options.get("choices"), request.options.get("json_schema")
    if choices is not None:
        return text not in tuple(choices)
    return schema is not None and not any_fits([(ToolDefinition("", "", schema), text)], request.choices)


def cut_off(text: str, tools: Tools | None, frames: FramePort) -> str:
    """A text that a stop string or its last allowed token ended, without the call that was cut."""
    opening = frames.framing.tools.opening
    if tools is None or tools.choice == "none" or opening == "{":
        return text
    return text.partition(opening)[0].rstrip() if opening in text else text


def same_calls(one: tuple[ToolCall, ...], other: tuple[ToolCall, ...]) -> bool:
    """Whether the calls are the same, apart from whitespace in their arguments."""
    return [(call.name, _value(call.arguments)) for call in one] == [
        (call.name, _value(call.arguments)) for call in other
    ]


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def thinks(request: ChatRequest, frames: FramePort, thinking: ThinkingPort | None) -> bool:
    """Whether the model may think, in this way, before it answers. It may not if the format of function calls
    constrains the answer."""
    return thinking is not None and not forms_of(request, frames)


class DecodeRoom(NamedTuple):
    """The room for the decodes of a request: of `limit` tokens, `prompt` come before the answer and `closing` after it.
    `apart`: a thought may have as many tokens as the answer after it, and is counted separately."""

    prompt: int
    closing: int
    limit: int
    apart: bool = False

    def most(self, asked: int | None, default: int, least: int = 0) -> int:
        """The maximum number of tokens that may be sampled, which is at least `least`. `ContextOverflow`: there is no
        room for these."""
        left = (self.limit - self.prompt - self.closing) // (2 if self.apart else 1)
        least = max(1, least)
        if left < least:
            raise ContextOverflow(self.prompt + self.closing + least, self.limit)
        return min(left, max(default, least) if asked is None else asked)


def room_for(
    request: ChatRequest,
    lengths: int,
    speaker: str | None,
    frames: FramePort,
    limit: int,
    chat: RenderedChat | None = None,
) -> DecodeRoom:
    """The room after a prompt of `lengths` tokens. `limit` is the token capacity of the store, which applies if it is
    less than the model's number of positions. `chat`: the prompt, if the chat template renders it as a whole."""
    framing, options = frames.framing, request.options
    opens, begins = (None, False) if chat is None else (chat.opening, chat.begins)
    way = framing.thinking if chat is None else chat.thinking
    thinking = way if thinks(request, frames, way) else None
    opening, closing = framing.opening("assistant", speaker, answer=True), len(framing.closing("assistant"))
    if thinking is not None:
        opening = thinking.opening(framing.opening("assistant", speaker))
        closing += len(thinking.begins) + len(thinking.ends) + len(thinking.behind)
    whole = options.get("choices") is not None or options.get("json_schema") is not None
    begun = (0 if begins else frames.bos) + lengths + len(opening if opens is None else opens)
    return DecodeRoom(begun, closing, min(frames.context, limit), apart=thinking is not None and whole)


def samplings(request: ChatRequest, most: int, frames: FramePort) -> tuple[Sampling, ...]:
    """The sampling options for the decode of each answer. Without a seed one is drawn; answer 0 uses the seed itself.
    `RequestError`, `ApiError`: the options are invalid."""
    options: dict[str, Any] = dict(request.options)
    if forms_of(request, frames):
        options.pop("json_schema", None)
        options.pop("choices", None)
    seed = secrets.randbits(63) if request.seed is None else request.seed
    return tuple(Sampling(**options, max_tokens=most, seed=_seed(seed, n)) for n in range(request.choices))


def forms_of(request: ChatRequest, frames: FramePort) -> tuple[AnswerForm, ...]:
    """The forms that an answer must take. If it must be a function call, those of calls; if it may be one and must
    otherwise be JSON of a schema or one of several texts, those of calls and of the answer itself. Empty if it may be
    anything, or what its options say."""
    tools = request.tools
    if tools is None or tools.choice == "none":
        return ()
    known, answer, choices = frames.framing.tools, request.options.get("json_schema"), request.options.get("choices")
    if tools.choice != "auto":
        return known.forms(request.held, tools.named)
    if choices is not None:
        texts = (AnswerForm(tuple(frames.framing.content.encode(choice)), None) for choice in choices)
        return (*known.forms(tools.tools), *texts)
    return () if answer is None else known.forms(tools.tools, None, answer)


def _seed(seed: int, choice: int) -> int:
    if choice == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}/{choice}".encode(), digest_size=8, person=b"agentcho.choice").digest()
    return int.from_bytes(digest) >> 1
