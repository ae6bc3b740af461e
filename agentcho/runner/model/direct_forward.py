"""A forward of Llama-like networks without the overhead of their modules.

On a CPU a decode step of a small model spends more time in module calls, decorators and unused masks than in matrix
products. Here the parts of a network (norms, linear layers, activations, packed or quantized as they are) are called
directly. The same operations in the same order give the same bits. This is checked when a network is loaded; if one bit
differs, transformers' own forward is used, as it is for other architectures, beside adapters, with gradients, and while
any module has a hook. Where bits need not match those of transformers, the last layer computes what only logits need
for the wanted tokens only.

`torch.compile` over the whole network, with frozen weights and our attention as an operator of its own, was tried on
two cores with AVX-512. It made a step of the bundled model 1.11 times as fast with one row and 1.08 with eight, one of
SmolLM2-135M 1.18 and 1.11. Compiling took 60 to 77 s and needs a C++ compiler, and other bits come out. Layer by layer
it was slower than here. So it is not used.
Independent of attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from agentcho.runner.attention.base import Locality, Scoring

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Classes of transformers whose layers are Llama's: some have biases, norms of queries and keys, or windows."""
HANDS_OUT = "transformers.utils.output_capturing"
"""The module whose hooks return hidden states."""
TRIED = (1, 3)
"""The numbers of tokens by which it is compared with the library's forward."""
Apply = Callable[[Tensor], Any]


class DirectForward:
    """The forward of one network."""

    def __init__(self, network: Any, given: list[tuple[Locality, Scoring]]) -> None:
        body = network.model
        self._embed, self._rotary = body.embed_tokens.forward, body.rotary_emb.forward
        self._norm: Apply = body.norm.forward
        self._layers = [_Layer(*pair) for pair in zip(body.layers, given, strict=True)]
        self._head = network.lm_head.forward
        self._hooks = [hooks for each in network.modules() for hooks in (each._forward_hooks, each._forward_pre_hooks)]
        self._count, self._usable = 0, True

    @property
    def usable(self) -> bool:
        """Whether no module has a hook, which would not be called. The hooks by which the library returns hidden states
        are allowed: they do nothing in a forward that does not request these."""
        if (count := sum(map(len, self._hooks))) != self._count:
            of = {getattr(hook, "__module__", None) for hooks in self._hooks for hook in hooks.values()}
            self._count, self._usable = count, of <= {HANDS_OUT}
        return self._usable

    def __call__(self, ids: Tensor, positions: Tensor, wanted: Tensor, attending: Any, brief: bool = False) -> Tensor:
        """Logits `[1, wanted, vocab]` for packed ids and positions `[1, tokens]`; `wanted` are indices of tokens.
        `brief`: what only logits need is not computed for other tokens; last bits may then differ."""
        hidden = self._embed(ids)
        cos, sin = (each.unsqueeze(1) for each in self._rotary(hidden, positions))
        for layer in self._layers[:-1]:
            hidden = layer(hidden, cos, sin, attending)
        some = brief and len(wanted) < ids.shape[1]
        hidden = self._norm(self._layers[-1](hidden, cos, sin, attending, kept=wanted if some else None))
        logits: Tensor = self._head(hidden if some else hidden[:, wanted])
        return logits


class _Layer:
    """One decoder layer, and the arguments of its attention."""

    def __init__(self, layer: Any, given: tuple[Locality, Scoring]) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._index, self._dim = attention.layer_idx, attention.head_dim
        self._locality, self._scoring = given
        self._before: Apply = layer.input_layernorm.forward
        self._queries: Apply = attention.q_proj.forward
        self._keys: Apply = attention.k_proj.forward
        self._values: Apply = attention.v_proj.forward
        self._query_norm = _forward(attention, "q_norm")
        self._key_norm = _forward(attention, "k_norm")
        self._out: Apply = attention.o_proj.forward
        self._between: Apply = layer.post_attention_layernorm.forward
        self._gate: Apply = mlp.gate_proj.forward
        self._up: Apply = mlp.up_proj.forward
        self._down: Apply = mlp.down_proj.forward
        self._activate: Apply = mlp.act_fn.forward

    def __call__(self, hidden: Tensor, cos: Tensor, sin: Tensor, attending: Any, kept: Tensor | None = None) -> Tensor:
        """`hidden` `[1, tokens, size]` after this layer; `cos` and `sin` are `[1, 1, tokens, dim]`. `kept`: the indices
        of the tokens that matter later, in the order in which they are returned; None for all."""
        given = self._before(hidden)
        queries = _turned(self._heads(self._queries(given), self._query_norm), cos, sin)
        keys = _turned(self._heads(self._keys(given), self._key_norm), cos, sin)
        values = self._heads(self._values(given), None)
        said: Tensor = attending.attend(
            self._index, queries, keys, values, locality=self._locality, scoring=self._scoring
        )
        said = said.reshape(*hidden.shape[:2], -1)
        if kept is not None:
            hidden, said = hidden[:, kept], said[:, kept]
        hidden = hidden + self._out(said)
        given = self._between(hidden)
        gated: Tensor = self._activate(self._gate(given)) * self._up(given)
        grown: Tensor = hidden + self._down(gated)
        return grown

    def _heads(self, product: Tensor, norm: Apply | None) -> Tensor:
        """`[1, heads, tokens, dim]` of a product `[1, tokens, heads * dim]`."""
        apart = product.view(1, product.shape[1], -1, self._dim)
        return (apart if norm is None else norm(apart)).transpose(1, 2)


def _forward(module: Any, name: str) -> Apply | None:
    part = getattr(module, name, None)
    return None if part is None else part.forward


def _turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys, rotated to their positions: Llama's operations, in Llama's order."""
    one, other = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-other, one), dim=-1) * sin


def direct_forward(network: Any, stock: Callable[..., Tensor], vocabulary: int) -> DirectForward | None:
    """The direct forward of a network on a CPU, or None if there is none that gives the library's bits.

    Args:
        network: The network, with its final layers.
        stock: The library's forward, with the signature of `DirectForward.__call__`.
        vocabulary: Ids are below this.
    """
    kind = type(network)
    if kind.__name__ not in FAMILIES or not kind.__module__.startswith("transformers.models."):
        return None
    seen = _Asked()
    try:
        expected = [stock(*trial, seen) for trial in _trials(vocabulary)]
        count = len(network.model.layers)
        direct = DirectForward(network, seen.given[:count])
        found = [direct(*trial, _Asked()) for trial in _trials(vocabulary)]
    except (AttributeError, RuntimeError, ValueError, TypeError):
        return None  # this version of the library builds the network differently
    if seen.given != seen.given[:count] * len(TRIED) or not direct.usable:
        return None
    return direct if all(torch.equal(*pair) for pair in zip_longest(expected, found)) else None


def _trials(vocabulary: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for tokens in TRIED:
        place = torch.arange(tokens)
        yield ((place + 1) * 7919 % vocabulary)[None], (place * 1009 + 5)[None], place


class _Asked:
    """Serves the attention of a network with a result that depends on queries, keys and values, and records the layers'
    arguments."""

    def __init__(self) -> None:
        self.given: list[tuple[Locality, Scoring]] = []

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`; every token sees only itself."""
        self.given.append((locality, scoring))
        groups = queries.shape[1] // keys.shape[1]
        weighed = (queries * keys.repeat_interleave(groups, 1)).sum(-1, keepdim=True).sigmoid()
        return (weighed * values.repeat_interleave(groups, 1)).transpose(1, 2).contiguous()
