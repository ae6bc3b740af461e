"""Runs an engine and an oracle side by side on the same messages, and compares what they would say next.

The expected layout of a call is computed here from the rules for offsets, not taken from the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from agentcho import Decode, Engine, Prefill

from .families import Family
from .oracle import Message, Oracle
from .templates import styles, tokenizer

Offsets = Sequence[int | None] | None


@dataclass(frozen=True)
class Layout:
    """The positions of a call: the offset of each parent, and of the first own token."""

    offsets: tuple[int, ...]
    start: int


class Stage:
    """Encodes messages as prefills on both; ``probe`` returns the gap between engine and oracle on a continuation."""

    def __init__(self, family: Family, engine: Engine, model: PreTrainedModel) -> None:
        self.engine = engine
        self._style, self._tokenizer = styles()[family.style], tokenizer(family.style)
        self.bos = self._tokenizer.bos_token_id if self._style.begins else None
        self.oracle = Oracle(model, family.layers, self.bos)
        self._index: dict[int, int] = {}

    def close(self) -> None:
        """Release all encodings made here."""
        self.engine.release(self._index)

    def prefill(self, *calls: Prefill) -> list[int]:
        """Encode the calls in one list, check their receipts, and encode them with the oracle too."""
        ids = self.engine.prefill(list(calls))
        made = dict(zip(calls, ids, strict=True))
        for call, id in made.items():
            parents = [made[p] if isinstance(p, Prefill) else p for p in call.parents]
            self._follow(id, call, [parent for parent in parents if isinstance(parent, int)])
        return ids

    def decode(self, *calls: Decode) -> tuple[list[int], float]:
        """Decode the calls side by side; the ids, and the largest gap to the oracle in the rows they chose from."""
        ids = self.engine.decode([replace(call, logits=True) for call in calls])
        worst = 0.0
        for call, id in zip(calls, ids, strict=True):
            self._follow(id, call, [parent for parent in call.parents if isinstance(parent, int)])
            ours, sampled = self.engine.logits(id), self.engine.message(id).sampled
            assert sampled is not None
            theirs = self.oracle.logits(self._index[id])[sampled[0] - 1 : sampled[1]]
            assert ours.shape == theirs.shape
            worst = max(worst, gap(ours.log_softmax(-1), theirs.log_softmax(-1)))
        return ids, worst

    def probe(
        self, parents: Sequence[int], offsets: Offsets = None, new_offset: int | None = None, **more: Any
    ) -> float:
        """The largest gap in log-probability between engine and oracle over a scored continuation."""
        text, header = more.get("text", "so be it"), more.get("header", "To Bob: ")
        ours = self.engine.score(text, header=header, parents=list(parents), offsets=offsets, new_offset=new_offset)
        layout = self.layout(parents, offsets, new_offset)
        said, total = self.ids(text), (*self.opening("assistant"), *self.ids(header), *self.ids(text))
        index = self.oracle.add(Message(total, layout.start, self._context(parents, layout)))
        theirs = self.oracle.logits(index)[len(total) - len(said) - 1 :].log_softmax(-1)
        assert ours.shape == theirs.shape
        return gap(ours, theirs)

    def layout(self, parents: Sequence[int], offsets: Offsets, new_offset: int | None) -> Layout:
        """The expected layout: each part right after the one before it, unless an offset is given."""
        at, places = 0 if self.bos is None else 1, []
        for parent, given in zip(parents, offsets or [None] * len(parents), strict=True):
            places.append(at if given is None else given)
            at = places[-1] + len(self.engine.message(parent).tokens)
        return Layout(tuple(places), at if new_offset is None else new_offset)

    def opening(self, role: str) -> tuple[int, ...]:
        """The ids before the content of a message of that role, taken from the style's text."""
        return tuple(self._tokenizer(self._style.frame(role)[0], add_special_tokens=False)["input_ids"])

    def ids(self, text: str) -> tuple[int, ...]:
        """The ids of plain text."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _context(self, parents: Sequence[int], layout: Layout) -> tuple[tuple[int, int], ...]:
        return tuple((self._index[p], at) for p, at in zip(parents, layout.offsets, strict=True))

    def _follow(self, id: int, call: Prefill | Decode, parents: list[int]) -> None:
        """Check the receipt of a call, and encode the message with the oracle accordingly."""
        assert call.offsets != "made"
        layout = self.layout(parents, call.offsets, call.new_offset)
        self._check(id, parents, layout)
        context = self._context(parents, layout)
        self._index[id] = self.oracle.add(Message(self.engine.message(id).tokens, layout.start, context))

    def _check(self, id: int, parents: Sequence[int], layout: Layout) -> None:
        receipt = self.engine.receipt(id)
        lengths = [len(self.engine.message(p).tokens) for p in parents]
        assert tuple(receipt.context) == tuple(zip(parents, layout.offsets, lengths, strict=True))
        assert (receipt.start, receipt.bos) == (layout.start, self.bos is not None)


def text_of(engine: Engine, tokens: Iterable[int]) -> str:
    """Decode ids to text, including special tokens."""
    return str(engine.tokenizer.decode(list(tokens), skip_special_tokens=False))


def gap(one: Tensor, other: Tensor) -> float:
    """The largest difference between two tables of log-probabilities, as float32 on the CPU."""
    return float((one.float().cpu() - other.float().cpu()).abs().max())
