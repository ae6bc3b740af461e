"""The gate: proves on the loaded model that its keys can be reused, or refuses it and says why.

It measures layer by layer that a shift of all positions only rotates the keys, and by which rotation; that a packed
forward equals the forward of the unchanged model; and that neighbours in a batch change nothing. What a short probe
cannot show is decided by the model's config. Independent of messages and calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentcho.config import KV_DTYPE
from agentcho.engine.call_layout import ContextPiece, KVEntry, Segment
from agentcho.errors import ModelError, UnsupportedModel
from agentcho.runner.attention.base import Locality, Scoring, is_plain
from agentcho.runner.attention.dense import attend, causal
from agentcho.runner.batch import Batch, Layers
from agentcho.runner.kv.kv_pool import LayerShape, PagePool
from agentcho.runner.kv.rope import Rotation, candidates, infer
from agentcho.runner.model.device import fused_attention
from agentcho.runner.model.fused import use_fused
from agentcho.runner.model.model import Model, ModelSource
from agentcho.runner.quant.prepack import use_packed

PROBE = 16
SHIFTS = (0, 1, 7, 61)
GROWN = 0.25
"""The tolerance for random weights in 16 bits, which let rounding errors grow from layer to layer. A wrong rotation
gives a larger error, and the output of random weights has no meaning anyway."""
ROUNDED = 8e-2
"""The largest change that rounding keys and values to 8 bits may cause, as a share of the largest number. A rounded
number is off by up to a 254th of the largest of its vector, and a number of bfloat16 by up to a 256th of itself; so the
tolerance is that of bfloat16."""


class LayerProof(NamedTuple):
    """The measurements of one layer. Errors are relative to the largest value. `plain`: its queries see all keys, and
    weigh them by a plain softmax. `rounded_error`: the change from rounding keys and values, where they are rounded."""

    layer: int
    rotation: Rotation
    locality: Locality
    shape: LayerShape
    turn_error: float
    packed_error: float
    neighbour_error: float
    plain: bool
    rounded_error: float | None = None


def plain_attention(queries: Tensor, keys: Tensor, values: Tensor, scoring: Scoring) -> Tensor:
    """Causal attention of one sequence to itself, without windows: returns `[1, tokens, heads, dim]`."""
    at = torch.arange(keys.shape[2], device=keys.device)
    mask = causal(at, at, len(at), Locality())
    return attend(queries, keys, values, mask, scoring).transpose(1, 2).contiguous()


class _Recorder:
    """Serves the attention of one plain sequence without windows, and records the keys of each layer."""

    def __init__(self) -> None:
        self.keys: dict[int, Tensor] = {}
        self.shapes: dict[int, LayerShape] = {}
        self.localities: dict[int, Locality] = {}
        self.plain: dict[int, bool] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        self.keys[layer], self.localities[layer] = keys[0], locality
        self.plain[layer] = is_plain(locality, scoring) and keys.shape[3] == values.shape[3]
        self.shapes[layer] = LayerShape(keys.shape[1], keys.shape[3], values.shape[3], keys.device)
        return plain_attention(queries, keys, values, scoring)


def check_config(source: ModelSource, context: int | None) -> None:
    """Refuse what a short probe cannot show, before any weights are read. Raises `UnsupportedModel`."""
    for cause, remedy in _config_causes(source.config, context):
        raise UnsupportedModel(source.name, cause, remedy)


OTHER = "Use a model with rotary positions on attention layers, such as Llama, Qwen, Mistral, Gemma, OLMo or Granite."
LEARNED = {"gpt2", "opt", "gpt_bigcode", "gpt_neo", "xglm", "biogpt", "openai-gpt", "ctrl"}
WINDOW_IN_MASK = {"phimoe", "qwen2_moe"}
"""Kinds whose sliding window is only in the mask that the library makes, and not handed to the attention function."""
RECURRENT = (
    "ssm_state_size",
    "state_size",
    "mamba_d_state",
    "mamba_d_ssm",
    "linear_num_key_heads",
    "lru_width",
    "conv_L_cache",
    "attn_layer_indices",
    "wkv_version",
    "attention_hidden_size",
)


def _config_causes(config: Any, context: int | None) -> Iterator[tuple[str, str]]:
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False) or kind.startswith("t5"):
        yield "it is an encoder-decoder (T5-like relative positions)", OTHER
    if kind in {"bloom", "mpt"} or getattr(config, "alibi", False):
        yield "ALiBi adds positions to the scores, not to the keys", OTHER
    if kind in LEARNED:
        yield "learned positions are added to the tokens, so a message cannot move to another position", OTHER
    if kind.startswith("hunyuan"):
        yield "a learned norm after the rotary embedding, so turned keys are not the keys at the new position", OTHER
    layers = set(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or [])
    other = sorted(layers - {"full_attention", "sliding_attention", "chunked_attention", "attention"})
    marks = [] if layers else [mark for mark in RECURRENT if hasattr(config, mark)]  # some have marks of unused layers
    if other or marks:
        named = ", ".join(other or marks)
        yield f"recurrent layers ({named}) keep a running state, not keys of single tokens to choose from", OTHER
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if kind in WINDOW_IN_MASK and window and (context is None or context > window):
        yield (
            f"its window of {window} tokens is only in a mask, which a packed forward does not use",
            f"Give --context {window} (in Python, context={window}) or less.",
        )
    yield from _scaling_causes(config, context)


def _scaling_causes(config: Any, context: int | None) -> Iterator[tuple[str, str]]:
    """Rotary scalings whose frequencies depend on the largest position of a batch."""
    limit: int = getattr(config, "max_position_embeddings", 0) or 0
    for rope in _ropes(config):
        kind = rope.get("rope_type", "default")
        if kind not in {"dynamic", "longrope"}:
            continue
        threshold = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        threshold = threshold or limit
        if context is None or context > threshold:
            yield (
                f"{kind} scaling changes the frequencies of all positions once a batch passes position {threshold}",
                f"Give --context {threshold} (in Python, context={threshold}) or less, so that they stay fixed.",
            )


def _ropes(config: Any) -> list[dict[str, Any]]:
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    return nested or [rope]


class ReuseCheck:
    """Runs the proofs on one loaded model, within its first `context` positions. Where keys and values are rounded,
    everything is first proved on unrounded ones, as strictly as otherwise; then that rounding changes little enough."""

    def __init__(self, model: Model, context: int) -> None:
        self._model, self._context = model, context
        self._known: dict[int, list[Rotation]] = {}
        self._tolerance = 1e-3 if model.dtype == torch.float32 else GROWN if model.source.random else 8e-2
        generator = torch.Generator().manual_seed(0)
        usable = torch.arange(min(model.vocabulary, len(model.tokenizer)))
        picks = torch.randint(len(usable), (3 * PROBE,), generator=generator)
        ids = [int(i) for i in usable[picks]]
        self._ids, self._neighbour = ids[: 2 * PROBE], ids[2 * PROBE :]

    def prove(self) -> list[LayerProof]:
        """One proof per layer. Raises `UnsupportedModel` at the first layer that fails, and `ModelError` if the keys
        and values cannot be rounded."""
        try:
            return self._prove()
        except ModelError:
            raise
        except torch.OutOfMemoryError as error:
            name, device = self._model.source.name, self._model.device
            raise ModelError(
                f"{device} has no memory left to run {name} beside its weights; give a smaller model, a dtype of fewer "
                "bytes, or another device"
            ) from error
        except Exception as error:  # third-party code: after any error, the model cannot be used
            what = f"its forward cannot run over packed tokens ({type(error).__name__}: {error})"
            raise self._refusal(what) from error

    def _prove(self) -> list[LayerProof]:
        records = {shift: self._record(shift) for shift in SHIFTS if shift + PROBE <= self._context}
        base = records[0]
        missing = [layer for layer in range(self._model.layers) if layer not in base.keys]
        if missing:
            raise self._refusal(
                f"layers {missing} produced no attention keys (recurrent state, or an attention of their own)"
            )
        turns = [self._rotation(layer, records) for layer in range(self._model.layers)]
        rotations = [rotation for rotation, _ in turns]
        shapes = [base.shapes[layer] for layer in range(self._model.layers)]
        packed, neighbours = self._packed_errors(shapes, rotations)
        rounded = [None] * len(shapes) if self._model.kv_quant is None else self._rounded_errors(shapes, rotations)
        return [
            LayerProof(i, rotations[i], base.localities[i], shapes[i], turned, near, beside, base.plain[i], rounded[i])
            for i, ((_, turned), near, beside) in enumerate(zip(turns, packed, neighbours, strict=True))
        ]

    def _record(self, shift: int) -> _Recorder:
        recorder = _Recorder()
        ids = torch.tensor([self._ids[:PROBE]], device=self._model.device)
        at = torch.arange(shift, shift + PROBE, device=self._model.device).unsqueeze(0)
        self._model.forward(ids, at, torch.tensor([0], device=self._model.device), recorder)
        return recorder

    def _rotation(self, layer: int, records: dict[int, _Recorder]) -> tuple[Rotation, float]:
        keys = {shift: record.keys[layer] for shift, record in records.items()}
        rotation, error = infer(keys, self._forms(keys[0].shape[-1]), self._tolerance)
        if rotation is None:
            raise self._refusal(
                f"keys of layer {layer} at shifted positions are not rotations of the unshifted ones (off by "
                f"{error:.1e}): learned positions, or a learned norm after the rotary embedding"
            )
        return rotation, error

    def _forms(self, dim: int) -> list[Rotation]:
        """The known forms of rotation for keys of `dim` dimensions. Layers with the same rotation get the same
        object."""
        if dim not in self._known:
            self._known[dim] = list(candidates(self._frequencies(), dim))
        return self._known[dim]

    def _frequencies(self) -> list[Tensor]:
        """Every distinct table of frequencies in the model, in float64 on the CPU."""
        found: list[Tensor] = []
        for name, buffer in self._model.network.named_buffers():
            if name.endswith("inv_freq") and not name.endswith("original_inv_freq"):
                table = buffer.detach().cpu().double()
                if not any(torch.equal(table, known) for known in found):
                    found.append(table)
        return found

    def _packed_errors(self, shapes: list[LayerShape], rotations: list[Rotation]) -> tuple[list[float], list[float]]:
        """The errors of each layer against the stock forward, for a history that was packed, moved and stored: many
        tokens at once and then one alone, for which other kernels may be used; and the change that a neighbour in the
        batch causes."""
        stock = self._stock()
        alone = self._packed(shapes, rotations, neighbour=False)
        crowded = self._packed(shapes, rotations, neighbour=True)
        found = [alone]
        for brief in (False, True):
            single = self._single(shapes, rotations, brief)
            found.append([torch.cat((many[:-1], one)) for many, one in zip(stock, single, strict=True)])
        packed = [max(_error(each, known) for each in layer) for *layer, known in zip(*found, stock, strict=True)]
        neighbours = [_error(a, b) for a, b in zip(crowded, alone, strict=True)]
        self._demand(packed, "a packed forward differs from the stock one")
        self._demand(neighbours, "rows change with their neighbours in a batch (expert capacity, or scaling)")
        return packed, neighbours

    def _rounded_errors(self, shapes: list[LayerShape], rotations: list[Rotation]) -> list[float]:
        """The error of each layer for the same history with rounded keys and values, against the stock forward. A
        vector is rounded independently of its neighbours, so these are not tried again."""
        rounded = self._packed(shapes, rotations, neighbour=False, rounding=True)
        found = [_error(a, b) for a, b in zip(rounded, self._stock(), strict=True)]
        most = max(ROUNDED, self._tolerance)
        for layer, error in enumerate(found):
            if not error <= most:
                what = f"keys and values in {self._model.kv_quant} change what {self._model.source.name} computes"
                raise ModelError(
                    f"{what}, first at layer {layer} by {error:.1e} of the largest number; the limit is {most:.0e}. "
                    f"Leave out {KV_DTYPE}"
                )
        return found

    def _demand(self, errors: list[float], what: str) -> None:
        for layer, error in enumerate(errors):
            if not error <= self._tolerance:
                raise self._refusal(f"{what}, first at layer {layer} by {error:.1e}")

    @torch.inference_mode()
    def _stock(self) -> list[Tensor]:
        ids = torch.tensor([self._ids], device=self._model.device)
        with self._model.stock() as network:
            out = network(input_ids=ids, use_cache=False, output_hidden_states=True)
        return [hidden[0, PROBE:].float() for hidden in out.hidden_states[1:]]

    @torch.inference_mode()
    def _packed(
        self, shapes: list[LayerShape], rotations: list[Rotation], neighbour: bool, rounding: bool = False
    ) -> list[Tensor]:
        """Hidden states of the probe's second half over its first half, which was stored at another position."""
        store = self._store(shapes, rounding)
        layers = Layers(store, rotations, self._model.device)
        first = self._kept(layers, self._ids[:PROBE], 5, [])
        second = Segment(self._ids[PROBE:], PROBE, [ContextPiece(0, first, 0)])
        beside = [Segment(self._neighbour, 3)] if neighbour else []
        batch = Batch([*beside, second], layers)
        return [hidden[0, second.span()].float() for hidden in self._run(batch)]

    @torch.inference_mode()
    def _single(self, shapes: list[LayerShape], rotations: list[Rotation], brief: bool) -> list[Tensor]:
        """Hidden states of the probe's last token, fed alone over all others, as a decode step of one row feeds it.
        `brief`: see `use_packed`."""
        layers = Layers(self._store(shapes), rotations, self._model.device)
        first = self._kept(layers, self._ids[:PROBE], 5, [])
        second = self._kept(layers, self._ids[PROBE:-1], PROBE, [ContextPiece(0, first, 0)])
        last = Segment(self._ids[-1:], 2 * PROBE - 1, [ContextPiece(0, first, 0), ContextPiece(1, second, PROBE)])
        return [hidden[0, last.span()].float() for hidden in self._run(Batch([last], layers), brief)]

    def _store(self, shapes: list[LayerShape], rounding: bool = False) -> PagePool:
        return PagePool(shapes, 4 * PROBE, self._model.device, self._model.dtype, rounding=rounding)

    def _kept(self, layers: Layers, ids: list[int], position: int, context: list[ContextPiece]) -> KVEntry:
        """An encoding of these ids at that position, in the store."""
        entry = KVEntry(b"", position, len(ids), pages=layers.pages.allocate(len(ids)))
        entry.segment = Segment(ids, position, context, entry=entry)
        batch = Batch([entry.segment], layers)
        self._run(batch)
        batch.commit()
        return entry

    def _run(self, batch: Batch, brief: bool = False) -> Sequence[Tensor]:
        with use_packed(brief), use_fused(), fused_attention(self._model.devices):
            out = self._model.network(
                input_ids=batch.ids,
                position_ids=batch.positions,
                use_cache=False,
                output_hidden_states=True,
                attending=batch,
                chunks=self._model.chunks,
            )
        hidden: Sequence[Tensor] = out.hidden_states[1:]
        return hidden

    def _refusal(self, cause: str) -> UnsupportedModel:
        return UnsupportedModel(self._model.source.name, cause, OTHER)


def _error(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))
