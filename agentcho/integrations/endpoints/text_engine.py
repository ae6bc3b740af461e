"""Presents a model behind an API to the choreographer as an engine that has no tokens and encodes nothing.

A run whose own model is an endpoint still has a choreographer, for its tasks and waits. What its agents say is
requested from `port` and never submitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from agentcho.engine.tools import ToolFormat
from agentcho.errors import RequestError, UnknownEncoding
from agentcho.message import Words
from agentcho.protocol.call import (
    DEFAULT_PRIORITY,
    Call,
    ChatMessage,
    EncodingId,
    Receipt,
    RenderedPrompt,
    SchedulingPriority,
    StepResult,
)
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.ownership import Owner
from agentcho.protocol.text_calls import ENDPOINT, TextPort
from agentcho.protocol.tools import ToolsPort
from agentcho.protocol.value_checks import checked_text
from agentcho.protocol.variables import NO_VARIABLES, Variables

NOWHERE = 1 << 62
"""The context length of a model that does not state one."""
NOTHING = StepResult((), (), (), 0)


class Utf8:
    """Converts text to bytes, which take the place of token ids, and back."""

    def encode(self, text: str) -> list[int]:
        """The bytes of a text in UTF-8."""
        return list(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        """The text of bytes from `encode`."""
        return bytes(ids).decode(errors="replace")

    def weave(self, pieces: Sequence[str]) -> list[int]:
        """The bytes of all pieces."""
        return self.encode("".join(pieces))

    def marked(self, ids: Sequence[int]) -> bool:
        """False: there are no marker tokens."""
        return False

    def check(self, ids: Iterable[int]) -> tuple[int, ...]:
        """`RequestError`: the token ids of this model are unknown."""
        raise RequestError("a model behind an API takes only text, not token ids; give the text")

    def token_bytes(self, id: int, begins: bool = False) -> bytes:
        """The bytes that an id adds to a text."""
        return bytes((id,))

    def spells(self, ids: Sequence[int], text: str) -> bool:
        """Whether `ids` are the bytes of `text`."""
        return self.encode(text) == list(ids)


class TextFraming:
    """An empty framing: the server applies its own."""

    plain: tuple[tuple[str, str], ...] = ()
    thinking = None
    begin: tuple[int, ...] = ()
    default = None
    later = None
    apart = True

    def __init__(self) -> None:
        self.content = Utf8()

    @property
    def tools(self) -> ToolsPort:
        """Functions described in words and calls as bare JSON, which every server accepts."""
        return ToolFormat(self.content)

    def opening(self, role: str, name: str | None, answer: bool = False) -> tuple[int, ...]:
        """Empty."""
        return ()

    def closing(self, role: str) -> tuple[int, ...]:
        """Empty."""
        return ()

    def prompt(self, conversation: Sequence[ChatMessage], variables: Variables = NO_VARIABLES) -> RenderedPrompt | None:
        """None: the server renders the prompt."""
        return None

    def unread(self, names: Collection[str]) -> list[str]:
        """Empty: only the server knows."""
        return []


class TextEngine:
    """An `EnginePort` over a model behind an API. Messages have words but no token ids, and every call is refused."""

    bos = 0
    idle = True

    def __init__(self, port: TextPort) -> None:
        self.port, self.framing, self.owner = port, TextFraming(), Owner()

    @property
    def context(self) -> int:
        """The number of positions, as far as it is known."""
        return self.port.context or NOWHERE

    @property
    def fingerprint(self) -> dict[str, str]:
        """See `described`."""
        return described(self.port)

    def frame(self, role: str, name: str | None, text_: str, tokens: tuple[int, ...] | None = None) -> Words:
        """The words of a known message. `tokens` are ids of another model and are ignored."""
        return Words("", checked_text(text_, "the text"), (), (0, 0))

    def take_place(self, place: int, prefill_budget: int | None = None) -> None:
        """No-op: there are no ids."""

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """`RequestError`: there are no encodings."""
        raise RequestError(
            f"{self.port.name} is a model behind an API, which cannot encode messages here; use it in a game"
        )

    def step(self, deterministic: bool = False) -> StepResult:
        """An empty result."""
        return NOTHING

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """No-op: nothing was submitted."""

    def release(self, ids: Iterable[EncodingId]) -> None:
        """No-op: nothing is held."""

    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """No-op: nothing is stored."""

    def speculate(self, costs: ForwardCosts | None = None) -> None:
        """No-op: that is up to the server."""

    def message(self, id: EncodingId) -> Words:
        """`UnknownEncoding`: there are no encodings."""
        raise UnknownEncoding(id)

    def receipt(self, id: EncodingId) -> Receipt:
        """`UnknownEncoding`: there are no encodings."""
        raise UnknownEncoding(id)


def described(port: TextPort) -> dict[str, str]:
    """What a record stores about an endpoint, with the mark that it is one."""
    return {**port.fingerprint, "vendor": port.vendor, **ENDPOINT}
