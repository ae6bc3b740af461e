"""The slow oracle: the output of a stock model when each message is encoded by itself, in the context it declares.

Each encoding is one stock forward with batch size one, over a cache assembled from the receipt. To move keys to another
position, the stock forward is run again there with every attention layer fed the hidden states of the first run: what
the layer then caches is by definition its keys at that position, whatever its rotary embedding, norms or layer type.
It has no formula for moving keys, and must not import agentcho.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from .families import Layer


@dataclass(frozen=True)
class Message:
    """Own token ids from position ``start`` on, over a context of (index of an earlier message, offset)."""

    tokens: tuple[int, ...]
    start: int
    context: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Encoding:
    message: Message
    inputs: tuple[Tensor, ...]
    logits: Tensor


class Oracle:
    """Encodes messages one after another; ``logits[i]`` is ``[own tokens, vocab]`` float32. With ``gradients``, they
    flow from the logits through every cache to the weights."""

    def __init__(
        self, model: PreTrainedModel, layers: Sequence[Layer], bos: int | None = None, gradients: bool = False
    ) -> None:
        self._model, self._gradients = model, gradients
        self._layers = tuple(layers)
        self._attention = _attention_modules(model)
        self._moved: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        self._encodings: list[_Encoding] = []
        self._bos: int | None = None
        assert len(self._attention) == len(self._layers)
        if bos is not None:
            self._bos = self.add(Message((bos,), 0))

    def add(self, message: Message) -> int:
        """Encode one message and return its index."""
        context = self._context(message)
        positions = [at + i for index, at in context for i in range(len(self._encodings[index].message.tokens))]
        cache = DynamicCache()
        for layer in range(len(self._layers)):
            for index, at in context:
                cache.update(*self._at(index, at)[layer], layer)
        with self._masked(positions, message), self._watched() as inputs:
            logits = self._forward(message, message.start, cache)
        self._encodings.append(_Encoding(message, tuple(inputs), logits))
        return len(self._encodings) - 1

    def logits(self, index: int) -> Tensor:
        """The logits after each of the message's own tokens."""
        return self._encodings[index].logits

    def _context(self, message: Message) -> tuple[tuple[int, int], ...]:
        return message.context if self._bos is None else ((self._bos, 0), *message.context)

    def _at(self, index: int, start: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of every layer of an encoding, its first token at ``start``."""
        if (index, start) not in self._moved:
            encoding, cache = self._encodings[index], DynamicCache()
            with self._fed(encoding.inputs):
                self._forward(encoding.message, start, cache)
            layers: list[Any] = cache.layers
            self._moved[index, start] = [(layer.keys, layer.values) for layer in layers]
        return self._moved[index, start]

    def _forward(self, message: Message, start: int, cache: DynamicCache) -> Tensor:
        ids = torch.tensor([message.tokens])
        positions = torch.arange(start, start + ids.shape[1])[None]
        with torch.set_grad_enabled(self._gradients):
            taken = "cache" if "cache" in signature(self._model.forward).parameters else "past_key_values"  # until 5.24
            output = self._model(ids, position_ids=positions, use_cache=True, **{taken: cache})
        logits: Tensor = output.logits
        return logits[0].float()

    @contextmanager
    def _masked(self, positions: list[int], message: Message) -> Iterator[None]:
        own = range(message.start, message.start + len(message.tokens))
        masks = [_mask(layer, positions, own) for layer in self._layers]
        with self._hooked(lambda layer, given: given | {"attention_mask": masks[layer]}):
            yield

    @contextmanager
    def _fed(self, inputs: Sequence[Tensor]) -> Iterator[None]:
        with self._hooked(lambda layer, given: given | {"hidden_states": inputs[layer]}):
            yield

    @contextmanager
    def _watched(self) -> Iterator[list[Tensor]]:
        seen: list[Tensor] = []

        def keep(layer: int, given: dict[str, Any]) -> dict[str, Any]:
            seen.append(given["hidden_states"])
            return given

        with self._hooked(keep):
            yield seen

    @contextmanager
    def _hooked(self, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
        def hook(layer: int) -> Any:
            def run(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                named = kwargs if not args else kwargs | {"hidden_states": args[0]}
                return args[1:], change(layer, named)

            return run

        handles = [m.register_forward_pre_hook(hook(i), with_kwargs=True) for i, m in enumerate(self._attention)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _mask(layer: Layer, context: Sequence[int], own: Sequence[int]) -> Tensor:
    """``[1, 1, own, context + own]``, 0 or -inf: all of the context, own tokens causally, within the layer's reach."""
    query = torch.tensor(list(own))[:, None]
    key = torch.tensor([*context, *own])[None]
    order = torch.arange(key.shape[1])[None] - len(context)
    seen = order <= torch.arange(len(own))[:, None]
    if layer.kind == "sliding":
        seen = seen & (key > query - layer.size)
    elif layer.kind == "chunked":
        seen = seen & (key // layer.size == query // layer.size)
    return torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))[None, None]


def _attention_modules(model: PreTrainedModel) -> list[nn.Module]:
    found = [m for m in model.modules() if type(m).__name__.endswith("Attention") and hasattr(m, "layer_idx")]
    return sorted(found, key=lambda module: int(getattr(module, "layer_idx")))  # noqa: B009
