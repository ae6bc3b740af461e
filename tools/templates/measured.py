"""Measures one template against stock transformers: whether it loads, and whether its conversations get the same
ids.
"""

from __future__ import annotations

import hashlib
import json
from itertools import product
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerFast

from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.engine.template_fidelity import ANSWER, MORE, QUESTION, TALKS, Talk, fidelity
from agentcho.errors import AgentchoError
from agentcho.protocol.call import ChatMessage
from agentcho.protocol.tools import ToolCall, ToolDefinition
from tools.templates.families import Family, family, tokenizer
from tools.templates.result import Alike, Row, Tools
from tools.templates.sources import Template

CONVERSATIONS: tuple[Talk, ...] = (
    *TALKS,
    (ChatMessage("user", "é 🙂\u200d漢字 \ufffd 𝄞\tx\r\ny  z"),),
    (
        ChatMessage("system", "1\n"),
        ChatMessage("user", "12345, and then?"),
        ChatMessage("assistant", "\n..."),
        ChatMessage("user", "- a\n- b\n"),
    ),
)
"""Those of the doctor, and others with multi-byte characters, digits and all kinds of whitespace."""
THOUGHTFUL: Talk = (
    ChatMessage("user", QUESTION),
    ChatMessage("assistant", f"<think>\nIt is small.\n</think>\n\n{ANSWER}"),
    ChatMessage("user", MORE),
)
ID = "a1b2c3d4e"
ARGUMENTS: dict[str, Any] = {"place": 'Zürich "west"', "days": [1, 2.5, None], "more": {"a": True}}
PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string", "description": "Where?"}, "days": {"type": "array"}},
    "required": ["place"],
}
FUNCTIONS = (
    ToolDefinition("weather", "How is the weather?", PARAMETERS),
    ToolDefinition("clock", "What time is it?", PARAMETERS),
)
TOOLS = [{"type": "function", "function": each._asdict()} for each in FUNCTIONS]
RESULT = "It rains."
CALL = ToolCall("weather", json.dumps(ARGUMENTS, ensure_ascii=False), ID)


def measured(template: Template, of: Family | None = None) -> Row:
    """The result for one template, with the tokenizer of its family.

    Args:
        template: The template.
        of: Its family (None: by its name).
    """
    of = family(template.name) if of is None else of
    about: dict[str, Any] = {
        "name": template.name,
        "file": template.file,
        "digest": hashlib.sha256(template.source.encode()).hexdigest(),
        "vocabulary": of.vocabulary,
        "kind": of.kind,
    }
    try:
        known, framing = framed(template, of)
    except AgentchoError as error:
        return Row(**about, refused=str(error).partition(". ")[0])
    found = fidelity(known, framing, CONVERSATIONS)
    return Row(
        **about,
        plain=found.plain.equal,
        agents=found.apart.equal,
        of=found.plain.of,
        plain_first=(found.plain.stock, found.plain.ours),
        agents_first=(found.apart.stock, found.apart.ours),
        thoughts=_alike(known, framing, THOUGHTFUL),
        spelt=_alike(known, framing, spelling := _spelling(known)),
        forged=_forges(framing, spelling),
        stops=tuple(map(str, known.convert_ids_to_tokens(sorted(framing.stops)))),
        **of_functions(known, framing)._asdict(),
    )


def framed(template: Template, of: Family) -> tuple[PreTrainedTokenizerFast, Framing]:
    """A tokenizer with the template, and the framing derived from both.

    Raises:
        UnsupportedModel: No framing can be derived.
    """
    known = tokenizer(template, of)
    ids = known.get_vocab()
    return known, derive(known, template.name, frozenset(ids[word] for word in of.ends if word in ids))


def _spelling(known: PreTrainedTokenizerFast) -> Talk:
    """A conversation whose contents spell control tokens."""
    words = "".join(f" {word}" for word in known.added_tokens_encoder if word.strip())[:2000]
    return ChatMessage("user", words), ChatMessage("assistant", ANSWER), ChatMessage("user", f"x{words}")


def _alike(known: PreTrainedTokenizerFast, framing: Framing, talk: Talk) -> Alike:
    """How far a conversation equals that of stock transformers."""
    turns = [{"role": said.role, "content": said.text} for said in talk]
    given: Any = {"add_generation_prompt": True, "return_dict": False}
    try:
        stock = list(known.apply_chat_template(turns, **given))
    except Exception:  # the template is foreign code: any error means it cannot render this
        return "none"
    if (ours := _whole(framing, talk)) is None:
        return "other"
    return "ids" if ours == stock else "text" if known.decode(ours) == known.decode(stock) else "other"


def _whole(framing: Framing, talk: Talk, functions: tuple[ToolDefinition, ...] = ()) -> list[int] | None:
    """The ids of a conversation as `agentcho serve` renders it. None: its messages are framed one by one."""
    offered = [ChatMessage("system", "", tools=functions)] if functions else []
    if (found := framing.prompt([*talk, *offered])) is None:
        return None
    return [*framing.begin, *(id for piece in found.pieces for id in piece.tokens), *found.opening]


def _forges(framing: Framing, talk: Talk) -> bool:
    """Whether the contents of a conversation add control tokens."""
    found, plain = _whole(framing, talk), _whole(framing, tuple(said._replace(text="x") for said in talk))
    control = framing.content.forbidden
    if found is None or plain is None:
        return False
    return [id for id in found if id in control] != [id for id in plain if id in control]


class _Functions(NamedTuple):
    tools: Tools
    tools_written: bool | None = None
    tools_read: bool | None = None
    tools_listed: bool | None = None


def of_functions(known: PreTrainedTokenizerFast, framing: Framing) -> _Functions:
    """How a template writes functions, and whether they are written and read here in the same way."""
    listed = rendered(known, [{"role": "user", "content": QUESTION}])
    knows = listed is not None and FUNCTIONS[0].name in listed
    called = _called(known)
    if called is None:
        return _Functions("no calls" if knows else "none")
    turns, text = called
    calls = text.partition(QUESTION)[2]
    if not framing.tools.auto:
        return _Functions("plain words")
    said, result = framing.tools.spoken("", [CALL])[0], framing.tools.result(RESULT, ID, CALL.name)[0]
    written = said in calls and result in calls
    answer = calls[calls.find(framing.tools.opening) :].partition(framing.frame("assistant").closing.strip())[0]
    _, found = framing.tools.read(answer)
    read = [(each.name, json.loads(each.arguments)) for each in found[:1]] == [(CALL.name, ARGUMENTS)]
    talk = (
        ChatMessage("user", QUESTION),
        ChatMessage("assistant", "", calls=(CALL,)),
        ChatMessage("tool", RESULT, CALL.name, call_id=ID),
    )
    given: Any = {"tools": TOOLS, "add_generation_prompt": True, "return_dict": False}
    return _Functions(
        "derived", written, read, _whole(framing, talk, FUNCTIONS) == known.apply_chat_template(turns, **given)
    )


def _called(known: PreTrainedTokenizerFast) -> tuple[list[dict[str, Any]], str] | None:
    """A conversation with a call and its result, as given to the template and as written by it. None: the template
    cannot."""
    for arguments, content in product((ARGUMENTS, CALL.arguments), ("", None)):
        function = {"name": CALL.name, "arguments": arguments}
        call = {"id": ID, "type": "function", "function": function}
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": content, "tool_calls": [call]},
            {"role": "tool", "content": RESULT, "tool_call_id": ID, "name": CALL.name},
        ]
        if (text := rendered(known, turns)) is not None and CALL.name in text.partition(QUESTION)[2]:
            return turns, text
    return None


def rendered(known: PreTrainedTokenizerFast, turns: list[dict[str, Any]]) -> str | None:
    """A conversation with functions as stock transformers renders it. None: its template cannot."""
    given: Any = {"tools": TOOLS, "tokenize": False, "add_generation_prompt": True}
    try:
        return str(known.apply_chat_template(turns, **given))
    except Exception:  # the template is foreign code: any error means it cannot render this
        return None
