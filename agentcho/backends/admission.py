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
from agentcho.backends.words import Vocabulary
from agentcho.calls.call import Call, Decode, EncodingId, Prefill, Receipt, Repair, Shadow
from agentcho.calls.ids import Ids
from agentcho.engine.encoding import Storage
from agentcho.engine.layout import Layout, Rules, decoded, layout
from agentcho.errors import RequestError
from agentcho.message import Words

Reply = Callable[[Decode, str], str]


@dataclass(eq=False)
class Kept:
    """One id. `page` is set once it is held, `speech` for a decode; `fed` counts the tokens that steps took.
    `longest` is how many tokens it may come to, `leader` the decode that a shadow follows."""

    id: EncodingId
    call: Call
    receipt: Receipt
    parents: list[Kept]
    words: Words
    longest: int
    speech: Speech | None = None
    leader: Kept | None = None
    page: Page | None = None
    fed: int = 0
    done: bool = False

    @property
    def storage(self) -> Storage:
        """Where its tokens stand, for calls that are laid out over it."""
        return Storage(b"", self.receipt.start, len(self.words.tokens))


class Script(NamedTuple):
    """What a fake says; see `FakeEngine`."""

    reply: Reply | None
    answer: Reply | None


def admit(
    rules: Rules,
    script: Script,
    words: Vocabulary,
    calls: Sequence[Call],
    ids: Ids,
    known: Callable[[EncodingId], Kept],
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
            kept = _kept(rules, number, call, parents)
            kept.speech = _speech(script, words, call, parents) if isinstance(call, Decode) else None
        admitted.append(kept)
        local[id(call)] = kept
    return admitted


def _placed(rules: Rules, call: Call, parents: Sequence[Kept], own: int = 0) -> Layout:
    return layout(rules, call, [(parent.id, parent.storage) for parent in parents], own)


def _shadow(rules: Rules, number: EncodingId, call: Shadow, parents: list[Kept], local: Mapping[int, Kept]) -> Kept:
    leader = local.get(id(call.of))
    if leader is None or leader.speech is None:
        raise RequestError.parents("a Shadow follows a Decode that does not stand earlier in the same list")
    placed = _placed(rules, call, parents, leader.longest)
    return Kept(number, call, placed.context.receipt, parents, leader.words, placed.longest, leader=leader)


def _repair(rules: Rules, number: EncodingId, call: Repair, parents: list[Kept], base: Kept) -> Kept:
    """Its base is held as a parent is; what the two differ in, a fake does not compute."""
    placed = _placed(rules, call, parents, len(base.words.tokens))
    receipt = placed.context.receipt._replace(base=base.id)
    words = base.words._replace(sampled=None, stopped=None)
    return Kept(number, call, receipt, [*parents, base], words, placed.longest)


def _parent(parent: object, local: Mapping[int, Kept], known: Callable[[EncodingId], Kept]) -> Kept:
    if isinstance(parent, Prefill | Repair):
        if id(parent) not in local:
            raise RequestError.parents(
                f"a {type(parent).__name__} is named as parent and does not stand earlier in the list"
            )
        return local[id(parent)]
    assert isinstance(parent, int)
    kept = known(parent)
    if not kept.done and not isinstance(kept.call, Prefill | Repair):
        raise RequestError.parents(f"encoding {parent} is not finished")
    return kept


def _kept(rules: Rules, id: EncodingId, call: Prefill | Decode, parents: list[Kept]) -> Kept:
    placed = _placed(rules, call, parents)
    if isinstance(call, Decode):  # as it is before it has said anything
        words = decoded(call, placed.framed._replace(content=()), "", None)
    else:
        assert placed.words is not None
        words = placed.words
    return Kept(id, call, placed.context.receipt, parents, words, placed.longest)


def _speech(script: Script, words: Vocabulary, call: Decode, parents: Sequence[Kept]) -> Speech:
    sampling = call.sampling
    if call.forced is not None:
        return Speech(call, call.forced, words, abrupt=False)
    prompt = "\n".join(words.decode(parent.words.tokens[slice(*parent.words.content)]) for parent in parents)
    if sampling.choices is not None or sampling.json_schema is not None:
        return constrained(call, (script.answer or comply)(call, prompt), words)
    return Speech(call, words.encode((script.reply or babble)(call, prompt)), words, abrupt=False)
