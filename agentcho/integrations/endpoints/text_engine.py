"""A model behind an API as the choreographer sees it: an engine that has no tokens and encodes nothing.

Runs whose own model is an endpoint have a choreographer as all others do, for tasks and waits; what agents say there is
asked of `port`, and never submitted. Does not know: HTTP, games.
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
"""The number of positions where nobody says it."""
NOTHING = StepResult((), (), (), 0)


class Utf8:
    """Text to bytes, which stand where token ids would, and back."""

    def encode(self, text: str) -> list[int]:
        """Its bytes in UTF-8."""
        return list(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        """The text of bytes that `encode` gave."""
        return bytes(ids).decode(errors="replace")

    def weave(self, pieces: Sequence[str]) -> list[int]:
        """The bytes of all pieces."""
        return self.encode("".join(pieces))

    def marked(self, ids: Sequence[int]) -> bool:
        """No: it has no such tokens."""
        return False

    def check(self, ids: Iterable[int]) -> tuple[int, ...]:
        """`RequestError`: nobody knows this model's token ids."""
        raise RequestError("a model behind an API takes only text, not token ids; give the text")

    def token_bytes(self, id: int, begins: bool = False) -> bytes:
        """The bytes that an id adds to a text."""
        return bytes((id,))

    def spells(self, ids: Sequence[int], text: str) -> bool:
        """Whether `ids` are its bytes."""
        return self.encode(text) == list(ids)


class TextFraming:
    """No framing: the server has its own."""

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
        """Functions in words, calls as bare JSON: what every server takes."""
        return ToolFormat(self.content)

    def opening(self, role: str, name: str | None, answer: bool = False) -> tuple[int, ...]:
        """Nothing."""
        return ()

    def closing(self, role: str) -> tuple[int, ...]:
        """Nothing."""
        return ()

    def prompt(self, conversation: Sequence[ChatMessage], variables: Variables = NO_VARIABLES) -> RenderedPrompt | None:
        """None: the server writes it."""
        return None

    def unread(self, names: Collection[str]) -> list[str]:
        """None: the server knows."""
        return []


class TextEngine:
    """An `EnginePort` over a model behind an API. Messages have words and no token ids; every call is refused."""

    bos = 0
    idle = True

    def __init__(self, port: TextPort) -> None:
        self.port, self.framing, self.owner = port, TextFraming(), Owner()

    @property
    def context(self) -> int:
        """The number of positions, as far as anybody says it."""
        return self.port.context or NOWHERE

    @property
    def fingerprint(self) -> dict[str, str]:
        """See `described`."""
        return described(self.port)

    def frame(self, role: str, name: str | None, text_: str, tokens: tuple[int, ...] | None = None) -> Words:
        """The words of a known message. Ids are those of another model, and of no use here."""
        return Words("", checked_text(text_, "the text"), (), (0, 0))

    def take_place(self, place: int, prefill_budget: int | None = None) -> None:
        """There are no ids."""

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """`RequestError`: there are no encodings."""
        raise RequestError(
            f"{self.port.name} is a model behind an API, which cannot encode messages here; use it in a game"
        )

    def step(self, deterministic: bool = False) -> StepResult:
        """Nothing to do."""
        return NOTHING

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """Nothing was submitted."""

    def release(self, ids: Iterable[EncodingId]) -> None:
        """Nothing is held."""

    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """Nothing is stored."""

    def speculate(self, costs: ForwardCosts | None = None) -> None:
        """Its server may."""

    def message(self, id: EncodingId) -> Words:
        """`UnknownEncoding`: there are none."""
        raise UnknownEncoding(id)

    def receipt(self, id: EncodingId) -> Receipt:
        """`UnknownEncoding`: there are none."""
        raise UnknownEncoding(id)


def described(port: TextPort) -> dict[str, str]:
    """What a record says of an endpoint, and that it is one."""
    return {**port.fingerprint, "vendor": port.vendor, **ENDPOINT}
