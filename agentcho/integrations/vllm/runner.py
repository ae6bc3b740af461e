"""Runs the forwards of an engine's core on vLLM, in this process.

Moves keys and values between the core's store and vLLM's cache, rotates keys on the way, and steps vLLM. Independent of
the order of calls and of what is drawn from logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Protocol

import torch
from torch import Tensor

from agentcho.engine.call_layout import CallContext, ContextPiece, KVEntry, Segment
from agentcho.engine.call_layout import Slot as CoreSlot
from agentcho.engine.framing import Framing
from agentcho.engine.generation import SamplingDraw
from agentcho.engine.protocols import TokenConstraint
from agentcho.engine.queue import TokenBudget
from agentcho.engine.runner_port import Ran
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.errors import CallFailed, EngineFailed, RequestError
from agentcho.integrations.vllm.jobs import Job, Jobs
from agentcho.integrations.vllm.mover import Load, Mover, MovesKV, Read, Save
from agentcho.protocol.call import Logprobs, Sampling
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.ownership import Owner
from agentcho.protocol.tools import AnswerForm
from agentcho.runner.kv.kv_pool import PagePool
from agentcho.runner.sampling.constraint import Constraints
from agentcho.runner.sampling.sampler import sample_tokens, top_logprobs
from agentcho.runner.sampling.token_mask import Banned

PROBE = 64
"""Number of positions at which the rotation of keys is measured."""
WHOLE = 4096
"""Tokens that one forward of the core may take; vLLM has its own limit."""


class ClientPort(Protocol):
    """See `client.Client`."""

    @property
    def longest(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def usage(self) -> float: ...
    def add(self, job: Job) -> str: ...
    def step(self) -> dict[str, bool]: ...
    def extend(self, job: Job) -> None: ...
    def abort(self, job: Job) -> None: ...
    def close(self) -> None: ...


class VllmRunner:
    """One model in vLLM, over one pool of pages. See `runner_port.Runner`.

    Args:
        client: vLLM.
        jobs: Its requests.
        pages: The store.
        mover: Moves keys and values between the store and vLLM's cache.
        template: The framing of messages.
        tokenizer: The Hugging Face tokenizer.
        origin: A name for keys that no other model has.
    """

    asynchronous = False
    block = 0

    def __init__(
        self,
        client: ClientPort,
        jobs: Jobs,
        pages: PagePool,
        mover: MovesKV,
        template: Framing,
        tokenizer: Any,
        origin: str,
    ) -> None:
        self._client = client
        self.jobs, self.pages = jobs, pages
        self._mover = mover
        self.origin = origin
        self.vocabulary, self.longest = client.vocabulary, client.longest
        self.owner, self.budget = Owner(), TokenBudget(WHOLE, WHOLE)
        self.slots = VllmSlots(self)
        self.costs: ForwardCosts | None = None
        self._constraints = Constraints(template, tokenizer, self.vocabulary)
        unsayable = template.unsayable(self.vocabulary, len(tokenizer))
        self._banned = Banned(unsayable, self.vocabulary, mover.device)
        self._names = count()

    @property
    def usage(self) -> float:
        """The share of vLLM's cache that requests occupy."""
        return self._client.usage

    @property
    def device(self) -> torch.device:
        """The device of the rows of logits."""
        return self._mover.device

    # -- requests --------------------------------------------------------------------------------------------

    def job(
        self,
        pieces: Sequence[ContextPiece],
        start: int,
        own: Sequence[int],
        asks: Callable[[], None] = lambda: None,
    ) -> Job:
        """Make a request that reads these encodings and computes these tokens, without giving it to vLLM yet.
        `CallFailed`: it needs more slots than vLLM allows for one request."""
        job = Job(
            f"agentcho-{next(self._names)}",
            stored=tuple(pieces),
            start=start,
            own=tuple(own),
            asks=asks,
        )
        if (slots := job.before + len(job.own) + 1) > self.longest:
            raise CallFailed(f"the call needs {slots} slots, but vLLM has {self.longest}; raise max_model_len")
        return job

    def send(self, job: Job) -> None:
        """Give a request to vLLM."""
        self.jobs.live[job.name] = job
        job.sent = True
        job.inner = self._client.add(job)
        self.jobs.live[job.inner] = job

    def step(self, segments: Sequence[Segment]) -> Ran:
        """Not used: vLLM decides what runs in a step."""
        raise NotImplementedError

    run = step

    def advance(self) -> None:
        """Run one step of vLLM. Paused requests continue with the tokens that are known. Requests that vLLM ended get
        an `error`. `EngineFailed`: vLLM failed."""
        try:
            for name, paused in self._client.step().items():
                self._stopped(self.jobs.get(name), paused)
        except EngineFailed:
            raise
        except Exception as error:
            raise EngineFailed.of(error) from error

    def _stopped(self, job: Job | None, paused: bool) -> None:
        if job is None or job.done:
            return
        if not (paused and job.paused) or job.error is not None:
            job.error = job.error or CallFailed("vLLM ended its request")
            return
        if job.more:
            self.go_on(job, job.more)

    def go_on(self, job: Job, tokens: Sequence[int]) -> None:
        """Give a paused request its next tokens. `EngineFailed`: vLLM failed."""
        job.more, job.paused = tuple(tokens), False
        self._client.extend(job)
        job.grown += len(job.more)
        job.more = ()

    def end(self, job: Job) -> None:
        """Abort a request, if vLLM has it."""
        if job.sent:
            job.sent = False
            self._client.abort(job)
            for name in (job.name, job.inner):
                self.jobs.live.pop(name, None)

    def make(self, entry: KVEntry) -> int:
        """See `runner_port.Runner.make`. Uses a request of its own, which runs alongside the others."""
        recipe = entry.recipe
        assert recipe is not None
        job = self.job(recipe.context.pieces, recipe.context.start, recipe.tokens)
        self.send(job)
        try:
            while not job.done:
                self.advance()
                if job.error is not None:
                    raise job.error
            self.store(job, job.before, entry)
            entry.written = entry.length
        finally:
            self.end(job)
        return entry.length

    def turn_errors(self, token: int, count: int = PROBE) -> list[float]:
        """How far keys are from being rotated as their layer's rotation says, by layer, as a share of the largest key.

        One token is repeated. Whatever the weights are, every position then has the same input in every layer, so the
        keys of a layer differ only by the rotation.
        """
        job = self.job((), 0, (token,) * count)
        self.send(job)
        try:
            while not job.done and job.error is None:
                self.advance()
            if job.error is not None:
                raise job.error
            return self._mover.turn_errors(job.blocks, count)
        finally:
            self.end(job)

    # -- keys and values -------------------------------------------------------------------------------------

    def store(self, slot: CoreSlot, start: int, entry: KVEntry) -> None:
        """Copy what a request has computed, from slot `start` on, into the pages of an entry, with its keys rotated to
        the logical positions of the core."""
        assert isinstance(slot, Job)
        self._mover.save(Save(tuple(slot.blocks), start, entry.block.rows, -slot.shift))

    # -- tokens ----------------------------------------------------------------------------------------------

    def sample(self, rows: Sequence[Tensor], draws: Sequence[SamplingDraw]) -> list[int | None]:
        """See `runner_port.Runner.sample`."""
        return sample_tokens(torch.stack(list(rows)), draws, self._banned)

    def likely(self, rows: Sequence[Tensor], asked: Sequence[tuple[int, int]]) -> list[Logprobs]:
        """See `sampler.top_logprobs`."""
        return top_logprobs(torch.stack(list(rows)), asked)

    def keep(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Copies of these rows on the CPU."""
        return [row.cpu().clone() for row in rows]

    def constrain(self, sampling: Sampling, forms: Sequence[AnswerForm], begun: bool) -> TokenConstraint | None:
        """See `Constraints.of`."""
        free = sampling.choices is None and sampling.json_schema is None and not forms
        return None if free else self._constraints.of(sampling, forms, begun)

    # -- not done by vLLM ------------------------------------------------------------------------------------

    def select(self, groups: Sequence[Sequence[Admitted]]) -> int:
        """Not used: see `apart`."""
        raise NotImplementedError

    def apart(self, tokens: Sequence[int], others: Sequence[Sequence[int]]) -> Sequence[float]:
        """`RequestError`: tokens in the middle of a message cannot be computed alone."""
        raise RequestError(NO_REPAIR)

    def measure(self, context: int) -> ForwardCosts | None:
        """None: tokens are not speculated on."""
        return None

    def synchronize(self) -> None:
        """No-op: a step of vLLM has finished when it returns."""

    def close(self) -> None:
        """Close vLLM."""
        self._client.close()

    def probe(self) -> None:
        """Do a trivial operation on each device."""
        self._mover.probe()


def load_of(job: Job) -> Load:
    """What fills the slots of a job, each encoding rotated to its position there."""
    rows = [piece.entry.block.rows for piece in job.stored]
    return Load(
        blocks=tuple(job.blocks),
        rows=torch.cat(rows) if rows else torch.empty(0, dtype=torch.long),
        reads=tuple(Read(piece.entry.length, piece.shift + job.shift, offset=piece.offset) for piece in job.stored),
    )


def fill(mover: Mover, job: Job) -> None:
    """Fill the slots that a job reads, and note what was written."""
    job.written += mover.load(load_of(job))


NO_REPAIR = (
    "engine vllm cannot repair messages: vLLM computes only the end of a prompt, not tokens in "
    "the middle; remove repair, or use agentcho's own engine"
)


class VllmSlots:
    """See `runner_port.Slots`. The slot of a decode is its request."""

    def __init__(self, runner: VllmRunner) -> None:
        self._runner, self._open = runner, set[Job]()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._open)

    def expect(self, contexts: Iterable[CallContext]) -> None:
        """No-op: slots share nothing."""

    def take(self, context: CallContext, feed: int, alone: bool, apart: bool) -> Job:
        """Make a request for a decode, without tokens of its own yet."""
        job = self._runner.job(context.pieces, context.start, ())
        self._open.add(job)
        return job

    def open(self, tokens: int, alone: bool = False) -> Job:
        """Not used: nothing is encoded in parts."""
        raise NotImplementedError

    def close(self, slot: CoreSlot) -> None:
        """Abort the request."""
        assert isinstance(slot, Job)
        self._open.discard(slot)
        self._runner.end(slot)

    def retract(self, slot: CoreSlot, tokens: int) -> None:
        """Not used: without speculation nothing is taken back."""
        raise NotImplementedError

    def clear(self) -> None:
        """No-op: slots share nothing."""
