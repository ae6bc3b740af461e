"""Loads an unchanged Hugging Face model and runs it over a batch. This is the only module that creates networks.

The model's own attention function calls back into the current batch, so no class is changed, and the library makes no
cache of its own. Independent of what a batch contains.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from torch import Tensor, nn

from agentcho.config import KV_DTYPE, served
from agentcho.engine.lora_adapter import Adapter
from agentcho.errors import MODELS, ModelBroken, ModelError, ModelNotFound, UnsupportedModel, nearest
from agentcho.protocol.ownership import Owner
from agentcho.protocol.progress import ProgressCallback, counted, no_progress
from agentcho.runner.attention.base import Locality, Scoring
from agentcho.runner.model import quantized_checkpoint
from agentcho.runner.model.checkpoint import Unreadable, check_files, download_progress, folder_of, refusal
from agentcho.runner.model.device import (
    DeviceMap,
    DevicePlacement,
    check_device_map,
    check_room,
    dtype_of,
    fused_attention,
    warn_emulated,
)
from agentcho.runner.model.digests import tokenizer_digest, weights_digest
from agentcho.runner.model.direct_forward import DirectForward, direct_forward
from agentcho.runner.model.fused import FusedPart, fuse, use_fused
from agentcho.runner.model.gguf_file import (
    WHOLE,
    GgufFile,
    apply_linear_scaling,
    apply_query_scale,
    apply_rope_factors,
    check_taken,
    is_gguf,
    named_files,
    read,
    single_file_options,
)
from agentcho.runner.model.hf_progress import reported_dequantization, silenced_progress, silenced_report
from agentcho.runner.model.hf_progress import reported_weights as weights_heard
from agentcho.runner.model.known_models import KNOWN, place_of
from agentcho.runner.model.lean_transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GgufConfig,
    lean_imports,
    no_init_weights,
    transformers,
)
from agentcho.runner.model.lora import TRAINING, Adapters
from agentcho.runner.model.shapes import PREFIX, SHAPES
from agentcho.runner.model.spread_layers import move_once
from agentcho.runner.model.threads import ComputeThreads
from agentcho.runner.quant.prepack import use_packed
from agentcho.runner.quant.quantized_linear import quantize_linears

ATTENTION = "agentcho_packed"
UNDERSTUDY = "understudy"
FLOAT32 = torch.float32.itemsize
LONGEST, SHORT = 255, 60
"""The most characters in a model's name, and how many of a longer one are shown."""
TEXT_PART = {
    r"^model\.language_model\.": "model.",
    r"^language_model\.model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}
"""Weight names of a text part within the whole model, as versions of the library wrote them, and alone."""
OPTIONAL = {"stored": "stored", "adapter": "adapter", "bits": "bits", KV_DTYPE: "kv_quant"}
"""Optional fields of a fingerprint, and the attributes that provide them."""


class AttentionPort(Protocol):
    """Serves the attention calls of a forward; see `Batch.attend`."""

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor: ...


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from: the name that the user gave, the folder or hub id, and its config. `random`: its
    weights are random, and only its tokenizer comes from there. `renamed`: it is the text part of a larger model, whose
    weights have longer names. `gguf`: all of it is in this file of the folder."""

    name: str
    path: str
    config: Any
    random: bool = False
    renamed: bool = False
    gguf: GgufFile | None = None

    @property
    def embedded(self) -> bool:
        """Whether its weights are those that ship in the package."""
        return not self.random and self.path == str(_understudy())

    @contextmanager
    def place(self) -> Iterator[dict[str, str]]:
        """The library's options for the location."""
        if self.gguf is None:
            yield {"pretrained_model_name_or_path": self.path}
            return
        with single_file_options(self.gguf) as place:
            yield place


def find(model: str | Path) -> ModelSource:
    """Read the config of a model, and no weights. Raises `ModelNotFound`, which says where it was looked for."""
    name = os.path.expanduser(model)
    if name.startswith(PREFIX):
        return _shape(name)
    path = str(_understudy()) if name == UNDERSTUDY else place_of(name)
    if served(name):
        raise ModelNotFound(
            name, "a model behind an API cannot be loaded here; use it with RunConfig or `agentcho run`"
        )
    if len(path) > LONGEST:
        raise ModelNotFound(f"{name[:SHORT]}…", "the name is too long for a folder")
    if is_gguf(path):
        return _of_gguf(name, read(name, Path(path)))
    if (path.startswith(".") or (os.sep in path and path.count("/") != 1)) and not Path(path).is_dir():
        raise ModelNotFound(name, "the folder does not exist")
    if Path(path).is_dir() and not Path(path, "config.json").is_file():
        raise ModelNotFound(name, f"the folder has no config.json{named_files(Path(path))}")
    misspelt = "/" not in path and nearest(path, MODELS)
    if misspelt and folder_of(path) is None:  # before waiting for a hub that may be away
        raise ModelNotFound(name, f"it is not on this machine; run `hf download {path}` if you mean the hub's")
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        layers = getattr(_text(config), "num_hidden_layers", 1)
    except Unreadable as error:
        known = KNOWN.get(name)
        if known is not None and path == known.hub:
            raise ModelNotFound(
                name, f"it is not on this machine and cannot be downloaded from the hub; {known.advice}"
            ) from error
        raise refusal(name, path, error) from error
    if layers < 1:
        raise ModelBroken(name, Path(path, "config.json"), f"num_hidden_layers is {layers}")
    return ModelSource(name, path, _text(config), renamed=_text(config) is not config)


def _of_gguf(name: str, file: GgufFile) -> ModelSource:
    """A source with the config that the library makes of a file's metadata."""
    if not file.keys.get("tokenizer.chat_template"):  # checked before the vocabulary is read
        raise UnsupportedModel.unframed(name, "its tokenizer has no chat template")
    try:
        with single_file_options(file) as place:
            config = AutoConfig.from_pretrained(**place, trust_remote_code=False)
    except Unreadable as error:
        raise ModelBroken(name, file.path, _first_line(error), WHOLE) from error
    apply_rope_factors(file, config)
    apply_query_scale(file, config)
    apply_linear_scaling(file, config)
    return ModelSource(name, str(file.path.parent), config, gguf=file)


def _text(config: Any) -> Any:
    """The part of a multimodal model that reads and writes text, if it is a model of its own; else the whole model."""
    part: Any = getattr(config, "text_config", None)
    if type(part) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return config
    part.tie_word_embeddings = config.tie_word_embeddings  # the whole model's config says which weights are tied
    if whole := getattr(config, "quantization_config", None):
        part.quantization_config = whole
    return part


def read_tokenizer(source: ModelSource) -> Any:
    """Its Hugging Face tokenizer, with a chat template, and no weights."""
    try:
        with source.place() as place:
            tokenizer = AutoTokenizer.from_pretrained(**place, trust_remote_code=False)
    except Exception as error:  # the library raises plain `Exception` too
        why = f"no tokenizer that can be read ({_first_line(error)})"
        raise ModelBroken(source.name, Path(source.path), why) from error
    if not getattr(tokenizer, "chat_template", None):
        raise UnsupportedModel.unframed(source.name, "its tokenizer has no chat template")
    return tokenizer


def end_tokens(source: ModelSource) -> frozenset[int]:
    """The ids that end a message, according to the generation config, or if there is none to the config, before weights
    are read. `Model.end_tokens` is authoritative."""
    if source.gguf is None:
        with suppress(*Unreadable):
            return _ids(GenerationConfig.from_pretrained(source.path).eos_token_id)
    return _ids(getattr(source.config, "eos_token_id", None))


def _ids(eos: Any) -> frozenset[int]:
    return frozenset() if eos is None else frozenset([eos] if isinstance(eos, int) else eos)


def is_embedded_tokenizer(source: ModelSource) -> bool:
    """Whether it has the tokenizer of the bundled model."""
    return source.path == str(_understudy())


def _shape(name: str) -> ModelSource:
    shape = SHAPES.get(name.removeprefix(PREFIX))
    if shape is None:
        raise ModelNotFound(name, f"the known shapes are {', '.join(SHAPES)}")
    return ModelSource(name, str(_understudy()), AutoConfig.for_model(shape.model_type, **shape.sizes), random=True)


def _understudy() -> Path:
    from agentcho.runner.understudy import weights_path

    return weights_path()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class Model:
    """An unchanged causal language model and its tokenizer, in evaluation mode. `chunks`: the attention chunk of each
    layer, if only the config has it (llama4). `packed`: the most tokens in one forward. `prepacked`: forwards use
    weights in the order of the processor's kernels. `fused`: parts that one GPU kernel each computes, and why others
    are not. `direct`: a forward without the overhead of modules, or None if the library's own is used. `sizes`: the
    proved sizes of forwards in which rows do not depend on each other, by adapter and number of threads."""

    def __init__(self, source: ModelSource, network: nn.Module, tokenizer: Any) -> None:
        self.source, self.network, self.tokenizer = source, network, tokenizer
        self.adapters = Adapters(network, TEXT_PART if source.renamed else None)
        self.owner, self.threads = Owner(), ComputeThreads()
        self.adapter: str | None = None
        self.merged = self.prepacked = False
        self.fused: tuple[FusedPart, ...] = ()
        self.direct: DirectForward | None = None
        self._weights: str | None = None
        self.sizes: dict[tuple[str | None, int], tuple[int, ...]] = {}
        self.bits: str | None = None
        self.kv_quant: str | None = None
        self.config: Any = source.config
        first = next(network.parameters())
        self.dtype, self.device = first.dtype, first.device
        self.devices = tuple(dict.fromkeys(weight.device for weight in network.parameters()))
        self._cuda = any(device.type == "cuda" for device in self.devices)
        self._hooked = hasattr(network, "hf_device_map")
        if self._hooked and len(self.devices) > 1:
            move_once(network, vars(network)["hf_device_map"])
        self.layers: int = self.config.num_hidden_layers
        self.context: int = context_of(self.config)
        self.vocabulary: int = self.config.vocab_size
        self.chunks = _chunks(self.config)
        self.packed = min(4096, _scale_step(self.config))

    @classmethod
    def load(
        cls, source: ModelSource, place: DevicePlacement, tell: ProgressCallback = no_progress, tokenizer: Any = None
    ) -> Model:
        """Load weights (safetensors or GGUF, no remote code) straight to their device. See `Engine.load` for the device
        and the number formats. `tokenizer`: the model's own, if it was read already."""
        where = place.where()
        if source.random and place.map is not None:
            raise ModelError(f"{source.name} is created on a single device; give a device instead of a device map")
        AttentionInterface.register(ATTENTION, _answer)
        try:
            elements = _count(source)
            kind = dtype_of(place.dtype, where, source.random, FLOAT32 * elements)
            tokenizer = read_tokenizer(source) if tokenizer is None else tokenizer
            if source.gguf is not None:
                check_taken(source.name, source.gguf, source.config, elements)
                kind = torch.bfloat16 if kind == "auto" else kind
            elif not source.random and (folder := Path(source.path)).is_dir():
                check_files(source.name, folder)
            if place.map is None and not quantized_checkpoint.stays_quantised(source.config):
                each = _stored(source.config) if kind == "auto" else kind
                check_room(source.name, elements * each.itemsize, where)
            if source.random:
                network = _drawn(source, kind, where)
            elif source.embedded and place.map is None and where.type == "cpu":
                network = _embedded(source, kind, tell)
            else:
                network = _read(source, kind, place.map or where, tell)
        except ModelError:
            raise
        except Unreadable as error:
            raise _refusal(source, error) from error
        model = cls(source, network.eval(), tokenizer)
        warn_emulated(model.dtype, model.device)
        model._weights = None if source.gguf is None else source.gguf.digest()
        try:
            if place.bits is not None:
                model._lighten(place.bits, tell)
            if model._cuda:
                model.fused = fuse(network)
        except torch.OutOfMemoryError as error:
            raise _refusal(source, error) from error
        return model

    def _lighten(self, bits: str, tell: ProgressCallback) -> None:
        """Quantize the weights. Their digest stays that of the original ones, for which adapters are made."""
        self._weights = self.weights
        quantize_linears(self.network, bits, self.source.name, tell)
        self.bits, self.prepacked = bits, True

    def adapted(self, adapter: Adapter | None, merge: bool = False) -> Model:
        """The same network through an adapter, or (None) the base only. Both can be used in turn. With `merge` the
        adapter is merged into the weights, for this model and every other on the network. Raises `AdapterError`."""
        base = {"model": self.source.name, "weights": self.weights}  # computed before the adapter is on the network
        other = copy.copy(self)
        other.adapter = None if adapter is None else adapter.digest
        if adapter is not None:
            adapter.check_base(base)
            self.adapters.load(adapter)
            if merge:
                self.adapters.merge(adapter.digest)
                other.merged = True
        return other

    def trained(self, config: Mapping[str, Any]) -> Model:
        """The same network through a new adapter to be trained, made from the fields of a peft configuration. Raises
        `ConfigError`."""
        self._weights = self.weights
        other = copy.copy(self)
        self.adapters.begin(config)
        other.adapter = TRAINING
        return other

    @property
    def origin(self) -> str:
        """A name that differs between two models on one machine that compute different keys for the same words."""
        file = None if self.source.gguf is None else self.weights
        numbers = " ".join(filter(None, (str(self.dtype), file, self.bits, self.kv_quant and f"kv {self.kv_quant}")))
        return f"{self.source.name} {numbers} {self.adapter or ''} {'merged' if self.merged else ''}\0"

    @property
    def weights(self) -> str:
        """A digest of the base's weights, computed once; for a GGUF file, that of the file."""
        if self._weights is None:
            self._weights = weights_digest(self.network)
        return self._weights

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, positions: Tensor, wanted: Tensor, attending: AttentionPort, brief: bool = False
    ) -> Tensor:
        """Logits `[wanted, vocab]` in float32 for packed ids and positions `[1, tokens]`. `brief`: last bits may
        differ, see `DirectForward` and `use_packed`."""
        direct = self.direct
        if direct is not None and direct.usable and not self.adapters.loaded:
            with use_packed(brief):
                return direct(ids, positions, wanted, attending, brief=brief)[0].float()
        if not self.prepacked and not self.fused:
            return self.differentiable(ids, positions, wanted, attending)
        with use_packed(brief), use_fused():
            return self.differentiable(ids, positions, wanted, attending)

    def shorten(self) -> None:
        """Use the direct forward for forwards without gradients, if it gives the same bits. Only on a CPU, and once
        layers are final."""
        if len(self.devices) == 1 and self.device.type == "cpu" and not self._hooked and not self.adapters.loaded:
            with torch.inference_mode(), use_packed():
                self.direct = direct_forward(self.network, self._stock_logits, self.vocabulary)

    def differentiable(self, ids: Tensor, positions: Tensor, wanted: Tensor, attending: AttentionPort) -> Tensor:
        """See `forward`; keeps gradients."""
        if not self.merged and self.adapters.used != self.adapter:
            self.adapters.use(self.adapter)
        keep = _kept(wanted, ids.shape[1]) if self._hooked else wanted
        with fused_attention(self.devices) if self._cuda else nullcontext():
            return self._stock_logits(ids, positions, keep, attending)[0].float()

    def _stock_logits(self, ids: Tensor, positions: Tensor, keep: Any, attending: AttentionPort) -> Tensor:
        """Logits `[1, wanted, vocab]` by the library's own forward."""
        logits: Tensor = self.network(
            input_ids=ids,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=keep,
            attending=attending,
            chunks=self.chunks,
        ).logits
        return logits

    @contextmanager
    def stock(self) -> Iterator[nn.Module]:
        """The same network with the library's own eager attention, for comparison."""
        self.network.set_attn_implementation("eager")  # type: ignore[operator]
        try:
            yield self.network
        finally:
            self.network.set_attn_implementation(ATTENTION)  # type: ignore[operator]

    def end_tokens(self) -> frozenset[int]:
        """The ids that end a message according to the model's generation config."""
        return _ids(getattr(getattr(self.network, "generation_config", None), "eos_token_id", None))

    @property
    def stored(self) -> str | None:
        """The stored format of the weights and its conversion, in words; None for unquantized safetensors."""
        if self.source.gguf is None:
            return None if self.source.random else quantized_checkpoint.stored(self.source.config, _short(self.dtype))
        return f"GGUF, dequantised to {_short(self.dtype)} (was {self.source.gguf.numbers})"

    def fingerprint(self) -> dict[str, str]:
        """Names, versions and a digest of all weights, for run records; for a GGUF file, the digest of the file."""
        return {
            "model": self.source.name,
            "model_type": self.config.model_type,
            "weights": self.weights,
            "tokenizer": tokenizer_digest(self.tokenizer),
            "dtype": _short(self.dtype),
            "device": self.device.type,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        } | {key: value for key, name in OPTIONAL.items() if (value := getattr(self, name)) is not None}


def _kept(wanted: Tensor, tokens: int) -> int | slice | list[int]:
    """The tokens for which logits are computed, in a form that needs no tensor on the device of the ids: 0 or a slice
    if that can be decided without waiting for the device."""
    if len(wanted) in (0, tokens):
        return slice(0, 0) if tokens and not len(wanted) else 0
    found: list[int] = wanted.tolist()
    return found


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _refusal(source: ModelSource, error: Exception) -> ModelError:
    name = source.name
    if isinstance(error, torch.OutOfMemoryError):
        return ModelError(f"{name} does not fit into the memory of its device; give a smaller model, or another device")
    if ATTENTION in str(error):
        cause = "its class has an attention of its own that cannot be answered from outside"
        return UnsupportedModel(name, cause, "Use a model whose class takes any attention implementation.")
    if source.gguf is not None:
        return ModelBroken(name, source.gguf.path, _first_line(error), WHOLE)
    return refusal(name, source.path, error)


def _loader() -> Any:
    """The library's loading class, untyped: its annotations lack the option for a loading report."""
    return AutoModelForCausalLM


def _read(
    source: ModelSource, dtype: torch.dtype, where: torch.device | DeviceMap, tell: ProgressCallback
) -> nn.Module:
    """Load weights from files straight to their devices without a copy in host memory. No remote code."""
    if isinstance(where, torch.device):
        placed: DeviceMap | None = None if where.type == "cpu" else {"": where}
    else:
        placed = where if isinstance(where, str) else dict(where)
    of_gguf = nullcontext() if source.gguf is None else reported_dequantization(tell)
    MODEL_FOR_CAUSAL_LM_MAPPING.get(type(source.config), None)  # imports its class and all that the class needs
    lean = lean_imports() if quantized_checkpoint.quantisation(source.config) is None else nullcontext()
    listed = silenced_report() if source.renamed else nullcontext()
    with silenced_progress(), listed, weights_heard(tell), of_gguf, source.place() as place, lean:
        network, report = _loader().from_pretrained(
            **place,
            dtype=dtype,
            attn_implementation=ATTENTION,
            use_safetensors=source.gguf is None,
            trust_remote_code=False,
            output_loading_info=True,
            device_map=placed,
            **_part(source),
            **download_progress(tell),
        )
    _check_whole(source, report)
    check_device_map(source.name, getattr(network, "hf_device_map", {}))
    return network  # type: ignore[no-any-return]


def _embedded(source: ModelSource, dtype: torch.dtype, tell: ProgressCallback) -> nn.Module:
    """The model of the package. Its weights have the names that its class gives them, so they are copied in place
    without the library's conversions, whose imports take longer than a game."""
    with no_init_weights():
        network: Any = _made(source, dtype, torch.device("cpu"))
    network.tie_weights()
    network.generation_config = GenerationConfig.from_pretrained(source.path)
    places: dict[str, Tensor] = dict(network.named_parameters())
    with safe_open(_embedded_file(source), "pt") as file, torch.no_grad():
        stored = set(file.keys())
        _check_whole(source, {"missing_keys": places.keys() - stored, "mismatched_keys": stored - places.keys()})
        read = counted(tell, "weights read", len(places))
        for number, (name, weight) in enumerate(places.items(), 1):
            weight.copy_(file.get_tensor(name))
            read(number)
    return network  # type: ignore[no-any-return]


def _embedded_file(source: ModelSource) -> Path:
    return Path(source.path, "model.safetensors")


def _part(source: ModelSource) -> dict[str, Any]:
    """The options to find the weights of a text part among those of the whole model, or to dequantize those of a GGUF
    file: for blocks that stay quantized the library would fetch code from the hub."""
    if source.gguf is not None:
        return {"config": source.config, "quantization_config": GgufConfig(dequantize=True)}
    if source.renamed:
        return {"config": source.config, "key_mapping": TEXT_PART}
    return quantized_checkpoint.dequantised(source.config)


def _drawn(source: ModelSource, dtype: torch.dtype, where: torch.device) -> nn.Module:
    """Random weights made on the device, the same every time on devices of one kind."""
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(0)
        return _made(source, dtype, where)


def _count(source: ModelSource) -> int:
    """The number of elements in all weights, shared ones counted once. Nothing is loaded."""
    if source.embedded:
        with safe_open(_embedded_file(source), "pt") as file:
            shapes: list[list[int]] = [file.get_slice(name).get_shape() for name in list(file.keys())]
        return sum(map(math.prod, shapes))
    return sum(weight.numel() for weight in _outlined(source, torch.float32).parameters())


def _outlined(source: ModelSource, dtype: torch.dtype) -> nn.Module:
    """The network without data."""
    MODEL_FOR_CAUSAL_LM_MAPPING.get(type(source.config), None)  # imports its class and all that the class needs
    with lean_imports():  # the library writes the dtype into the config
        return _made(replace(source, config=copy.deepcopy(source.config)), dtype, torch.device("meta"))


def _stored(config: Any) -> torch.dtype:
    """The dtype of a checkpoint as its config says, or one of two bytes if it does not."""
    said = getattr(config, "dtype", None)
    return said if isinstance(said, torch.dtype) else torch.bfloat16


def _made(source: ModelSource, dtype: torch.dtype, where: torch.device) -> nn.Module:
    """A network with the initial weights of its class."""
    with where:
        network: nn.Module = _loader().from_config(source.config, dtype=dtype, attn_implementation=ATTENTION)
    return network


def _check_whole(source: ModelSource, report: Any) -> None:
    """Refuse a checkpoint in which weights are missing, which the library would fill with random numbers."""
    lacking = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if lacking:
        what = f"its files lack {len(lacking)} weights that its config asks for ({lacking[0]} …)"
        raise ModelBroken(source.name, Path(source.path), what)


def _answer(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The registered attention function: hands the packed tensors of a layer to the current batch."""
    layer: int = module.layer_idx  # type: ignore[assignment]
    window, chunk = options.get("sliding_window"), options["chunks"].get(layer)
    locality = Locality("chunked", chunk) if chunk else Locality("sliding", window) if window else Locality()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scoring = Scoring(scale, options.get("softcap"), options.get("s_aux"))
    query, key = query.to(value.dtype), key.to(value.dtype)
    attending: AttentionPort = options["attending"]
    return attending.attend(layer, query, key, value, locality, scoring), None


def context_of(config: Any) -> int:
    """The number of positions that the model has, below the first step of a query scale that depends on the packed
    index."""
    limit: int = getattr(config, "max_position_embeddings", 0) or getattr(config, "n_positions", 0) or 2048
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "yarn":  # configs that are extended by hand keep the length before
        limit = max(limit, int(rope.get("original_max_position_embeddings", 0) * rope.get("factor", 1)))
    return min(limit, _scale_step(config))


def _scale_step(config: Any) -> int:
    """The number of tokens after which llama4 scales queries by their index in the forward (from 1), which is
    meaningless in a packed forward."""
    return int(config.floor_scale) - 1 if getattr(config, "attn_temperature_tuning", False) else 1 << 30


def _chunks(config: Any) -> dict[int, int]:
    kinds = getattr(config, "layer_types", None) or []
    size = getattr(config, "attention_chunk_size", None)
    return {i: size for i, kind in enumerate(kinds) if kind == "chunked_attention" and size}
