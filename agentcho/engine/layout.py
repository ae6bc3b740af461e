"""Lays a call out: the ids of its message, part by part, what it attends to, and the positions of both.

The one place where that is decided, for whatever computes: a model, a fake, sets, or nothing. Does not know: how keys
are made, when a call runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentcho.calls.call import Call, Decode, EncodingId, FramingPort, Offsets, Prefill, Stopped
from agentcho.calls.values import text as plain
from agentcho.engine.encoding import Context, Piece, Storage
from agentcho.errors import ContextOverflow, RequestError
from agentcho.message import Words

Ids = tuple[int, ...]


class Framed(NamedTuple):
    """The ids of one message, in four parts; of a decode, `content` is what it has said by now."""

    opening: Ids
    header: Ids
    content: Ids
    closing: Ids

    @property
    def begun(self) -> Ids:
        """The ids before the content."""
        return self.opening + self.header

    @property
    def tokens(self) -> Ids:
        """All of them, in order."""
        return self.opening + self.header + self.content + self.closing

    @property
    def span(self) -> tuple[int, int]:
        """The (start, stop) of header and content within `tokens`."""
        begin = len(self.opening)
        return begin, begin + len(self.header) + len(self.content)

    @property
    def said(self) -> tuple[int, int]:
        """The (start, stop) of the content alone."""
        begin = len(self.opening) + len(self.header)
        return begin, begin + len(self.content)

    def inside(self, tokens: Ids, closed: bool = True) -> Ids | None:
        """The ids of header and content of a message with this framing; None: it has another. One that is not `closed`
        ended before its closing."""
        closing = self.closing if closed else ()
        end = len(tokens) - len(closing)
        if end < len(self.opening) or tokens[: len(self.opening)] != self.opening or tokens[end:] != closing:
            return None
        return tokens[len(self.opening) : end]


def frame(
    template: FramingPort, role: str, name: str | None, header: Iterable[int] = (), content: Iterable[int] = ()
) -> Framed:
    """The ids of a message of this role, by `name`, with these ids of header and content."""
    return Framed(template.opening(role, name), tuple(header), tuple(content), template.closing(role))


def encoded(
    template: FramingPort, role: str, name: str | None, text: str, tokens: Sequence[int] | None = None
) -> Words:
    """The words of a `Prefill` of this text, or of these content ids: see `FramePort.frame`. `RequestError`: one of the
    ids cannot be content."""
    said, content = plain(text, "the text"), template.content
    own = content.encode(said) if tokens is None else content.check(tokens)
    said = said if tokens is None else content.decode(own)
    framed = frame(template, role, name, content=own)
    canonical = tokens is None or content.spells(own, said)
    return Words("", said, framed.tokens, framed.span, canonical=canonical)


def decoded(call: Decode, framed: Framed, text: str, stopped: Stopped | None, canonical: bool = True) -> Words:
    """The words of a finished `Decode` that has said `text`, the content of `framed`."""
    return Words(call.header, text, framed.tokens, framed.span, framed.said, stopped, canonical)


class Rules(NamedTuple):
    """What of an engine its layouts depend on: its `template`, the piece that every context begins with, the number of
    positions, and the name of what computes, which is part of every key."""

    template: FramingPort
    bos: Piece | None
    limit: int
    origin: str = ""


class Layout(NamedTuple):
    """Where a call stands. `framed`: its own ids, of a decode as far as they are known before it has said anything; of
    a shadow or a repair, which take the ids of another message, none. `longest`: how many tokens it may come to.
    `words` are those of a prefill."""

    framed: Framed
    context: Context
    longest: int
    words: Words | None = None


NOTHING = Framed((), (), (), ())
Parents = Sequence[tuple[EncodingId, Storage]]


def layout(rules: Rules, call: Call, parents: Parents, own: int = 0) -> Layout:
    """Lay a call out over its resolved parents; nothing is held. `own` is the length of what a shadow or a repair
    takes its ids from.

    Raises `RequestError`, `ContextOverflow`, and what is wrong with the call's own ids: `RequestError`.
    """
    framed, words, more = NOTHING, None, own
    if isinstance(call, Prefill):
        words = encoded(rules.template, call.role, call.name, call.text, call.tokens)
        more = len(words.tokens)
    elif isinstance(call, Decode):
        content = rules.template.content
        forced = () if call.forced is None else content.check(call.forced)
        framed = frame(rules.template, "assistant", call.name, content.encode(call.header), forced)
        more = len(framed.tokens) + (call.sampling.max_tokens if call.forced is None else 0)
    context = place(rules, parents, call.offsets, call.new_offset)
    check_fits(context, more, rules.limit)
    return Layout(framed, context, more, words)


def place(rules: Rules, parents: Parents, offsets: Offsets, new_offset: int | None) -> Context:
    """Give every parent and the new message its position: as asked, where made, or right after the one before."""
    if offsets == "made":
        offsets = [storage.position for _, storage in parents]
        ends = [storage.position + storage.length for _, storage in parents]
        new_offset = max(ends, default=None) if new_offset is None else new_offset
    asked = [None] * len(parents) if offsets is None else offsets
    if len(asked) != len(parents):
        raise RequestError.offsets(f"{len(asked)} offsets for {len(parents)} parents")
    pieces, end = [] if rules.bos is None else [rules.bos], 0 if rules.bos is None else 1
    for (id, storage), offset in zip(parents, asked, strict=True):
        start = end if offset is None else offset
        pieces.append(Piece(id, storage, start))
        end = start + storage.length
    return Context(tuple(pieces), end if new_offset is None else new_offset, rules.origin)


def check_fits(context: Context, own: int, limit: int) -> None:
    """`ContextOverflow` where a parent or the new message's `own` tokens would pass the last of `limit` positions."""
    end = max([piece.offset + piece.storage.length for piece in context.pieces] + [context.start + own])
    if end > limit:
        raise ContextOverflow(end, limit)
