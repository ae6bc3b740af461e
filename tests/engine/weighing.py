"""APE on the slow oracle (arXiv 2502.05431): attention computed from its definition inside stock models, in float64,
one query and head at a time. Must not import agentcho.

For a query, each key of a parallel context has the weight exp(s / T), s being the model's score; every other key has
exp(s). A is the sum of the weights of the parallel contexts. It becomes A ** S: each of those weights is multiplied by
A ** (S - 1). Then all weights are divided by their sum. A sink is one more weight among the others, without a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from .families import Layer
from .oracle import Message, Oracle

NAME = "slow_ape"


class WeighingOracle(Oracle):
    """Reads messages of a context as parallel contexts: those that `beside` names when a message is added."""

    def __init__(self, model: PreTrainedModel, layers: Sequence[Layer], bos: int | None, t: float, s: float) -> None:
        self._figures, self._marks = (t, s), list[bool]()
        super().__init__(model, layers, bos)

    def read(self, message: Message, beside: Sequence[int]) -> int:
        """Add a message that reads these messages of its context as parallel."""
        for index, at in self._context(message):
            self._at(index, at)  # moved with the model's own attention, whose output affects no keys or values
            self._marks += [index in beside] * len(self._encodings[index].message.tokens)
        with _written_out(self._model, self._marks, *self._figures):
            found = self.add(message)
        self._marks = []
        return found


@contextmanager
def _written_out(model: PreTrainedModel, marks: Sequence[bool], t: float, s: float) -> Iterator[None]:
    def answer(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **more: Any
    ) -> tuple[Tensor, None]:
        scaling = more.get("scaling") or query.shape[-1] ** -0.5
        own = [*marks, *[False] * (key.shape[2] - len(marks))]
        out = torch.zeros(1, query.shape[2], query.shape[1], value.shape[3], dtype=torch.float64)
        for head in range(query.shape[1]):
            of = head * key.shape[1] // query.shape[1]
            sink = None if more.get("s_aux") is None else float(more["s_aux"][head])
            for n in range(query.shape[2]):
                scores = key[0, of].double() @ query[0, head, n].double() * scaling
                if (cap := more.get("softcap")) is not None:
                    scores = torch.tanh(scores / cap) * cap
                seen = [bool(each == 0) for each in attention_mask[0, 0, n]]
                out[0, n, head] = _one(scores, value[0, of].double(), seen, own, sink, t, s)
        return out.to(value.dtype), None

    AttentionInterface.register(NAME, answer)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _one(
    scores: Tensor, values: Tensor, seen: Sequence[bool], own: Sequence[bool], sink: float | None, t: float, s: float
) -> Tensor:
    """The output of one query of one head."""
    keys = [place for place, visible in enumerate(seen) if visible]
    together = sum(torch.exp(scores[place] / t) for place in keys if own[place])
    total = torch.tensor(0.0 if sink is None else sink, dtype=torch.float64).exp() if sink is not None else 0.0
    found = torch.zeros(values.shape[1], dtype=torch.float64)
    for place in keys:
        weight = torch.exp(scores[place] / t) * together ** (s - 1) if own[place] else torch.exp(scores[place])
        total, found = total + weight, found + weight * values[place]
    return found / total
