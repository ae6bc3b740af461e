"""Protocols that the core of an engine depends on: the template that frames messages, constraints, and the page pool.

No torch: the runner of a model keeps tensors behind these types, other runners keep none. The runner itself is in
`runner_port`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from agentcho.protocol.call import ContentPort, FramingPort

Row = Any
"""One row of logits `[vocab]`, or a stand-in. Opaque except to the runner that made it."""
Stored = Any
"""The pages of one encoding, or a copy of them outside the store. Opaque except to the runner that made it."""


class Detokenizer(Protocol):
    """Turns the tokens of one message into text, one token at a time. `end` returns the rest after the last one."""

    def push(self, id: int) -> str: ...
    def end(self) -> str: ...


class Content(ContentPort, Protocol):
    """Turns text into the token ids of a message's content, and back. `forbidden`: control tokens, which are never part
    of a content. `stream` returns a fresh `Detokenizer`; if the message has `begun` with a header, a blank at the
    beginning is part of the text."""

    forbidden: frozenset[int]

    def stream(self, begun: bool = False) -> Detokenizer: ...
    def encode_behind(self, text: str) -> list[int]:
        """The ids of a text that follows the header of its message."""


class Template(FramingPort, Protocol):
    """How messages are framed. `stops`: the ids that end a decode. `end`: the one that a model ends its message with;
    the assistant's closing may have blanks before it."""

    @property
    def content(self) -> Content: ...
    @property
    def stops(self) -> Collection[int]: ...
    @property
    def end(self) -> int: ...


class TokenConstraint(Protocol):
    """Restricts what one decode may generate. `allowed`: the ids that it may sample next, for `Runner.sample`. `done`:
    no token can follow.

    `ahead()` returns a copy for lookahead over tokens that are not accepted yet; `only` is the only id that may come
    next, or None; `follow(token)` notes a token regardless of the remaining budget.

    `take(token, left)` notes a sampled token, `left` tokens before the end of the budget (this token included), and
    returns the token to accept. That is another one only if the text could not be completed in time after the sampled
    one.
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
    """Stores encodings in pages of `page_tokens` tokens, at most `limit` pages. In pages: `used` hold encodings,
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
        """Promise room for this many tokens. Returns the number of pages. Raises `StoreFull` if there is no room."""

    def unreserve(self, pages: int) -> None: ...
    def allocate(self, length: int) -> Stored:
        """Pages for this many tokens. Raises `StoreFull` if there is no room."""

    def free(self, pages: Stored) -> None: ...
    def copy_out(self, pages: Sequence[Stored]) -> list[Stored]:
        """Copies of several encodings in host memory, complete when this returns."""

    def copy_in(self, copies: Sequence[tuple[Stored, Stored]]) -> None:
        """Write copies into pages of the same lengths, given as pairs of (pages, copy)."""

    def copy(self, source: Stored, target: Stored, tokens: int) -> None:
        """Copy the first `tokens` tokens of one encoding to the beginning of another."""

    def checksum(self, copy: Stored) -> int:
        """A checksum of the content of a copy."""

    def packed(self, copy: Stored) -> bytes:
        """A copy, serialized as the bytes of a file."""

    def unpacked(self, data: bytes) -> Stored:
        """The copy that these bytes were made from, exact to the bit."""

    def check(self, stored: Sequence[tuple[Stored, int]]) -> None:
        """Raise `StoreDamaged` unless each page is free or in exactly one of these (pages, tokens)."""
