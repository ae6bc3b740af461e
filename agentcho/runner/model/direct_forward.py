"""The forward of a network that is built as Llama's is, without what modules do around their own work.

A decode step of a small model on a CPU spends more time in calls of modules, decorators and masks that nobody reads
than in its products. Here the parts of a network (norms, linear layers, activations, as they are: packed, or in few
bits) are called one after another, and the same operations in the same order give the same bits. That is tried when a
network is loaded, and where one bit differs the library's own forward is used, as it is for networks of other kinds,
beside adapters, with gradients, and while anything has hooked a module.

`torch.compile` over the same operations was tried on the embedded model, two cores with AVX-512: it took 42 s, and then
1.1 ms a forward of one token where this takes 1.8 and the library's 2.8; of eight tokens 2.1, 2.8 and 4.0. Does not
know: attention, what a forward is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from agentcho.runner.attention.base import Locality, Scoring

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Classes of transformers whose layers are Llama's: some with biases, norms of queries and keys, or windows."""
HANDS_OUT = "transformers.utils.output_capturing"
TRIED = (1, 3)
"""Numbers of tokens by which it is compared with the library's forward."""
Apply = Callable[[Tensor], Tensor]


class DirectForward:
    """The forward of one network."""

    def __init__(self, network: Any, given: list[tuple[Locality, Scoring]]) -> None:
        body = network.model
        self._embed, self._rotary, self._norm = body.embed_tokens.forward, body.rotary_emb.forward, body.norm.forward
        self._layers = [_Layer(*pair) for pair in zip(body.layers, given, strict=True)]
        self._head = network.lm_head.forward
        self._hooks = [hooks for each in network.modules() for hooks in (each._forward_hooks, each._forward_pre_hooks)]
        self._count, self._usable = 0, True

    @property
    def usable(self) -> bool:
        """Whether no module has a hook, which would not be called. Those by which the library hands out hidden states
        do nothing in a forward that is asked for none."""
        if (count := sum(map(len, self._hooks))) != self._count:
            of = {getattr(hook, "__module__", None) for hooks in self._hooks for hook in hooks.values()}
            self._count, self._usable = count, of <= {HANDS_OUT}
        return self._usable

    def __call__(self, ids: Tensor, positions: Tensor, wanted: Tensor, attending: Any) -> Tensor:
        """Logits `[1, wanted, vocab]` for packed ids and positions `[1, tokens]`, of which `wanted` are places."""
        hidden = self._embed(ids)
        cos, sin = (each.unsqueeze(1) for each in self._rotary(hidden, positions))
        for layer in self._layers:
            hidden = layer(hidden, cos, sin, attending)
        logits: Tensor = self._head(self._norm(hidden)[:, wanted])
        return logits


class _Layer:
    """One decoder layer, and what its attention asks for."""

    def __init__(self, layer: Any, given: tuple[Locality, Scoring]) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._index, self._dim, (self._locality, self._scoring) = attention.layer_idx, attention.head_dim, given
        self._before, self._between = layer.input_layernorm.forward, layer.post_attention_layernorm.forward
        self._queries: Apply
        self._queries, self._keys, self._values, self._out = (
            getattr(attention, name).forward for name in ("q_proj", "k_proj", "v_proj", "o_proj")
        )
        self._query_norm, self._key_norm = (_forward(attention, name) for name in ("q_norm", "k_norm"))
        self._gate, self._up, self._down = (
            getattr(mlp, name).forward for name in ("gate_proj", "up_proj", "down_proj")
        )
        self._activate: Apply = mlp.act_fn.forward

    def __call__(self, hidden: Tensor, cos: Tensor, sin: Tensor, attending: Any) -> Tensor:
        """`hidden` `[1, tokens, size]` after this layer; `cos` and `sin` are `[1, 1, tokens, dim]`."""
        given = self._before(hidden)
        queries = _turned(self._heads(self._queries(given), self._query_norm), cos, sin)
        keys = _turned(self._heads(self._keys(given), self._key_norm), cos, sin)
        values = self._heads(self._values(given), None)
        said: Tensor = attending.attend(self._index, queries, keys, values, self._locality, self._scoring)
        hidden = hidden + self._out(said.reshape(*hidden.shape[:2], -1))
        given = self._between(hidden)
        said = self._down(self._activate(self._gate(given)) * self._up(given))
        return hidden + said

    def _heads(self, product: Tensor, norm: Apply | None) -> Tensor:
        """`[1, heads, tokens, dim]` of a product `[1, tokens, heads * dim]`."""
        apart = product.view(1, product.shape[1], -1, self._dim)
        return (apart if norm is None else norm(apart)).transpose(1, 2)


def _forward(module: Any, name: str) -> Apply | None:
    part = getattr(module, name, None)
    return None if part is None else part.forward


def _turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys, turned to their places: Llama's operations, in Llama's order."""
    one, other = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-other, one), dim=-1) * sin


def direct_forward(network: Any, stock: Callable[..., Tensor], vocabulary: int) -> DirectForward | None:
    """The direct forward of a network on a CPU; None: there is none that gives the bits of the library's.

    Args:
        network: with its layers as they stay.
        stock: the library's forward, as `DirectForward.__call__`.
        vocabulary: ids are below this.
    """
    kind = type(network)
    if kind.__name__ not in FAMILIES or not kind.__module__.startswith("transformers.models."):
        return None
    seen = _Seen()
    try:
        expected = [stock(*trial, seen) for trial in _trials(vocabulary)]
        count = len(network.model.layers)
        direct = DirectForward(network, seen.given[:count])
        found = [direct(*trial, _Seen()) for trial in _trials(vocabulary)]
    except (AttributeError, RuntimeError, ValueError, TypeError):
        return None  # this version of the library builds it in another way
    if seen.given != seen.given[:count] * len(TRIED) or not direct.usable:
        return None
    return direct if all(torch.equal(*pair) for pair in zip_longest(expected, found)) else None


def _trials(vocabulary: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for tokens in TRIED:
        place = torch.arange(tokens)
        yield ((place + 1) * 7919 % vocabulary)[None], (place * 1009 + 5)[None], place[-2:]


class _Seen:
    """Answers the attention of a network by something of all three that it is given, and keeps what layers ask for."""

    def __init__(self) -> None:
        self.given: list[tuple[Locality, Scoring]] = []

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`; every token sees itself alone."""
        self.given.append((locality, scoring))
        groups = queries.shape[1] // keys.shape[1]
        weighed = (queries * keys.repeat_interleave(groups, 1)).sum(-1, keepdim=True).sigmoid()
        return (weighed * values.repeat_interleave(groups, 1)).transpose(1, 2).contiguous()
