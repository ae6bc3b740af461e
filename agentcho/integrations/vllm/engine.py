"""The vLLM engine: a core over one model that vLLM has loaded in this process.

Layout, framing, ids, guards, receipts and the store are those of every agentcho engine; vLLM computes. Independent of
agents and audiences.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import torch

from agentcho.config import Markers
from agentcho.engine.cache import NO_DISK, DiskQuota
from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.engine.template_fidelity import TemplateFidelity
from agentcho.errors import ModelError, UnsupportedModel
from agentcho.integrations.vllm.bindings import FOUND, ON_CPU
from agentcho.integrations.vllm.client import Client
from agentcho.integrations.vllm.core import VllmCore
from agentcho.integrations.vllm.gate import INSTEAD, FoundLayer, check_turning, served_layers
from agentcho.integrations.vllm.jobs import Jobs
from agentcho.integrations.vllm.mover import Mover, MovesKV
from agentcho.integrations.vllm.parallel.division import Division
from agentcho.integrations.vllm.parallel.ranks import Ranks
from agentcho.integrations.vllm.parallel.shares import SharedPool
from agentcho.integrations.vllm.runner import VllmRunner, fill
from agentcho.protocol.variables import NO_VARIABLES, Variables
from agentcho.runner.kv.kv_pool import KVFormat, LayerShape, PagePool, shared_host_tokens, shared_tokens
from agentcho.runner.model.checkpoint import folder_of
from agentcho.runner.model.device import DevicePlacement
from agentcho.runner.model.digests import tokenizer_digest
from agentcho.runner.model.loading import EngineSizes, WeightsSource, check_model_files
from agentcho.runner.model.model import ModelSource, read_tokenizer

NAMES = count()
SIZES = EngineSizes()
NOT_OPTIONS = {
    **dict.fromkeys(
        ("data_parallel_size", "nnodes", "node_rank", "distributed_executor_backend", "worker_extension_cls"),
        "agentcho starts the ranks of one model, all on this machine",
    ),
    **dict.fromkeys(
        ("decode_context_parallel_size", "prefill_context_parallel_size", "enable_expert_parallel"),
        "ranks divide heads or layers",
    ),
    **dict.fromkeys(
        ("enable_prefix_caching", "kv_transfer_config", "logits_processors", "async_scheduling"),
        "agentcho sets it",
    ),
    "speculative_config": "agentcho draws one token at a time",
    "kv_cache_dtype": "quantised keys would be rounded again on every move",
    "max_model_len": "give sizes=EngineSizes(context=...)",
    "model": "it is the first argument",
    "dtype": "it is an argument of its own",
}
"""Arguments of vLLM's `EngineArgs` that are not accepted, and why."""
DTYPES = ("auto", "float32", "bfloat16", "float16")


class VllmEngine(VllmCore):
    """A model in vLLM with its store of encodings, made by `VllmEngine.load`. Closes itself as a context manager."""

    def __init__(
        self,
        runner: VllmRunner,
        framing: Framing,
        source: ModelSource,
        tokenizer: Any,
        context: int,
        host_tokens: int,
        disk: DiskQuota = NO_DISK,
    ) -> None:
        self.fidelity: TemplateFidelity | None = None
        self.layers, self.division = list[FoundLayer](), Division()
        self._source, self.tokenizer = source, tokenizer
        self._weights: str | None = None
        super().__init__(runner, framing, context, host_tokens, disk=disk)

    @classmethod
    def load(
        cls,
        model: str | Path,
        dtype: str = "auto",
        sizes: EngineSizes = SIZES,
        *,
        markers: Markers = "accept",
        differs: Markers = "refuse",
        variables: Variables = NO_VARIABLES,
        options: Mapping[str, Any] | None = None,
    ) -> VllmEngine:
        """Load a model in vLLM. `UnsupportedModel`: its encodings cannot be moved, or vLLM does not keep them as keys
        and values.

        Args:
            model: A name, a folder of safetensors, or a hub id, as for `Engine.load`.
            dtype: "auto", "float32", "bfloat16" or "float16".
            sizes: How much of it may be used and kept.
            markers: Whether to accept a template whose markers a text can spell.
            differs: Whether to accept a model whose plain chats differ from those of its template.
            variables: What the chat template is given besides the messages.
            options: Further arguments of vLLM's `EngineArgs`, such as `gpu_memory_utilization`.
        """
        if dtype not in DTYPES:
            raise ModelError(f"dtype {dtype!r}: engine vllm takes {', '.join(DTYPES)}")
        sizes.check()
        options = dict(options or {})
        if (wrong := next((name for name in NOT_OPTIONS if name in options), None)) is not None:
            raise ModelError(f"{wrong} cannot be among the options of engine vllm: {NOT_OPTIONS[wrong]}; remove it")
        wanted = WeightsSource(model, DevicePlacement("cpu"), variables=variables)
        found = check_model_files(wanted, markers, sizes.context, differs)
        _check_source(found.source)
        tokenizer = found.tokenizer or read_tokenizer(found.source)
        framing = found.framing or derive(tokenizer, found.source.name, found.ends, variables)
        division = Division.of(options)
        division.check(found.source.name, found.source.config, None if ON_CPU else torch.cuda.device_count())
        jobs, name = Jobs(), f"agentcho-engine-{next(NAMES)}"
        ranks = None if division.ranks == 1 else Ranks(jobs, division)
        given = options | {"dtype": dtype, "max_model_len": sizes.context}
        client = Client(found.source.name, found.source.path, engine=name, jobs=jobs, options=given, ranks=ranks)
        try:
            engine = cls._over(
                client, jobs, sizes, source=found.source, tokenizer=tokenizer, framing=framing, ranks=ranks
            )
        except BaseException:
            client.close()
            raise
        engine.fidelity, engine.division = found.fidelity, division
        return engine

    @classmethod
    def _over(
        cls,
        client: Client,
        jobs: Jobs,
        sizes: EngineSizes,
        *,
        source: ModelSource,
        tokenizer: Any,
        framing: Framing,
        ranks: Ranks | None,
    ) -> VllmEngine:
        """Make the engine over vLLM with its model, after checking that encodings of the model can be moved."""
        if ranks is None:
            layers, kind, pages, whole = _undivided(client, sizes, source.name)
            mover: MovesKV = whole
            jobs.load_kv = partial(fill, whole)
        else:
            layers, kind, pages = _divided(client, sizes, source.name, ranks)
            mover = ranks
        host = shared_host_tokens([kind], sizes.share)[0] if sizes.host_tokens is None else sizes.host_tokens
        runner = VllmRunner(
            client,
            jobs,
            pages,
            mover=mover,
            template=framing,
            tokenizer=tokenizer,
            origin=f"vllm {source.name} {kind.dtype}\0",
        )
        engine = cls(
            runner,
            framing,
            source=source,
            tokenizer=tokenizer,
            context=client.longest,
            host_tokens=host,
            disk=sizes.disk,
        )
        engine.layers = layers
        check_turning(source.name, runner.turn_errors(framing.content.encode("a")[-1]), kind.dtype)
        return engine

    @property
    def fingerprint(self) -> dict[str, str]:
        """Digests and versions for run records."""
        self._weights = self._weights or _digest(self._source)
        return {
            "model": self._source.name,
            "model_type": self._source.config.model_type,
            "weights": self._weights,
            "tokenizer": tokenizer_digest(self.tokenizer),
            "dtype": str(self.store.dtype).removeprefix("torch."),
            "device": self.layers[0].device,
            "engine": f"vllm {FOUND}",
            "torch": torch.__version__,
            **({} if self.division.ranks == 1 else {"ranks": "{} x {}".format(*self.division)}),
        } | self.framing.fingerprint


def _undivided(client: Client, sizes: EngineSizes, name: str) -> tuple[list[FoundLayer], KVFormat, PagePool, Mover]:
    """The layers of a model in this process, the KV format of a token, a store, and a mover of keys and values."""
    layers = served_layers(name, client.network, layers=client.layers, caches=client.caches, block=client.block)
    shapes, cache = [layer.shape for layer in layers], layers[0].layout.cache
    kind = KVFormat(shapes, cache.device, cache.dtype)
    pages = PagePool(shapes, _store_tokens(kind, sizes), kind.device, kind.dtype)
    mover = Mover([layer.layout for layer in layers], [layer.rotation for layer in layers], pages)
    return [layer.told(each) for each, layer in zip(client.caches, layers, strict=True)], kind, pages, mover


def _divided(
    client: Client, sizes: EngineSizes, name: str, ranks: Ranks
) -> tuple[list[FoundLayer], KVFormat, PagePool]:
    """The same for a model divided among ranks, whose store is in host memory."""
    layers = ranks.served(name, client.heads, client.block)
    kind = KVFormat([LayerShape(layer.heads, layer.dim, layer.dim) for layer in layers], ranks.device, layers[0].dtype)
    logits = (client.requests, client.vocabulary)
    pages = SharedPool(kind.layers, _store_tokens(kind, sizes), kind.dtype, logits)
    ranks.share(pages)
    return layers, kind, pages


def _store_tokens(kind: KVFormat, sizes: EngineSizes) -> int:
    """The maximum number of tokens in a store."""
    return shared_tokens([kind], sizes.share)[0] if sizes.store_tokens is None else sizes.store_tokens


def _check_source(source: ModelSource) -> None:
    """`UnsupportedModel`: the model is not a folder or hub id with weights, or its queries depend on slot numbers in
    vLLM."""
    if source.gguf is not None or source.random:
        what = "a GGUF file" if source.gguf is not None else "a shape with random weights"
        raise UnsupportedModel(source.name, f"it is {what}", "Give a folder of safetensors, or leave --engine out.")
    if getattr(source.config, "llama_4_scaling", None) or getattr(source.config, "attn_temperature_tuning", False):
        cause = "it scales queries by their position, for which vLLM uses the slot number"
        raise UnsupportedModel(source.name, cause, INSTEAD)


def _digest(source: ModelSource) -> str:
    """A digest of the model's weight files, wherever they are. `ModelError`: there are none."""
    found, folder = blake2b(digest_size=16), folder_of(source.path)
    files = [] if folder is None else sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{source.name}: no .safetensors files were found; give a model with .safetensors files")
    for file in files:
        with file.open("rb") as data:
            while block := data.read(1 << 20):
                found.update(block)
    return found.hexdigest()
