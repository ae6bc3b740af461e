"""The engine: the paper's API over one model and one store of encodings. Synchronous, one thread.

It is an `EngineCore` over the runner of a model, with what only a model has: logits, scores, gradients, adapters.
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
    """Where a model with these options runs, and in which numbers."""
    return DevicePlacement(
        device=options.device,
        dtype=options.dtype,
        map=device_map,
        bits=options.weights,
        kv=options.kv_dtype,
    )


class Engine(EngineCore):
    """A loaded model with its store of encodings, made by `Engine.load`. As a context manager it closes itself.

    Synchronous, and for one thread and one owner at a time: another is refused with `EngineBusy`."""

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
        """Load a model, and prove on its weights that encodings can be shared. Safetensors or GGUF, no remote code.

        - `model`: "understudy", "smollm2", a folder, a GGUF file, or a hub's id. `adapter`: a folder of peft's; `merge`
          adds it.
        - `device` "auto": CUDA if there is one, else the CPU. `device_map`, in its place: "auto" spreads layers over
          all GPUs; or what else transformers takes. `dtype` "auto": on CUDA that of the checkpoint; on a CPU float32,
          or bfloat16 where that is more than 64 MiB and the processor has it. `fingerprint["dtype"]` says which.
        - `weights` "int8", "int4", `kv_dtype` "int8": linear layers but the head, keys and values, in so few bits.
        - `context`: use fewer positions. `store_tokens`: tokens of the store (by default 4 GiB of a CPU's memory, half
          of the free memory on CUDA). `host_tokens`: tokens that left it, in host memory (by default 4 GiB; 0: none).
          `share`: of these defaults, where other processes on this machine load as much. `disk_tokens`: tokens that
          left host memory, in files that end with the engine, in the folder `disk` (None: that of temporary files).
        - `keep_cache`: a folder in which encodings of what everyone may read stay for later engines of the same model.
        - `plain_markers` "refuse" takes no model whose chat template has but plain text between messages.
        - `template_differs` "refuse" takes no model whose plain chats would have other ids than stock transformers
          gives. `Engine.fidelity` says how far they are the same; None: it is the embedded model.
        - `chat_template_kwargs`: what the chat template is given beside the messages, such as `enable_thinking`.
        - `tell` hears of megabytes downloaded, weights read, matrices packed, proofs made, and on a GPU of steps
          compiled, in another thread.
        - `threads`: compute threads of each forward on a CPU. "auto": what `OMP_NUM_THREADS`, `MKL_NUM_THREADS` or
          `torch.set_num_threads` says, else one for a small network, else one or all, whichever a few forwards are
          faster on, which is looked at again when steps become much slower. "size": by the size alone, and no other
          later. Bits depend on it. Between calls of the engine, torch's own number is what it was.
        - `engine` "vllm" has vLLM compute, see docs/vllm.md. What is returned has all that an `EngineCore` has.
          `options`: arguments of vLLM's `EngineArgs`. Options of this method that vLLM cannot keep are refused.

        Raises `ModelNotFound`, `UnsupportedModel` (the gate's cause), `ModelError`, `ConfigError`, `CannotWrite`.
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
        # torch keeps compute threads for each thread that ever called it, and more of them halve the speed of the one
        # that steps the engine; so loading runs in a thread that ends with it.
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
        """Engines of several models, by names that errors tell, with stores that together are as large as that of one,
        with `disk_tokens` tokens in files, equally many each, and a folder of `keep_cache` each. Everything else as in
        `load`."""
        with ThreadPoolExecutor(1) as alone:
            parts = partial(load_all, wanted, plain_markers, tell, share, disk_tokens, keep_cache, template_differs)
            return alone.submit(lambda: [cls(*each)._warmed(tell) for each in parts()]).result()

    def _warmed(self, tell: ProgressCallback) -> Engine:
        """Compile kernels and capture graphs now, on devices that need it; returns the engine. Rows that read in place
        have one kernel for any number of them, those that have copies one for each. `tell` hears of it where there is
        something to do."""
        runner = self._runner
        graphs, several = runner.graphs if runner.slots.in_place else None, self._compiled()
        captured = 0 if graphs is None else len(SIZES)
        if not captured and not several:
            return self
        warmed = counted(tell, "steps compiled", captured + len(several))
        if graphs is not None:
            graphs.prepare(runner.slots.lanes, warmed)
        words = tuple(self.framing.content.encode("to be or not"))
        with suppress(ContextOverflow, StoreFull):  # the engine may be too small for it
            for done, rows in enumerate(several, captured + 1):
                self.release(self.decode([Decode(forced=words)] * rows))
                warmed(done)
        return self

    def _compiled(self) -> tuple[int, ...]:
        """Numbers of rows for which kernels are compiled before the first call: pools of copies grow so."""
        if not self.backends.compiled:
            return ()
        return (1, 2) if self._runner.slots.in_place else (1, 2, 5, 17)

    @owned
    def adapted(self, adapter: str | Path | None) -> Engine:
        """An engine of its own on the same network, through an adapter, or None: the base alone. Both can be used in
        turn. Raises `AdapterError`."""
        with ThreadPoolExecutor(1) as alone:  # as in `load`
            model = alone.submit(self._model.adapted, _found(adapter)).result()
        other = Engine(model, self.framing, self.proofs, *self._room, self.context, self._disk, self._kept)
        other._runner.costs = self._runner.costs
        return other

    @owned
    def mix(self, adapter: str | Path) -> str:
        """Load an adapter that calls may name (`Decode(adapter=…)`), so that calls of several run in one forward, each
        token through its own; returns its digest, which is its name. Keys and values are apart by adapter, but for one
        that changes none. `AdapterError`: it does not fit, or is no plain LoRA, and needs an engine of its own."""
        found = find_adapter(adapter)
        if found.digest not in self._rules:
            self._admit_adapter(found.digest, self._runner.admit(found))
        return found.digest

    @owned
    def trained(self, config: Mapping[str, Any]) -> Engine:
        """An engine of its own on the same network, through a fresh adapter that is to be trained. `ConfigError`."""
        self._check_gradients()
        return Engine(self._model.trained(config), self.framing, self.proofs, *self._room, self.context, self._disk)

    @property
    def room(self) -> tuple[int, int]:
        """The tokens of its store, and of copies in host memory."""
        return self._room

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many tokens a forward of several speakers has in the deterministic profile; empty: each has its own. It
        is proved when it is first asked for, or needed (see `invariance`)."""
        with self.owner.acting(None, "sizes"):
            return self._runner.sizes

    @property
    def threads(self) -> tuple[int, str]:
        """How many compute threads its forwards take, and why so many."""
        return self._model.threads.count, self._model.threads.why

    @property
    def fused(self) -> tuple[FusedPart, ...]:
        """Parts of the network that one kernel each computes on a GPU, and those that could be and are not."""
        return self._model.fused

    @property
    def direct(self) -> bool:
        """Whether forwards call the parts of the network themselves: see `direct_forward`."""
        return self._model.direct is not None

    @property
    def adapters(self) -> Adapters:
        """The adapters on the network."""
        return self._model.adapters

    @property
    def network(self) -> nn.Module:
        """The model's own module."""
        return self._model.network

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""
        return self._model.tokenizer

    @property
    def fingerprint(self) -> dict[str, str]:
        """Digests and versions for run records; computed once."""
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
        """Log-probabilities `[tokens + 1, vocab]`, float32 on the CPU, of each token of an assistant's message.

        Row i is what token i was to be chosen from; the last row is for the first closing token. `tokens`, if
        given, win over the text. `opening`, if given, are the ids before the header, in place of the assistant's
        framing. Stores nothing. Raises as `decode` does.
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
        """Logits `[wanted rows, vocab]`, float32, of segments that attend to each other, in one forward that keeps its
        gradients. Stores nothing; see `Batch`. `ConfigError`: keys and values are rounded."""
        self._check_gradients()
        batch = Batch(segments, self._runner.layers, grad=True, made=made)
        return self._model.differentiable(batch.ids, batch.positions, batch.wanted, batch)

    def _check_gradients(self) -> None:
        if (kind := self._model.kv_quant) is not None:
            raise ConfigError(f"kv_dtype {kind} cannot be used for training: rounding has no gradients; leave it out")

    def logits(self, id: EncodingId) -> Tensor:
        """The rows `[tokens + 1, vocab]` that a decode with `logits=True` chose from, float32 on the CPU.

        Raw: before temperature and constraints. The last row is for the first closing token.
        """
        rows = self._encoding(id).logits
        if not rows:
            raise RequestError(f"no logits were kept for encoding {id}; pass logits=True to its Decode")
        return torch.stack(list(rows))

    @owned
    def cached(self, id: EncodingId) -> list[tuple[Tensor, Tensor]]:
        """Copies of its keys and values a layer, `[heads, tokens, dim]`, float32 on the CPU, where it was encoded."""
        entry = self._encoding(id).entry
        self._scheduler.deferred.hasten([ContextPiece(id, entry, entry.position)], self._assembly.first)
        with self._assembly.gathering([entry]):
            pairs = (self.store.read(entry.block, layer) for layer in range(self.store.layers))
            return [(keys.float().cpu(), values.float().cpu()) for keys, values in pairs]


def _found(adapter: str | Path | None) -> Adapter | None:
    return None if adapter is None else find_adapter(adapter)
