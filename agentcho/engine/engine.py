"""The engine: the paper's API over one model and one store. Synchronous, one thread.

It knows tokens and encodings, and nothing of agents. `prefill`, `decode` and `score` run to the end;
`submit` and `step` are the same work step by step, for the choreographer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from agentcho.calls.call import ANY_TURN, Call, Decode, Encoded, EncodingId, Offsets, Receipt, StepResult, Turn
from agentcho.calls.checks import Bounds, checked, is_id, known_as_id, named, readable
from agentcho.calls.ids import Ids
from agentcho.calls.owner import Owner, owned
from agentcho.calls.values import numbers, text
from agentcho.config import Markers
from agentcho.engine.adapter import find_adapter
from agentcho.engine.admission import Admission
from agentcho.engine.assembly import Assembly
from agentcho.engine.batch import Batch, Made
from agentcho.engine.blame import Blame
from agentcho.engine.budget import budget_of
from agentcho.engine.constraint import Grammars
from agentcho.engine.debug import Debug
from agentcho.engine.device import DeviceMap, Place, synchronize
from agentcho.engine.direct import Direct
from agentcho.engine.encoding import Context, Encoding, Piece, Recipe, Segment, Storage
from agentcho.engine.flex import has_kernels
from agentcho.engine.gate import LayerProof, can_share
from agentcho.engine.integrity import Integrity
from agentcho.engine.layout import Rules, check_fits, encoded
from agentcho.engine.loading import load
from agentcho.engine.lora import Adapters
from agentcho.engine.model import Model
from agentcho.engine.pages import PagePool
from agentcho.engine.plan import Plan
from agentcho.engine.runner import TorchRunner
from agentcho.engine.sampler import choose
from agentcho.engine.scheduler import Scheduler
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.engine.slots import IDLE, Slots
from agentcho.engine.template import Framing
from agentcho.engine.tiers import Fullness, Tiers
from agentcho.engine.trial import Ran, Trial
from agentcho.errors import (
    BadParent,
    ContextOverflow,
    EngineClosed,
    EngineFailed,
    RequestError,
    StoreFull,
    UnknownEncoding,
)
from agentcho.progress import Tell, unheard


class Engine(Direct):
    """One loaded model with its store of encodings, from `Engine.load`. As a context manager it closes itself."""

    def __init__(
        self, model: Model, framing: Framing, proofs: list[LayerProof], store_tokens: int, host_tokens: int,
        context: int,
    ) -> None:  # fmt: skip
        shapes = [proof.shape for proof in proofs]
        self._model, self.framing, self.proofs, self.context = model, framing, proofs, context
        self._room = store_tokens, host_tokens
        self.store = PagePool(shapes, store_tokens, model.device, model.dtype)
        tiers = self._tiers = Tiers(self.store, host_tokens)
        idle, may_share = int(IDLE * store_tokens), can_share(proofs)
        self._slots = Slots(shapes, model.device, model.dtype, idle=idle, may_share=may_share)
        self._runner = TorchRunner(model, self.store, self._slots, [proof.rotation for proof in proofs])
        self._encodings: dict[EncodingId, Encoding] = {}
        self._waiting: dict[EncodingId, Storage] = {}
        self._untold: list[EncodingId] = []
        self._waits_for = [device for device in model.devices if device.type == "cuda"]
        self._ids = Ids()
        self._fingerprint: dict[str, str] | None = None
        self._assembly = Assembly(tiers, self._runner.make)
        self._blame = Blame(model.devices)
        self._trial = Trial(self._runner, self._blame)
        self._banned = self._unsayable()
        self._scheduler = Scheduler(
            self._assembly,
            self._slots,
            budget_of(model.packed, model.device),
            self._finished,
            self._blame,
            self._draw,
        )
        self._bounds = Bounds(model.vocabulary)
        grammars = Grammars(model.tokenizer, model.vocabulary, framing.closing("assistant")[0])
        rules = Rules(framing, self._encode_bos(), context, model.origin)
        self._admission = Admission(rules, framing, grammars, self._assembly, self._parent, self.message)

    @classmethod
    def load(
        cls, model: str | Path = "understudy", device: str = "auto", dtype: str = "auto",
        adapter: str | Path | None = None, *, merge: bool = False, context: int | None = None,
        store_tokens: int | None = None, host_tokens: int | None = None, device_map: DeviceMap | None = None,
        plain_markers: Markers = "accept", tell: Tell = unheard,
    ) -> Engine:  # fmt: skip
        """Load the understudy, a folder, or a Hugging Face id, and prove that it can share encodings.

        `device` and `dtype` "auto": CUDA in the checkpoint's dtype if there is one, else the CPU in float32 (bfloat16
        where that is more than 64 MiB and the processor has it); `fingerprint["dtype"]` says which was taken.
        `device_map`, in place of a device: "auto" spreads the layers over all GPUs; or what else transformers takes.
        `adapter` is a folder that peft wrote, to go through in each forward, or with `merge` to add to the weights.
        `context` lowers the number of positions used; `store_tokens` bounds the store (default: 4 GiB on a
        CPU, half of the free memory on CUDA), `host_tokens` what leaves it for host memory (default: 4 GiB; 0: it is
        dropped and made again). `plain_markers` "refuse": no model whose role markers a text can spell, which is known
        before its weights are read. `tell` hears of megabytes downloaded, weights read, matrices packed and proofs
        made, in the thread that does it. Safetensors only, no remote code.
        Raises: `ModelNotFound`, `BadPlacement`, `UnsupportedModel` (the gate's cause), `FramingError`,
        `AdapterError`.

        Loading runs in a thread of its own that ends with it: torch keeps a pool of compute threads for each
        thread that ever called it, and a second pool halves the speed of the one that steps the engine.
        """
        with ThreadPoolExecutor(1) as alone:
            found = None if adapter is None else find_adapter(adapter)
            place, room = Place(device, dtype, device_map), (store_tokens, host_tokens)
            parts = partial(load, model, place, found, merge, context, *room, plain_markers, tell)
            return alone.submit(lambda: cls(*parts())._warmed()).result()

    def _warmed(self) -> Engine:
        """Kernels for steps of one row and of few are compiled now where they need any."""
        words = tuple(self.framing.content.encode("to be or not"))
        with suppress(ContextOverflow, StoreFull):  # it may be smaller than that
            for rows in (1, 2) if has_kernels(self._model.device) else ():
                self.release(self.decode([Decode(forced=words)] * rows))
        return self

    @property
    def owner(self) -> Owner:
        """Of its network: who may call it now, and every other engine on it."""
        return self._model.owner

    def close(self) -> None:
        """Give up all that it keeps and its part in the network, at once: calls under way, encodings, memory. What is
        asked of it afterwards is refused with `EngineClosed`; to close it again is a no-op. Others on its network go
        on."""
        if vars(self):
            with self.owner.acting(None, "close"):
                self._scheduler.drop_all()
                vars(self).clear()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Of a closed engine nothing is left."""
            if vars(self) or name.startswith("__"):
                raise AttributeError(f"an engine has no {name!r}")
            raise EngineClosed("the engine was closed; load another to go on")

    @owned
    def adapted(self, adapter: str | Path | None) -> Engine:
        """An engine of its own on the same network, through an adapter, or None: the base alone. Both can be used in
        turn. Raises `AdapterError`, `AdapterError`."""
        model = self._model.adapted(None if adapter is None else find_adapter(adapter))
        return Engine(model, self.framing, self.proofs, *self._room, self.context)

    @owned
    def trained(self, config: Mapping[str, Any]) -> Engine:
        """An engine of its own on the same network, through a fresh adapter that is to be trained. `ConfigError`."""
        return Engine(self._model.trained(config), self.framing, self.proofs, *self._room, self.context)

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
            self._fingerprint = self._model.fingerprint() | ({"markers": "plain"} if self.framing.plain else {})
        return self._fingerprint

    @property
    def bos(self) -> bool:
        """Whether every context begins after a BOS."""
        return self.framing.bos is not None

    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Encoded:
        """See `FramePort.frame`."""
        if tokens is not None:
            tokens = numbers(tokens, "tokens", self._bounds.vocabulary)
        return encoded(self.framing, role, name, text, tokens)

    @property
    def debug(self) -> Debug:
        """What it is in the midst of, between steps."""
        calls, late, shared = self._scheduler.calls, tuple(self._scheduler.deferred), tuple(self._slots.shared.values())
        return Debug(self._scheduler.rows, late, calls, self._slots, shared, self._encodings)

    @property
    def fullness(self) -> Fullness:
        """How full store and host memory are, and what had to move."""
        return self._tiers.fullness

    @owned
    def check_integrity(self) -> None:
        """Raise `StoreDamaged` unless pages, counts, contents, recipes and labels are whole. See `Integrity`. Between
        steps. It reads all that is stored: for tests, and for whoever doubts a machine."""
        Integrity(self._tiers, self._encodings, (*self._scheduler.calls, *self._scheduler.deferred)).check()

    @owned
    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.swap_out`."""
        self._tiers.swap_out([self._encoding(id).storage for id in named(ids)])

    @owned
    def score(
        self, continuation: str, header: str = "", parents: Sequence[EncodingId] = (),
        offsets: Offsets = None, new_offset: int | None = None, name: str | None = None,
        tokens: Sequence[int] | None = None,
    ) -> Tensor:  # fmt: skip
        """Log-probabilities `[tokens + 1, vocab]`, float32 on the CPU, of each token of an assistant's message.

        Row i is what token i was to be chosen from; the last row is for the first closing token. `tokens`, if
        given, win over the text. Stores nothing. Raises as `decode` does.
        """
        (call,), _ = checked([Decode(header, parents, offsets, new_offset, name=name)], ANY_TURN, self._bounds)
        assert isinstance(call, Decode)
        placed = self._admission.layout(call)
        ids = self.framing.content.encode(text(continuation, "the text")) if tokens is None else tokens
        said = numbers(ids, "tokens", self._bounds.vocabulary)
        own = (*placed.framed.begun, *said)
        check_fits(placed.context, len(own) + len(placed.framed.closing), self.context)
        first = len(own) - len(said) - 1
        segment = Segment(own, placed.context.start, placed.context.pieces, wanted=range(first, len(own)))
        self._scheduler.deferred.hasten(placed.context.pieces, self._assembly.first)
        with self._assembly.gathering(p.storage for p in placed.context.pieces):
            return self._runner.run([segment])[1].log_softmax(-1).cpu()

    @owned
    def differentiable(self, segments: Sequence[Segment], made: Made | None = None) -> Tensor:
        """Logits `[wanted rows, vocab]`, float32, of segments that attend to each other, in one forward that keeps its
        gradients. Stores nothing; see `Batch`."""
        batch = Batch(segments, self._runner.layers, grad=True, made=made)
        return self._model.differentiable(batch.ids, batch.positions, batch.wanted, batch)

    def message(self, id: EncodingId) -> Encoded:
        """The words of a finished encoding: `.role .name .header .text .tokens .sampled`."""
        return self._encoding(id).words

    def receipt(self, id: EncodingId) -> Receipt:
        """What it really attended to: `.context .start .bos`."""
        return self._encoding(id).receipt

    def logits(self, id: EncodingId) -> Tensor:
        """The rows `[tokens + 1, vocab]` that a decode with `logits=True` chose from, float32 on the CPU.

        Raw: before temperature and constraints. The last row is for the first closing token.
        """
        rows = self._encoding(id).logits
        if not rows:
            raise RequestError(f"encoding {id} kept no logits; pass logits=True to its Decode")
        return torch.stack(list(rows))

    @owned
    def cached(self, id: EncodingId) -> list[tuple[Tensor, Tensor]]:
        """Copies of its keys and values a layer, `[heads, tokens, dim]`, float32 on the CPU, where it was encoded."""
        storage = self._encoding(id).storage
        self._scheduler.deferred.hasten([Piece(id, storage, storage.position)], self._assembly.first)
        with self._assembly.gathering([storage]):
            pairs = (self.store.read(storage.block, layer) for layer in range(self.store.layers))
            return [(keys.float().cpu(), values.float().cpu()) for keys, values in pairs]

    # -- step by step ------------------------------------------------------------------------------------

    @owned
    def submit(self, calls: Sequence[Call], turn: Turn = ANY_TURN) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`."""
        plain, turn = checked(calls, turn, self._bounds)
        with readable("the list of calls"):
            admitted = self._admission.admit(plain, self._ids.new)
        for call in admitted:
            if call.entry is not None:
                self._waiting[call.id] = call.entry
        self._scheduler.add(admitted, turn)
        return tuple(call.id for call in admitted)

    @owned
    def step(self, deterministic: bool = False) -> StepResult:
        """Schedule, run, collect. See `EnginePort.step`."""
        before = self._assembly.fed
        self._untold.clear()
        try:
            plan = self._scheduler.schedule(exact=deterministic)
            judged = self._trial.judge(plan) if plan.judged else 0
            result = self._scheduler.process(plan, *self._forward(plan))
            if self._waits_for:  # forced tokens are said without a look at what was computed
                synchronize(*self._waits_for)
            for failure in result.failed:
                self._waiting.pop(failure.id, None)
            encoded = result.encoded + judged + self._assembly.fed - before
            return result._replace(encoded=encoded, held=(self.store.used + self.store.reserved) / self.store.limit)
        except BaseException as error:
            self._scheduler.drop_all()
            self._waiting.clear()
            self.release(self._untold)  # finished in this step, and nobody will hear of it
            if isinstance(error, Exception) and not isinstance(error, EngineFailed):
                raise EngineFailed(error) from error
            raise

    def _forward(self, plan: Plan) -> Ran:
        """The forward of a plan, kept: its segments in the order of their rows of logits, and these. Where it fails,
        and where each call depends on itself alone, one by one."""
        if not plan.segments:
            return [], []
        unjudged = bool(plan.judged) and any(call in plan.judged for call, _ in plan.failed)
        if not plan.exact and not unjudged:
            try:
                order, rows = self._runner.step(plan.segments)
                return order, list(rows)
            except Exception as error:
                self._trial.again(error, len(plan.segments))
        return self._trial.apart(plan)

    def _draw(self, asking: list[Admitted], logits: list[Tensor]) -> list[int | None]:
        """A token for each of these decodes, from its row; None where it has none, or cannot be drawn by itself."""
        try:
            return choose(torch.stack(logits), [row.speech.draw() for row in asking], self._banned)
        except BaseException as error:  # a grammar's library may panic, which is no `Exception`
            self._blame.of(error)
            if len(asking) == 1:
                return [None]
            return [self._draw([row], [line])[0] for row, line in zip(asking, logits, strict=True)]

    @owned
    def cancel(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.cancel`."""
        gone = {id for id in named(ids) if not self._ids.foreign(id)}
        self._scheduler.cancel(gone)
        self._waiting = {id: storage for id, storage in self._waiting.items() if id not in gone}

    @owned
    def release(self, ids: Iterable[EncodingId]) -> None:
        """Give up finished encodings; their pages are freed when nothing else holds them."""
        given = named(ids)
        encodings = [self._encoding(id) for id in given]
        if len(set(given)) < len(given):
            raise UnknownEncoding(max(given, key=given.count), released=True)
        for encoding in encodings:
            del self._encodings[encoding.id]
            self._scheduler.deferred.release([encoding.storage])

    def finished(self, id: EncodingId) -> bool:
        """Whether an id names an encoding: its call is done, and it was not released."""
        return is_id(id) and id in self._encodings and not self._ids.foreign(id)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return self._scheduler.idle

    @property
    def rows(self) -> int:
        """Decodes that run now."""
        return len(self._scheduler.rows)

    def _finished(self, encoding: Encoding) -> None:
        self._untold.append(encoding.id)
        self._waiting.pop(encoding.id, None)
        self._encodings[encoding.id] = encoding

    def _encoding(self, id: EncodingId) -> Encoding:
        if known_as_id(id) not in self._encodings or self._ids.foreign(id):
            raise self._missing(id)
        return self._encodings[id]

    def _missing(self, id: EncodingId) -> RequestError:
        if id in self._scheduler.in_flight and not self._ids.foreign(id):
            return BadParent(f"encoding {id} is not finished")
        return UnknownEncoding(id, self._ids.gave(id), self._ids.foreign(id))

    def _parent(self, id: EncodingId) -> Storage:
        """The storage of a finished encoding, or of a prefill that waits."""
        there = id in self._waiting and not self._ids.foreign(id)
        return self._waiting[id] if there else self._encoding(id).storage

    def _unsayable(self) -> Tensor:
        """Bool `[vocab]`: what no message may be made to say."""
        banned = torch.zeros(self._model.vocabulary, dtype=torch.bool, device=self._model.device)
        banned[self.framing.unsayable(self._model.vocabulary, len(self._model.tokenizer))] = True
        return banned

    def _encode_bos(self) -> Piece | None:
        """Encode the BOS once, at position 0, for every context to begin with."""
        if (bos := self.framing.bos) is None:
            return None
        return Piece(None, self._assembly.keep(Recipe((bos,), Context((), 0, self._model.origin), "")), 0)
