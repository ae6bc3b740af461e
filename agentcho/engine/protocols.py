"""What the core of an engine needs from below: the template that frames messages, constraints, and a pool of pages.

No torch: the runner of a model keeps tensors behind these types, other runners keep none. Does not know: calls, when
they run, the runner (`runner_port`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from agentcho.protocol.call import ContentPort, FramingPort

Row = Any
"""One row of logits `[vocab]`, or what stands for one. Only the runner that made it looks inside."""
Stored = Any
"""The pages of one encoding, or a copy of them outside. Only the runner that made it looks inside."""


class Detokenizer(Protocol):
    """Turns the tokens of one message into text, one token at a time. `end` gives what is left behind the last one."""

    def push(self, id: int) -> str: ...
    def end(self) -> str: ...


class Content(ContentPort, Protocol):
    """Turns text into the token ids of a message's content, and back. `forbidden`: control tokens, which are never part
    of a content. `stream` gives a fresh `Detokenizer`; where the message has begun with a header, a blank at the
    beginning of what follows is part of the text."""

    forbidden: frozenset[int]

    def stream(self, begun: bool = False) -> Detokenizer: ...
    def encode_behind(self, text: str) -> list[int]:
        """The ids of a text that stands behind the header of its message."""


class Template(FramingPort, Protocol):
    """How messages are framed. `stops`: the ids that end a decode. `end`: the one by which a model ends its message;
    the assistant's closing may have blanks before it."""

    @property
    def content(self) -> Content: ...
    @property
    def stops(self) -> Collection[int]: ...
    @property
    def end(self) -> int: ...


class TokenConstraint(Protocol):
    """Restricts what one decode may say. `allowed`: the ids that it may sample next, for `Runner.sample`. `done`: no
    token can follow.

    `ahead()` is a copy, to see with `allowed` what may follow tokens that were not said; `only` is the one id that may
    come next, or None; `follow(token)` notes a token whatever is left of the budget.

    `take(token, left)` notes a sampled token, `left` tokens before the end of the budget (this token included), and
    returns the token to be said. That is another one only where the sampled token could not be brought to an end in
    time.
    """

    @property
    def allowed(self) -> Any: ...
    @property
    def only(self) -> int | None: ...
    @property
    def done(self) -> bool: ...
    def ahead(self) -> TokenConstraint: ...
    def follow(self, token: int) -> None: ...
    def take(self, token: int, left: int) -> int: ...


class KVPool(Protocol):
    """Keeps encodings in pages of `page_tokens` tokens, at most `limit` pages. Counted in pages: `used` hold encodings,
    `reserved` are promised to running calls, `room` are left."""

    page_tokens: int
    limit: int
    used: int
    reserved: int
    high_water: int

    @property
    def room(self) -> int: ...
    def pages_for(self, tokens: int) -> int: ...
    def reserve(self, tokens: int) -> int:
        """Promise room for this many tokens; returns the number of pages. `StoreFull`: nothing was promised."""

    def unreserve(self, pages: int) -> None: ...
    def allocate(self, length: int) -> Stored:
        """Pages for this many tokens. `StoreFull`: there is no room."""

    def free(self, pages: Stored) -> None: ...
    def copy_out(self, pages: Sequence[Stored]) -> list[Stored]:
        """Copies of several encodings in host memory, whole when this returns."""

    def copy_in(self, copies: Sequence[tuple[Stored, Stored]]) -> None:
        """Write copies into pages of their lengths: pairs of both."""

    def copy(self, source: Stored, target: Stored, tokens: int) -> None:
        """Copy the first so many tokens of one encoding to the beginning of another."""

    def checksum(self, copy: Stored) -> int:
        """A checksum of all that a copy holds."""

    def packed(self, copy: Stored) -> bytes:
        """A copy as the bytes of a file."""

    def unpacked(self, data: bytes) -> Stored:
        """The copy that these bytes were made from, to the bit."""

    def check(self, stored: Sequence[tuple[Stored, int]]) -> None:
        """Raise `StoreDamaged` unless each page is free or in one of these, each of so many tokens."""
