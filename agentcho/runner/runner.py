"""Runs segments through the model: those of a step, those that choose the tokens of a repair, and those that make an
entry again.

The tokens of a message that a repair encodes anew are chosen as in CacheBlend (arXiv 2405.16444): those whose values at
an early layer differ most from newly encoded values. Keys and values of the first layer do not depend on the context,
so one layer of attention over the reused ones gives what a fresh encoding has at the second layer. The forward stops
there. Independent of the order of calls, of cache tiers, and of how logits are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from time import perf_counter

import torch
from torch import Tensor

from agentcho.engine.call_layout import EncodingRecipe, KVEntry, Segment
from agentcho.engine.call_layout import Slot as CoreSlot
from agentcho.engine.framing import Framing
from agentcho.engine.generation import SamplingDraw
from agentcho.engine.lora_adapter import Adapter
from agentcho.engine.protocols import TokenConstraint
from agentcho.engine.queue import TokenBudget
from agentcho.engine.sequence import Sequence as Repairing
from agentcho.errors import AdapterError
from agentcho.protocol.call import Logprobs, Sampling
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.tools import AnswerForm
from agentcho.reuse.method import ByAnchors
from agentcho.runner.attention.base import Locality, Scoring
from agentcho.runner.batch import Batch, Layers, commit
from agentcho.runner.costs import measure
from agentcho.runner.graphs import CudaGraphs
from agentcho.runner.invariance import prove_invariant_sizes
from agentcho.runner.kv.decode_kv import Slot
from agentcho.runner.kv.kv_pool import PagePool
from agentcho.runner.kv.rope import Rotation
from agentcho.runner.model.device import synchronize
from agentcho.runner.model.mixed_lora import OF_ITS_OWN, AdapterTokens, nan_hooks
from agentcho.runner.model.model import AttentionPort, Model
from agentcho.runner.reuse.deviation import COMPARED, most_deviating
from agentcho.runner.reuse.embeddings import distances
from agentcho.runner.reuse.kernels import assembly_kernel
from agentcho.runner.sampling.constraint import Constraints
from agentcho.runner.sampling.sampler import sample_tokens, top_logprobs
from agentcho.runner.sampling.token_mask import Banned
from agentcho.runner.slots import Slots

PROBE = (1, 2, 3)
"""The tokens used to check an adapter."""
FEW = 8
"""Steps of at most this many tokens read all weights once, and take about the same time."""


class TorchRunner:
    """One model over one pool of pages and its slots. `rotations`: the key rotation of each layer. See
    `runner_port.Runner`."""

    def __init__(
        self, model: Model, pages: PagePool, slots: Slots, rotations: Sequence[Rotation], template: Framing
    ) -> None:
        self._model, self.pages, self.slots = model, pages, slots
        self.origin, self.vocabulary, self.owner = model.origin, model.vocabulary, model.owner
        self.budget = budget_of(model.packed, model.device)
        self._constraints = Constraints(template, model.tokenizer, model.vocabulary)
        unsayable = template.unsayable(model.vocabulary, len(model.tokenizer))
        self._banned = Banned(unsayable, model.vocabulary, model.device)
        self._devices = [device for device in model.devices if device.type == "cuda"]
        self.asynchronous = bool(self._devices)
        self.layers = Layers(pages, rotations, model.device, slots.backends)
        captured = not self.layers.others and model.device.type == "cuda"
        self.graphs = CudaGraphs(model, self.layers) if captured else None
        self.costs: ForwardCosts | None = None

    def step(self, segments: Sequence[Segment]) -> tuple[list[Segment], Tensor]:
        """`run`, by a captured graph where there is one."""
        threads = self._model.threads
        if not threads.watched or sum(len(segment.ids) for segment in segments) > FEW:
            return self._stepped(segments)
        began = perf_counter()
        ran = self._stepped(segments)
        threads.took(perf_counter() - began)
        return ran

    def _stepped(self, segments: Sequence[Segment]) -> tuple[list[Segment], Tensor]:
        self._make_room(segments)
        rows = [] if self.graphs is None else self.graphs.taken(segments)
        if self.graphs is None or not rows:
            return self._forward(segments, brief=True)
        if len(rows) == len(segments):
            order, logits = self.graphs.run(rows)
            commit(order)
            return order, logits
        served = set(map(id, rows))
        batch = Batch([each for each in segments if id(each) not in served], self.layers)
        others = self._logits(batch, batch)  # first, since graph rows may read what these write
        order, logits = self.graphs.run(rows)
        commit([*batch.segments, *order])
        return [*batch.segments, *order], torch.cat([others, logits])

    def run(self, segments: Sequence[Segment]) -> tuple[list[Segment], Tensor]:
        """Run one forward and store its results; return the segments in the order of their rows of logits, and these
        rows. The same segments give the same bits, and rows that are `alone` give the bits that each gives by
        itself."""
        self._make_room(segments)
        return self._forward(segments, self._size(segments))

    @property
    def block(self) -> int:
        """See `runner_port.Runner.block`. The first access proves it, by some twenty forwards."""
        return max(self.sizes, default=0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of tokens that a forward of `alone` rows can have: see `invariance.prove_invariant_sizes`."""
        known, threads = self._model.sizes, (self._model.adapter, torch.get_num_threads())
        if threads not in known:
            known[threads] = prove_invariant_sizes(self._forward, self.slots)
        return known[threads]

    def _size(self, segments: Sequence[Segment]) -> int | None:
        """The number of tokens to which a forward of `alone` rows is padded, or None for no padding."""
        if not all(segment.alone and segment.adapter is None for segment in segments):
            return None
        self._model.threads.keep()
        tokens = sum(len(segment.ids) for segment in segments)
        return next((size for size in self.sizes if size >= tokens), None)

    def _forward(
        self, segments: Sequence[Segment], size: int | None = None, brief: bool = False
    ) -> tuple[list[Segment], Tensor]:
        batch = Batch(segments, self.layers, size=size)
        logits = self._logits(batch, batch, brief)
        batch.commit()
        return batch.segments, logits if batch.asked is None else logits[batch.asked]

    def _logits(self, batch: Batch, attending: AttentionPort, brief: bool = False) -> Tensor:
        """One forward of a batch, each token through the adapter of its segment."""
        if not any(segment.adapter for segment in batch.segments):
            return self._model.forward(batch.ids, batch.positions, batch.wanted, attending, brief)
        shares = split_by_adapter(batch.segments, batch.ids.device)
        with self._model.adapters.mixed.through(shares, batch.ids.shape[1], len(batch.wanted)):
            return self._model.forward(batch.ids, batch.positions, batch.wanted, attending, brief=brief)

    def admit(self, adapter: Adapter) -> str:
        """Load an adapter that calls may name; return the origin of the keys that it makes: its own, or the base's if
        nothing that it changes flows into keys or values. Raises `AdapterError` if it cannot be mixed with others."""
        base = self._model
        if base.adapter is not None or base.merged:
            raise AdapterError(adapter.path, "this engine was loaded with another adapter; load the base model alone")
        adapter.check_base({"model": base.source.name, "weights": base.weights})
        base.adapters.mix(adapter)
        through = copy(base)
        through.adapter = adapter.digest
        self._check_same(through, adapter)
        return through.origin if self._changes_keys(adapter.digest) else base.origin

    def _check_same(self, through: Model, adapter: Adapter) -> None:
        """Raise `AdapterError` unless an adapter's effect on its own tokens matches peft's own forward."""
        batch = Batch([Segment(PROBE, 0, wanted=(1,))], self.layers)
        theirs = through.forward(batch.ids, batch.positions, batch.wanted, batch)
        segments = [Segment(PROBE[::-1], 0), Segment(PROBE, 0, wanted=(1,), adapter=adapter.digest)]
        mixed = Batch(segments, self.layers)
        gap, scale = (self._logits(mixed, mixed) - theirs).abs().max(), theirs.abs().max().clamp(min=1)
        if not gap <= scale * torch.finfo(through.dtype).eps ** 0.5:
            found = f"in one forward with others it would be {float(gap):.2g} off what peft gives; {OF_ITS_OWN}"
            raise AdapterError(adapter.path, found)

    @torch.inference_mode()
    def _changes_keys(self, adapter: str) -> bool:
        """Whether anything that an adapter changes flows into keys or values of any layer. Its layers are made to
        return NaN; a NaN in a key or value then comes from them."""
        batch, hooks = Batch([Segment(PROBE, 0)], self.layers), nan_hooks(self._model.network, adapter)
        try:
            seen = _Numbers(batch)
            self._model.forward(batch.ids, batch.positions, batch.wanted, seen)
        finally:
            for hook in hooks:
                hook.remove()
        return not seen.all

    def _make_room(self, segments: Sequence[Segment]) -> None:
        """Move slots that are too narrow for the tokens fed now to wider pools."""
        for segment in segments:
            slot = segment.slot
            if slot is not None:
                assert isinstance(slot, Slot)
                gathered = segment.gathered if segment.pieces or segment.copied else 0
                tokens = slot.length + len(segment.ids) + gathered
                if tokens > slot.capacity:
                    self.slots.ensure(slot, tokens)

    def select(self, groups: Sequence[Sequence[Repairing]]) -> int:
        """Choose the tokens of repairs by how much their values differ, in one forward per group. Returns the cost in
        tokens: all tokens of each message times the share of layers that they went through, rounded up."""
        return sum(self._select(group) for group in groups if group)

    def _select(self, calls: Sequence[Repairing]) -> int:
        layer = min(COMPARED, self.pages.layers - 1)
        segments = [_whole(call) for call in calls]
        batch = Batch(segments, self.layers)
        values = _Values(batch, layer)
        with suppress(ForwardCutShort):
            self._logits(batch, values)
        assert values.found is not None
        for call, segment in zip(calls, segments, strict=True):
            assert call.repair is not None
            _, kept = self.pages.read(call.repair.base.entry.block, layer)
            call.choose(most_deviating(values.found[:, segment.span()], kept, call.repair.count))
        tokens = sum(len(segment.ids) for segment in segments)
        return -(-tokens * (layer + 1) // self.pages.layers)

    def sample(self, rows: Sequence[Tensor], draws: Sequence[SamplingDraw]) -> list[int | None]:
        """One token for each row of logits `[vocab]`, or None for a row from which no token can be drawn."""
        return sample_tokens(torch.stack(list(rows)), draws, self._banned)

    def likely(self, rows: Sequence[Tensor], asked: Sequence[tuple[int, int]]) -> list[Logprobs]:
        """See `sampler.top_logprobs`."""
        return top_logprobs(torch.stack(list(rows)), asked)

    def keep(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """These rows, copied to the CPU."""
        return [row.cpu() for row in rows]

    def constrain(self, sampling: Sampling, forms: Sequence[AnswerForm], begun: bool) -> TokenConstraint | None:
        """See `Constraints.of`."""
        free = sampling.choices is None and sampling.json_schema is None and not forms
        return None if free else self._constraints.of(sampling, forms, begun)

    def store(self, slot: CoreSlot, start: int, entry: KVEntry) -> None:
        """Copy the keys and values of a row's own tokens, from token `start` of its slot on, into the pages of an
        entry."""
        assert isinstance(slot, Slot)
        self.pages.write_all(entry.block, slot.all(start, start + entry.length))

    def measure(self, context: int) -> ForwardCosts:
        """See `costs.measure`. It runs in a thread that ends with it, for torch keeps a pool of compute threads for
        each living thread that has called it, and a second pool makes every later step half as long again."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(measure, self, self.slots, context).result()

    def synchronize(self) -> None:
        """Wait until the devices have finished all queued work. A CPU computes synchronously."""
        synchronize(*self._devices)

    def probe(self) -> None:
        """Free unused memory, and do a trivial operation on each device. Raises whatever that raises."""
        for device in self._model.devices:
            if device.type == "cuda":
                torch.cuda.empty_cache()
            assert torch.ones(2, device=device).sum().item() == 2

    def apart(self, tokens: Sequence[int], others: Sequence[Sequence[int]]) -> list[float]:
        """See `runner_port.Runner.apart`; uses the model's input embeddings."""
        return distances(self._model.network.get_input_embeddings().weight, tokens, others)  # type: ignore[operator]

    def make(self, entry: KVEntry) -> int:
        """Compute an entry into its pages by its recipe, in forwards of its own; return the number of tokens fed. Its
        sources must be in the store.

        The result is bit-identical if the entry was first made by `run` in a forward of its own, or in feeds that the
        recipe names.
        """
        assert entry.recipe is not None
        if entry.recipe.anchors:
            assert isinstance(entry.recipe.choose, ByAnchors)
            assembly_kernel(entry.recipe.choose)(self.pages, self.layers.rotations, entry)
            return 0
        if entry.recipe.feeds:
            return self._make_stepwise(entry, entry.recipe)
        segment = entry.recipe.segment(entry)
        self.run([segment])
        return len(segment.ids)

    def _make_stepwise(self, entry: KVEntry, recipe: EncodingRecipe) -> int:
        """Run the same forwards that the row went through, in a slot of the same size."""
        context, fed = recipe.context, 0
        slot = self.slots.open(context.length + 2 * recipe.feeds[0], alone=True)
        try:
            for feed in recipe.feeds:
                ids, pieces = recipe.tokens[fed : fed + feed], () if fed else context.pieces
                part = Segment(ids, context.start + fed, pieces, slot, adapter=context.adapter)
                part.parallel = context.parallel
                self.run([part])
                fed += feed
            self.pages.write_all(entry.block, slot.all(context.length, slot.length))
        finally:
            self.slots.close(slot)
        return fed


def budget_of(packed: int, device: torch.device) -> TokenBudget:
    """The token budget of a model. A step reads all weights once. Further tokens are admitted up to the number that
    takes about as long, so that no step takes more than twice its time alone (`python -m tools.bench stall` measures
    it)."""
    return TokenBudget(packed, 512 if device.type == "cuda" else 16)


class ForwardCutShort(Exception):
    """Raised to leave a forward when it reaches the layer whose values are compared."""


class _Values:
    """Serves the attention of a forward up to one layer, and keeps the values `[heads, tokens, dim]` of that layer."""

    def __init__(self, batch: Batch, layer: int) -> None:
        self._batch, self._layer = batch, layer
        self.found: Tensor | None = None

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`. Raises `ForwardCutShort` at its layer."""
        if layer < self._layer:
            return self._batch.attend(layer, queries, keys, values, locality, scoring)
        self.found = self._batch.pages.as_read(values[0])
        raise ForwardCutShort


class _Numbers:
    """Serves the attention of a forward. `all`: no key or value was NaN so far."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self.all = batch, True

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        self.all = self.all and not bool(keys.isnan().any() or values.isnan().any())
        return self._batch.attend(layer, queries, keys, values, locality, scoring)


def split_by_adapter(segments: Sequence[Segment], device: torch.device) -> list[AdapterTokens]:
    """The tokens of a forward by adapter, and their rows of logits. Tokens that use the base model alone are in none.
    `segments` are in the order of their tokens."""
    tokens, wanted, row = dict[str, list[int]](), dict[str, list[int]](), 0
    for segment in segments:
        if segment.adapter is not None:
            tokens.setdefault(segment.adapter, []).extend(range(segment.first, segment.first + len(segment.ids)))
            wanted.setdefault(segment.adapter, []).extend(range(row, row + len(segment.wanted)))
        row += len(segment.wanted)
    if len(tokens) == 1 and all(segment.adapter for segment in segments):
        return [AdapterTokens(name, None, None) for name in tokens]
    return [
        AdapterTokens(
            name, torch.tensor(tokens[name], device=device), torch.tensor(wanted[name], device=device, dtype=torch.long)
        )
        for name in tokens
    ]


def _whole(call: Repairing) -> Segment:
    """A segment of all tokens of a repair's message over the context in which they are compared; nothing of it is
    stored."""
    assert call.words is not None
    assert call.repair is not None
    judged = call.repair.judged
    assert judged is not None
    return Segment(call.words.tokens, judged.start, judged.pieces, adapter=judged.adapter)
