"""Checks the calls that a fake engine is given against what it keeps, as the real one does, and places their contexts.

Holds nothing. Does not know: whether their values are of the right kind (`checks`), steps, pages' holders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentcho.backends.babble import babble, comply
from agentcho.backends.pages import Page
from agentcho.backends.speech import Speech, constrained
from agentcho.backends.words import FakeFraming
from agentcho.calls.call import Call, ContextEntry, Decode, Encoded, EncodingId, Prefill, Receipt, Repair, Shadow
from agentcho.calls.ids import Ids
from agentcho.errors import BadOffsets, BadParent, ContextOverflow

Reply = Callable[[Decode, str], str]


@dataclass(eq=False)
class Kept:
    """One id. `page` is set once it is held, `speech` for a decode; `fed` counts the tokens that steps took.
    `leader` is the decode that a shadow follows."""

    id: EncodingId
    call: Call
    receipt: Receipt
    parents: list[Kept]
    words: Encoded
    speech: Speech | None
    leader: Kept | None = None
    page: Page | None = None
    fed: int = 0
    done: bool = False


class Rules(NamedTuple):
    """What a fake is made with; see `FakeEngine`."""

    reply: Reply | None
    answer: Reply | None
    bos: bool
    context: int


def admit(
    rules: Rules, framing: FakeFraming, calls: Sequence[Call], ids: Ids, known: Callable[[EncodingId], Kept]
) -> list[Kept]:
    """All calls of a list under the next of `ids`, or what is wrong with one. `known(id)` gives a call or raises."""
    local: dict[int, Kept] = {}
    admitted: list[Kept] = []
    for call in calls:
        parents = [_parent(parent, local, known) for parent in call.parents]
        number = ids.at(ids.last + 1 + len(admitted))
        if isinstance(call, Shadow):
            kept = _shadow(rules, number, call, parents, local)
        elif isinstance(call, Repair):
            kept = _repair(rules, number, call, parents, _parent(call.of, local, known))
        else:
            kept = _kept(rules, framing, number, call, parents)
        admitted.append(kept)
        local[id(call)] = kept
    return admitted


def _shadow(rules: Rules, number: EncodingId, call: Shadow, parents: list[Kept], local: Mapping[int, Kept]) -> Kept:
    leader = local.get(id(call.of))
    if leader is None or leader.speech is None:
        raise BadParent("a Shadow follows a Decode that does not stand earlier in the same list")
    receipt = _receipt(rules, call, parents, len(leader.words.tokens) + _most(call.of))
    return Kept(number, call, receipt, parents, leader.words, None, leader)


def _repair(rules: Rules, number: EncodingId, call: Repair, parents: list[Kept], base: Kept) -> Kept:
    """Its base is held as a parent is; what the two differ in, a fake does not compute."""
    receipt = _receipt(rules, call, parents, len(base.words.tokens))._replace(base=base.id)
    words = base.words._replace(sampled=None, stopped=None)
    return Kept(number, call, receipt, [*parents, base], words, None)


def _parent(parent: object, local: Mapping[int, Kept], known: Callable[[EncodingId], Kept]) -> Kept:
    if isinstance(parent, Prefill | Repair):
        if id(parent) not in local:
            raise BadParent(f"a {type(parent).__name__} is named as parent and does not stand earlier in the list")
        return local[id(parent)]
    assert isinstance(parent, int)
    kept = known(parent)
    if not kept.done and not isinstance(kept.call, Prefill | Repair):
        raise BadParent(f"encoding {parent} is not finished")
    return kept


def _kept(rules: Rules, framing: FakeFraming, id: EncodingId, call: Prefill | Decode, parents: list[Kept]) -> Kept:
    words = _prefilled(framing, call) if isinstance(call, Prefill) else _begun(framing, call)
    receipt = _receipt(rules, call, parents, len(words.tokens) + _most(call))
    speech = _speech(rules, framing, call, parents) if isinstance(call, Decode) else None
    return Kept(id, call, receipt, parents, words, speech)


def _receipt(rules: Rules, call: Call, parents: Sequence[Kept], own: int) -> Receipt:
    """Where everything stands; `ContextOverflow` where a parent or the call's `own` tokens would pass the end."""
    offsets, start = _places(call, parents, rules.bos)
    ends = [at + len(parent.words.tokens) for at, parent in zip(offsets, parents, strict=True)]
    needed = max([*ends, start + own])
    if needed > rules.context:
        raise ContextOverflow(needed, rules.context)
    pairs = zip(parents, offsets, strict=True)
    return Receipt(tuple(ContextEntry(p.id, at, len(p.words.tokens)) for p, at in pairs), start, rules.bos)


def _places(call: Call, parents: Sequence[Kept], bos: bool) -> tuple[list[int], int]:
    """The positions of all parents and of the call's own first token."""
    made = call.offsets == "made"
    wanted = [parent.receipt.start for parent in parents] if call.offsets == "made" else call.offsets
    asked = [None] * len(parents) if wanted is None else list(wanted)
    if len(asked) != len(parents):
        raise BadOffsets(f"{len(asked)} offsets for {len(parents)} parents")
    end, offsets, ends = int(bos), list[int](), [int(bos)]
    for parent, offset in zip(parents, asked, strict=True):
        offsets.append(end if offset is None else offset)
        end = offsets[-1] + len(parent.words.tokens)
        ends.append(end)
    start = (max(ends) if made else end) if call.new_offset is None else call.new_offset
    return offsets, start


def _most(call: Prefill | Decode) -> int:
    """The most tokens that a call may come to say."""
    if isinstance(call, Prefill):
        return 0
    return call.sampling.max_tokens if call.forced is None else len(call.forced)


def _prefilled(framing: FakeFraming, call: Prefill) -> Encoded:
    encode, check = framing.content.encode, framing.content.check
    opening, closing = framing.opening(call.role, call.name), framing.closing(call.role)
    content = tuple(encode(call.text)) if call.tokens is None else check(call.tokens)
    tokens, span = (*opening, *content, *closing), (len(opening), len(opening) + len(content))
    text = framing.content.decode(content)
    canonical = tuple(encode(text)) == content
    return Encoded(call.role, call.name, "", text, tokens, span, None, None, canonical)


def _begun(framing: FakeFraming, call: Decode) -> Encoded:
    """A decode before it has said anything."""
    opening, header = framing.opening("assistant", call.name), framing.content.encode(call.header)
    tokens, end = (*opening, *header, *framing.closing("assistant")), len(opening) + len(header)
    return Encoded("assistant", call.name, call.header, "", tokens, (len(opening), end), (end, end), None)


def _speech(rules: Rules, framing: FakeFraming, call: Decode, parents: Sequence[Kept]) -> Speech:
    words, sampling = framing.content, call.sampling
    if call.forced is not None:
        return Speech(call, words.check(call.forced), words, abrupt=False)
    prompt = "\n".join(words.decode(parent.words.tokens[slice(*parent.words.content)]) for parent in parents)
    if sampling.choices is not None or sampling.json_schema is not None:
        return constrained(call, (rules.answer or comply)(call, prompt), words)
    return Speech(call, words.encode((rules.reply or babble)(call, prompt)), words, abrupt=False)
