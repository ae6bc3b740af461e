"""Finds where messages begin in the token ids of a prompt rendered by a chat template.

vLLM tokenises a whole chat at once, including control tokens spelled within messages, so one text can pass for two
messages. A prompt is therefore divided at every place where a message may begin, and compared with what the request
declares: a prompt with a different number of messages, or other roles, is refused. Independent of agents and of keys
and values.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from agentcho.engine.content_tokenizer import THOUGHTS
from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.errors import RequestError, UnsupportedModel
from agentcho.integrations.vllm.alone.request_params import DeclaredMessage
from agentcho.runner.model.model import end_tokens, find, read_tokenizer

Ids = tuple[int, ...]
REMEDY = "Use `agentcho serve`, which frames messages itself"
THINKING: tuple[dict[str, Any], ...] = tuple({"enable_thinking": on, "thinking": on} for on in (True, False))
"""Variables that tell chat templates whether an answer begins with a thought."""
BEGIN = "begin"
"""The role of what comes before the first message, such as a BOS."""


class MessageSpan(NamedTuple):
    """The tokens `start` to `stop` of a prompt. `declared`: the message of the request that they render. None: the chat
    template added them, and `common` says whether they are the same in every prompt."""

    start: int
    stop: int
    role: str
    declared: DeclaredMessage | None = None
    common: bool = False


class DividedPrompt(NamedTuple):
    """The messages of a prompt, and where its answer begins (None: no answer was opened). `plain`: the answer's opening
    is exactly that of the chat template."""

    messages: tuple[MessageSpan, ...]
    answer: int | None
    plain: bool = True

    def part(self, ids: Sequence[int], chosen: Container[int]) -> list[int]:
        """The ids of the declared messages with these indexes, after what begins every conversation."""
        found, index = list[int](), 0
        for span in self.messages:
            taken = span.role == BEGIN if span.declared is None else index in chosen
            index += span.declared is not None
            found += ids[span.start : span.stop] if taken else ()
        return found


class MessageMarkers:
    """The ids with which messages of each role begin.

    Args:
        framing: The framing of the model's messages.
        tokenizer: Its Hugging Face tokenizer.
        model: The name of the model in errors.

    Attributes:
        framing: The framing.

    Raises:
        UnsupportedModel: Messages of one role do not begin with a control token.
    """

    def __init__(self, framing: Framing, tokenizer: Any, model: str) -> None:
        self.framing, self._tokenizer = framing, tokenizer
        found = dict[Ids, str]()
        for role, frame in framing.frames.items():
            header = frame.opening.partition("\n")[0].rstrip()  # what follows may be a date, or merge with the text
            ids = tuple(tokenizer.encode(header, add_special_tokens=False))
            if role == "tool" and any(frame.opening.startswith(text) for text in self._openings("tool")):
                continue  # tool results are part of messages of another role
            if not ids or ids[0] not in framing.content.forbidden or framing.ids[frame.opening][: len(ids)] != ids:
                raise UnsupportedModel(model, f"its {role} messages do not begin with a control token", REMEDY)
            found[ids] = role
        self._markers = sorted(found.items(), key=lambda marker: -len(marker[0]))
        self._first = {ids[0] for ids in found}
        self._own = set(found.values())
        self._opens = {framing.prompted, *map(self._opened, THINKING)}

    def _openings(self, but: str) -> list[str]:
        return [frame.opening for role, frame in self.framing.frames.items() if role != but]

    def divided(self, ids: Sequence[int], declared: Sequence[DeclaredMessage] | None) -> DividedPrompt:
        """Divide a prompt into messages.

        Args:
            ids: Its token ids.
            declared: The messages that the request declares. None: it declares none.

        Raises:
            RequestError: The prompt's messages differ from the declared ones.
        """
        starts = [(at, self._role(ids, at)) for at, id in enumerate(ids) if id in self._first]
        if not starts:
            raise RequestError("the prompt contains no message; send a chat, or the token ids of one")
        ends = [*(at for at, _ in starts[1:]), len(ids)]
        spans = [MessageSpan(at, end, role) for (at, role), end in zip(starts, ends, strict=True)]
        head, begin = tuple(ids[: starts[0][0]]), self.framing.begin
        if head and head != begin:
            raise RequestError("the prompt has text before its first message; leave it out")
        before = [MessageSpan(0, len(head), BEGIN, common=True)] if head else []
        if declared is None:
            opened = tuple(ids[spans[-1].start :]) in self._opens
            answer = spans.pop().start if opened else None
            return DividedPrompt((*before, *spans), answer)
        return self._matched(ids, before, spans, list(declared))

    def _matched(
        self,
        ids: Sequence[int],
        before: list[MessageSpan],
        spans: list[MessageSpan],
        declared: list[DeclaredMessage],
    ) -> DividedPrompt:
        """Match the divided prompt with the declared messages."""
        begins = declared[0].role if declared else ""
        if spans[0].role == "system" and begins not in ("system", "developer"):
            added = spans.pop(0)
            default = self.framing.default
            common = default is not None and tuple(ids[added.start : added.stop]) == default.tokens
            before.append(added._replace(common=common))
        opened = len(spans) > len(declared) and spans[-1].role == "assistant"
        answer = spans.pop() if opened else None
        if len(spans) != len(declared):
            raise RequestError(
                f"{len(declared)} messages are declared, but the prompt contains {len(spans)}; declare each "
                "message once, in order, and let no text spell the control tokens of the chat template"
            )
        for index, (span, message) in enumerate(zip(spans, declared, strict=True)):
            if not self._fits(message.role, span.role):
                raise RequestError(
                    f"message {index} is declared as {message.role}, but the prompt has it as {span.role}; "
                    "declare its role as in the prompt"
                )
        told = (span._replace(declared=message) for span, message in zip(spans, declared, strict=True))
        plain = answer is not None and tuple(ids[answer.start :]) in self._opens
        return DividedPrompt((*before, *told), None if answer is None else answer.start, plain)

    def _fits(self, declared: str, found: str) -> bool:
        role = "system" if declared == "developer" else declared
        framed = self.framing.aliases.get(role, role)
        return framed == found or (role not in self._own and found == "user")

    def _role(self, ids: Sequence[int], at: int) -> str:
        for marker, role in self._markers:
            if tuple(ids[at : at + len(marker)]) == marker:
                return role
        raise RequestError(f"the control token at position {at} of the prompt does not begin a message of a known role")

    def words(self, ids: Sequence[int]) -> str:
        """The words of a message, without its frame, surrounding whitespace, and a thought before them."""
        marker = next((marker for marker, _ in self._markers if tuple(ids[: len(marker)]) == marker), ())
        text = str(self._tokenizer.decode(ids[len(marker) :], skip_special_tokens=True))
        return text.rpartition(THOUGHTS[1])[2].strip()

    def _opened(self, variables: dict[str, Any]) -> Ids:
        """What the chat template opens for an answer, given these variables."""
        said = [{"role": "user", "content": "a"}]
        ids = list(
            self._tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False, **variables)
        )
        return tuple(ids[max((at for at, id in enumerate(ids) if id in self._first), default=0) :])


def markers_of(model: str) -> MessageMarkers:
    """The message markers of a model. `AgentchoError`: it cannot be read, or its messages cannot be told apart.

    Args:
        model: The folder of its tokenizer, or its hub id.
    """
    source = find(model)
    tokenizer = read_tokenizer(source)
    return MessageMarkers(derive(tokenizer, source.name, end_tokens(source)), tokenizer, source.name)
