"""The engine: the paper's API over one model and one store of encodings. Synchronous, one thread.

It is an `EngineCore` over the runner of a model, with what only a model has: logits, scores, gradients, adapters.
Independent of agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from agentcho.config import Computing, Markers, ModelConfig
from agentcho.engine.cache import NO_DISK, DiskQuota
from agentcho.engine.call_layout import ContextPiece, Segment, check_fits
from agentcho.engine.core import EngineCore
from agentcho.engine.framing import Framing
from agentcho.engine.lora_adapter import Adapter, find_adapter
from agentcho.engine.template_fidelity import TemplateFidelity
from agentcho.errors import ConfigError, ContextOverflow, RequestError, StoreFull
from agentcho.protocol.call import DEFAULT_PRIORITY, Decode, EncodingId, Offsets
from agentcho.protocol.call_validation import checked_calls
from agentcho.protocol.ownership import owned
from agentcho.protocol.progress import ProgressCallback, counted, no_progress
from agentcho.protocol.value_checks import checked_ints, checked_text
from agentcho.protocol.variables import NO_VARIABLES, Variables
from agentcho.reuse.method import Weighing
from agentcho.runner.attention.base import Setting
from agentcho.runner.attention.registry import Backends
from agentcho.runner.batch import Batch
from agentcho.runner.gradients import Made
from agentcho.runner.graphs import SIZES
from agentcho.runner.kv.kv_pool import PagePool, token_bytes
from agentcho.runner.kv.lanes import lane_room
from agentcho.runner.model.device import DeviceMap, DevicePlacement
from agentcho.runner.model.fingerprints import kept_files
from agentcho.runner.model.fused import FusedPart
from agentcho.runner.model.loading import EngineSizes, WeightsSource, load, load_all
from agentcho.runner.model.lora import Adapters
from agentcho.runner.model.model import Model
from agentcho.runner.model.threads import Wish
from agentcho.runner.other_engines import other_engine
from agentcho.runner.reuse_check import LayerProof
from agentcho.runner.runner import TorchRunner
from agentcho.runner.slots import IDLE, Slots


def placement(options: ModelConfig, device_map: DeviceMap | None = None) -> DevicePlacement:
    """Return where a model with these options runs, and in which number formats."""
    return DevicePlacement(
        device=options.device,
        dtype=options.dtype,
        map=device_map,
        bits=options.weights,
        kv=options.kv_dtype,
    )


class Engine(EngineCore):
    """A loaded model with its store of encodings. `Engine.load` makes it. As a context manager it closes itself.

    It is synchronous, and for one thread and one owner at a time. Any other use raises `EngineBusy`.

    Example::

        with agentcho.Engine.load("smollm2") as engine:
            rules = engine.prefill("Answer in one word.", role="system")
            question = engine.prefill("Which colour has the sky?", parents=[rules])
            answer = engine.decode(parents=[rules, question], sampling=agentcho.Sampling(max_tokens=8))
            print(engine.message(answer).text)
    """

    framing: Framing
    store: PagePool
    _runner: TorchRunner

    def __init__(
        self,
        model: Model,
        framing: Framing,
        proofs: list[LayerProof],
        store_tokens: int,
        host_tokens: int,
        context: int,
        disk: DiskQuota = NO_DISK,
        kept: str | Path | None = None,
        fidelity: TemplateFidelity | None = None,
    ) -> None:
        self.fidelity = fidelity
        shapes = [proof.shape for proof in proofs]
        self._model, self.proofs, self._room, self._disk = model, proofs, (store_tokens, host_tokens), disk
        self._fingerprint: dict[str, str] | None = None
        rounding = model.kv_quant is not None
        pages = PagePool(shapes, store_tokens, model.device, model.dtype, rounding=rounding)
        smaller = token_bytes(shapes, model.dtype, rounding) / token_bytes(shapes, model.dtype)
        idle, plain = int(IDLE * store_tokens * smaller), all(proof.plain for proof in proofs)
        self.backends = Backends(Setting(model.device, frozenset(pages.devices), rounding, plain))
        room = lane_room(shapes, model.device, model.dtype, store_tokens=store_tokens, context=context)
        slots = Slots(shapes, model.device, model.dtype, idle=idle, backends=self.backends, room=room)
        runner = TorchRunner(model, pages, slots, [proof.rotation for proof in proofs], framing)
        self._kept = kept
        files = None if kept is None else kept_files(Path(kept), model, context)
        super().__init__(runner, framing, context, host_tokens, disk, files)

    @overload
    @classmethod
    def load(
        cls,
        model: str | Path = "understudy",
        device: str = "auto",
        dtype: str = "auto",
        adapter: str | Path | None = None,
        *,
        merge: bool = False,
        context: int | None = None,
        store_tokens: int | None = None,
        host_tokens: int | None = None,
        disk_tokens: int = 0,
        disk: str | Path | None = None,
        keep_cache: str | Path | None = None,
        share: float = 1,
        device_map: DeviceMap | None = None,
        weights: str | None = None,
        kv_dtype: str | None = None,
        plain_markers: Markers = "accept",
        template_differs: Markers = "refuse",
        chat_template_kwargs: Variables = NO_VARIABLES,
        tell: ProgressCallback = no_progress,
        threads: Wish = "auto",
        engine: Literal["agentcho"] = ...,
    ) -> Engine: ...

    @overload
    @classmethod
    def load(
        cls,
        model: str | Path = "understudy",
        *,
        engine: Literal["vllm"],
        dtype: str = "auto",
        context: int | None = None,
        store_tokens: int | None = None,
        host_tokens: int | None = None,
        disk_tokens: int = 0,
        disk: str | Path | None = None,
        share: float = 1,
        plain_markers: Markers = "accept",
        template_differs: Markers = "refuse",
        chat_template_kwargs: Variables = NO_VARIABLES,
        options: Mapping[str, Any] | None = None,
    ) -> EngineCore: ...

    @classmethod
    def load(
        cls,
        model: str | Path = "understudy",
        device: str = "auto",
        dtype: str = "auto",
        adapter: str | Path | None = None,
        *,
        merge: bool = False,
        context: int | None = None,
        store_tokens: int | None = None,
        host_tokens: int | None = None,
        disk_tokens: int = 0,
        disk: str | Path | None = None,
        keep_cache: str | Path | None = None,
        share: float = 1,
        device_map: DeviceMap | None = None,
        weights: str | None = None,
        kv_dtype: str | None = None,
        plain_markers: Markers = "accept",
        template_differs: Markers = "refuse",
        chat_template_kwargs: Variables = NO_VARIABLES,
        tell: ProgressCallback = no_progress,
        threads: Wish = "auto",
        engine: Computing = "agentcho",
        options: Mapping[str, Any] | None = None,
    ) -> EngineCore:
        """Load a model, and prove on its weights that encodings can be shared.

        It reads safetensors or GGUF, and never runs code from a model's repository.

        Args:
            model: "understudy", "smollm2", a folder, a GGUF file, or a Hugging Face id.
            device: "auto" (CUDA if there is one, else the CPU), "cpu", "cuda" or "cuda:N".
            dtype: "auto", "float32", "bfloat16" or "float16". On CUDA "auto" means the checkpoint's dtype; on a CPU
                float32, or bfloat16 if the weights take more than 64 MiB in float32 and the processor supports it.
                `fingerprint["dtype"]` tells the choice.
            adapter: Folder of a LoRA adapter, as peft writes it. None for none.
            merge: Whether to merge the adapter into the weights.
            context: Number of positions to use. None means all that the model has.
            store_tokens: Size of the store in tokens. None means 4 GiB of memory on a CPU, or half of the free memory
                on CUDA.
            host_tokens: Tokens of evicted encodings to keep in host memory. None means 4 GiB, 0 none.
            disk_tokens: Tokens of encodings to keep in files after they leave host memory. The files end with the
                engine.
            disk: Folder for these files. None means that of temporary files.
            keep_cache: Folder in which public encodings are kept for later engines of the same model. None keeps none.
            share: Share of the default sizes to use, above 0 and at most 1, if other processes on the machine load as
                much.
            device_map: "auto" spreads the layers over all GPUs; any other map that transformers takes is passed on.
                Instead of `device`. None for none.
            weights: "int8" or "int4" keeps the weights of the linear layers in that many bits, and the output head in
                8. None keeps them in `dtype`.
            kv_dtype: "int8" keeps keys and values in 8 bits. None keeps them in the model's dtype.
            plain_markers: "refuse" refuses a model whose chat template separates messages by plain text only.
            template_differs: "refuse" refuses a model whose plain chats get other token ids than stock transformers
                gives. `Engine.fidelity` tells how far they agree; it is None for the bundled model.
            chat_template_kwargs: Extra arguments of the chat template, such as `enable_thinking`.
            tell: Called with (what, done, total) from another thread: megabytes downloaded, weights read, matrices
                packed, proofs made, and on a GPU steps compiled.
            threads: CPU threads for each forward pass. "auto" follows `OMP_NUM_THREADS`, `MKL_NUM_THREADS` or
                `torch.set_num_threads`; otherwise it takes one for a small network, or else times one against all, and
                looks again if steps become much slower. "size" decides by size alone, once. Bits of results depend on
                the number. Between calls torch's own setting is unchanged.
            engine: "agentcho", or "vllm" to compute with vLLM (see docs/vllm.md). Options that vLLM cannot keep are
                refused.
            options: Arguments of vLLM's `EngineArgs`. Only with `engine="vllm"`.

        Returns:
            The engine. With `engine="vllm"` it has everything that an `EngineCore` has.

        Raises:
            ModelNotFound: There is no such model.
            ModelBroken: A file of the model is missing or damaged.
            UnsupportedModel: The model's encodings cannot be shared, or its chat template is refused.
            ModelError: An option of loading is wrong, or the model does not fit into memory.
            AdapterError: There is no adapter, or it does not fit the model.
            ConfigError: Options contradict each other.
            CannotWrite: `disk` or `keep_cache` cannot be written.

        Example::

            engine = agentcho.Engine.load("HuggingFaceTB/SmolLM2-1.7B-Instruct", device="cuda", weights="int8")
        """
        sizes = EngineSizes(context, store_tokens, host_tokens, DiskQuota(disk_tokens, disk), share, keep_cache)
        if engine != "agentcho":
            given: dict[str, object] = {"device": device, "adapter": adapter, "merge": merge, "device_map": device_map}
            given |= {"weights": weights, "kv_dtype": kv_dtype, "keep_cache": keep_cache, "threads": threads}
            return other_engine(engine, given).load(
                model,
                dtype,
                sizes,
                markers=plain_markers,
                differs=template_differs,
                variables=chat_template_kwargs,
                options=options,
            )
        if options is not None:
            raise ConfigError("options are arguments of vLLM; add engine='vllm', or leave them out")
        place = DevicePlacement(device, dtype, device_map, weights, kv_dtype)
        wanted = WeightsSource(model, place, _found(adapter), merge, threads, chat_template_kwargs)
        parts = partial(load, wanted, sizes, plain_markers, tell, template_differs)
        # torch keeps a pool of compute threads for each living thread that called it, and a second pool halves the
        # speed of the thread that steps the engine; so loading runs in a thread that ends with it.
        with ThreadPoolExecutor(1) as alone:
            return alone.submit(lambda: cls(*parts())._warmed(tell)).result()

    @classmethod
    def load_all(
        cls,
        wanted: Mapping[str, WeightsSource],
        plain_markers: Markers,
        tell: ProgressCallback = no_progress,
        share: float = 1,
        disk_tokens: int = 0,
        keep_cache: str | Path | None = None,
        template_differs: Markers = "refuse",
    ) -> list[Engine]:
        """Load engines of several models, whose stores together are as large as that of one.

        Args:
            wanted: The models, by names that errors show.
            plain_markers: As for `load`.
            tell: As for `load`.
            share: As for `load`.
            disk_tokens: Tokens of encodings in files, divided equally among the engines.
            keep_cache: A folder with one folder for each engine, by its name.
            template_differs: As for `load`.

        Returns:
            The engines, in the order of `wanted`.
        """
        with ThreadPoolExecutor(1) as alone:
            parts = partial(load_all, wanted, plain_markers, tell, share, disk_tokens, keep_cache, template_differs)
            return alone.submit(lambda: [cls(*each)._warmed(tell) for each in parts()]).result()

    def _warmed(self, tell: ProgressCallback) -> Engine:
        """Compile kernels and capture graphs now, on devices that need it, and return the engine.

        For rows that read in place one kernel serves any number of rows. For rows with copies there is one per number.
        `tell` is called if there is something to do.
        """
        runner = self._runner
        graphs, several = runner.graphs if runner.slots.in_place else None, self._compiled()
        captured = 0 if graphs is None else len(SIZES)
        if not captured and not several:
            return self
        warmed = counted(tell, "steps compiled", captured + len(several))
        if graphs is not None:
            graphs.prepare(runner.slots.lanes, warmed)
        words = tuple(self.framing.content.encode("to be or not"))
        with suppress(ContextOverflow, StoreFull):  # the context or the store may be too small
            for done, rows in enumerate(several, captured + 1):
                self.release(self.decode([Decode(forced=words)] * rows))
                warmed(done)
        return self

    def _compiled(self) -> tuple[int, ...]:
        """Return the numbers of rows for which kernels are compiled before the first call; pools of copies grow in
        these steps."""
        if not self.backends.compiled:
            return ()
        return (1, 2) if self._runner.slots.in_place else (1, 2, 5, 17)

    @owned
    def adapted(self, adapter: str | Path | None) -> Engine:
        """Return another engine on the same network, through an adapter. Both can be used in turn.

        Args:
            adapter: Folder of a LoRA adapter. None means the base model alone.

        Returns:
            The engine, with a store of its own.

        Raises:
            AdapterError: There is no adapter, or it does not fit the model.
            EngineBusy: The engine has another owner.
        """
        with ThreadPoolExecutor(1) as alone:  # as in `load`
            model = alone.submit(self._model.adapted, _found(adapter)).result()
        other = Engine(model, self.framing, self.proofs, *self._room, self.context, self._disk, self._kept)
        other._runner.costs = self._runner.costs
        return other

    @owned
    def mix(self, adapter: str | Path) -> str:
        """Load an adapter that calls may name (`Decode(adapter=...)`).

        One forward pass can then serve calls of several adapters.

        Keys and values of different adapters are kept apart, unless an adapter changes none.

        Args:
            adapter: Folder of a LoRA adapter.

        Returns:
            The digest of the adapter, which calls name it by.

        Raises:
            AdapterError: The adapter does not fit, or is not plain LoRA and needs an engine of its own.
            EngineBusy: The engine has another owner.
        """
        found = find_adapter(adapter)
        if found.digest not in self._rules:
            self._admit_adapter(found.digest, self._runner.admit(found))
        return found.digest

    @owned
    def trained(self, config: Mapping[str, Any]) -> Engine:
        """Return another engine on the same network, through a new adapter to be trained. Raises `ConfigError`."""
        self._check_gradients()
        return Engine(self._model.trained(config), self.framing, self.proofs, *self._room, self.context, self._disk)

    @property
    def room(self) -> tuple[int, int]:
        """The sizes of the store and of host memory, in tokens."""
        return self._room

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of tokens in a forward pass of several speakers in the deterministic profile.

        Empty if each speaker has a pass of its own.

        They are proved when they are first asked for, or needed (see `invariance`).
        """
        with self.owner.acting(None, "sizes"):
            return self._runner.sizes

    @property
    def threads(self) -> tuple[int, str]:
        """The number of CPU threads of a forward pass, and why it was chosen."""
        return self._model.threads.count, self._model.threads.why

    @property
    def fused(self) -> tuple[FusedPart, ...]:
        """Parts of the network for which a GPU runs one fused kernel each, and those that could be fused and are
        not."""
        return self._model.fused

    @property
    def direct(self) -> bool:
        """Whether forward passes bypass the network's modules: see `direct_forward`."""
        return self._model.direct is not None

    @property
    def adapters(self) -> Adapters:
        """The adapters on the network."""
        return self._model.adapters

    @property
    def network(self) -> nn.Module:
        """The model's own torch module."""
        return self._model.network

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""
        return self._model.tokenizer

    @property
    def fingerprint(self) -> dict[str, str]:
        """Digests and versions for run records, computed once."""
        if self._fingerprint is None:
            self._fingerprint = self._model.fingerprint() | self.framing.fingerprint
        return self._fingerprint

    @owned
    def score(
        self,
        continuation: str,
        header: str = "",
        parents: Sequence[EncodingId] = (),
        offsets: Offsets = None,
        new_offset: int | None = None,
        name: str | None = None,
        tokens: Sequence[int] | None = None,
        adapter: str | None = None,
        ape: Weighing | None = None,
        opening: tuple[int, ...] | None = None,
    ) -> Tensor:
        """Return the log-probabilities of each token of an assistant's message. Stores nothing.

        Args:
            continuation: The text of the message after its header.
            header: The beginning of the message.
            parents: As for `Prefill`, but ids only.
            offsets: As for `Prefill`.
            new_offset: As for `Prefill`.
            name: As for `Prefill`.
            tokens: Token ids of the continuation, which override the text. None encodes the text.
            adapter: As for `Prefill`.
            ape: As for `Prefill`.
            opening: Token ids before the header in place of the assistant's framing. None for the framing.

        Returns:
            Natural logarithms `[tokens + 1, vocab]`, float32 on the CPU. Row i is what token i would be chosen from;
            the last row is for the first closing token.

        Raises:
            RequestError: The call is wrong.
            StoreFull: The store has no room.
            EngineBusy: The engine has another owner.
        """
        asked = Decode(
            header,
            parents,
            offsets,
            new_offset,
            name=name,
            forced=(),
            adapter=adapter,
            ape=ape,
            opening=opening,
        )
        (call,), _ = checked_calls([asked], DEFAULT_PRIORITY, self._bounds)
        assert isinstance(call, Decode)
        placed = self._layout(call)
        ids = self.framing.content.encode(checked_text(continuation, "the text")) if tokens is None else tokens
        said = checked_ints(ids, "tokens", self._bounds.vocabulary)
        own = (*placed.framed.begun, *said)
        check_fits(placed.context, len(own) + len(placed.framed.closing), self.context)
        first = len(own) - len(said) - 1
        pieces, start, _, through, parallel = placed.context
        segment = Segment(own, start, pieces, wanted=range(first, len(own)), adapter=through, parallel=parallel)
        self._scheduler.deferred.hasten(pieces, self._assembly.first)
        with self._assembly.gathering(p.entry for p in pieces):
            return self._runner.run([segment])[1].log_softmax(-1).cpu()

    @owned
    def differentiable(self, segments: Sequence[Segment], made: Made | None = None) -> Tensor:
        """Return logits of segments that attend to each other, with gradients, from one forward pass. Stores nothing.

        Args:
            segments: The segments: see `Batch`.
            made: What earlier passes made. None for nothing.

        Returns:
            Logits `[wanted rows, vocab]`, float32.

        Raises:
            ConfigError: Keys and values are rounded.
        """
        self._check_gradients()
        batch = Batch(segments, self._runner.layers, grad=True, made=made)
        return self._model.differentiable(batch.ids, batch.positions, batch.wanted, batch)

    def _check_gradients(self) -> None:
        if (kind := self._model.kv_quant) is not None:
            raise ConfigError(f"kv_dtype {kind} cannot be used for training: rounding has no gradients; leave it out")

    def logits(self, id: EncodingId) -> Tensor:
        """Return the logits that a decode with `logits=True` chose its tokens from.

        Args:
            id: The encoding.

        Returns:
            Raw logits `[tokens + 1, vocab]`, float32 on the CPU, before temperature and constraints. The last row is
            for the first closing token.

        Raises:
            RequestError: The call kept no logits, or is not finished.
            UnknownEncoding: The id is unknown, or was released.
        """
        rows = self._encoding(id).logits
        if not rows:
            raise RequestError(f"no logits were kept for encoding {id}; pass logits=True to its Decode")
        return torch.stack(list(rows))

    @owned
    def cached(self, id: EncodingId) -> list[tuple[Tensor, Tensor]]:
        """Return copies of an encoding's keys and values, at the positions where it was encoded.

        Args:
            id: The encoding.

        Returns:
            For each layer (keys, values), each `[heads, tokens, dim]`, float32 on the CPU.

        Raises:
            UnknownEncoding: The id is unknown, or was released.
            EngineBusy: The engine has another owner.
        """
        entry = self._encoding(id).entry
        self._scheduler.deferred.hasten([ContextPiece(id, entry, entry.position)], self._assembly.first)
        with self._assembly.gathering([entry]):
            pairs = (self.store.read(entry.block, layer) for layer in range(self.store.layers))
            return [(keys.float().cpu(), values.float().cpu()) for keys, values in pairs]


def _found(adapter: str | Path | None) -> Adapter | None:
    return None if adapter is None else find_adapter(adapter)
