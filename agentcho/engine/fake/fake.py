"""An engine without a model and without torch, for tests of agents and scenarios.

It is an `EngineCore` over a runner that computes nothing. Ids, positions, receipts, endings, errors and storage are as
with a model. Its texts come from `reply` and `answer`, or are made up from the call's seed and prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from agentcho.engine.call_layout import KVEntry, Segment
from agentcho.engine.core import EngineCore, Local
from agentcho.engine.fake.scripted_decodes import Reply, Script, scripted
from agentcho.engine.fake.toy_tokenizer import AROUND, FakeFraming
from agentcho.engine.forward_plan import ForwardPlan
from agentcho.engine.generation import SamplingDraw
from agentcho.engine.protocols import Row, TokenConstraint
from agentcho.engine.runner_port import Ran
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.engine.virtual_runner import VirtualRunner, VirtualSlot
from agentcho.errors import EngineFailed
from agentcho.message import Words
from agentcho.protocol.call import Call, Decode, EncodingId, Prefill, Repair, StepResult
from agentcho.protocol.call_validation import checked_ids
from agentcho.protocol.ownership import owned

BATCHES = 100_000
"""Minimum number of last steps whose ids are kept. At most twice as many are kept, because a server's engine steps
forever."""


class ScriptedRunner(VirtualRunner):
    """Samples the next token of each decode's script. Segments in `faults` fail, alone or beside others."""

    origin = "fake"

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[int, Exception] = {}

    def feed(self, segment: Segment) -> None:
        """Compute nothing. Raises the fault of the segment."""
        if (fault := self.faults.get(id(segment))) is not None:
            raise fault

    def run(self, segments: Sequence[Segment]) -> Ran:
        """Raise the faults of all segments before anything is stored; then compute nothing."""
        if self.faults:
            for segment in segments:
                self.feed(segment)
        return super().run(segments)

    def keep_fed(self, slot: VirtualSlot, entry: KVEntry) -> None:
        """Do nothing: there is nothing to store."""

    def sample(self, rows: Sequence[Row], draws: Sequence[SamplingDraw]) -> list[int | None]:
        """The next token of each script."""
        return [draw.allowed for draw in draws]


class FakeEngine(EngineCore):
    """An engine without a model.

    Args:
        reply: Returns the text of a decode, from the call and the text of its parents. None makes up some words.
        answer: Returns the text of a decode with choices or a JSON schema, from the same. None takes one of the
            choices, or the smallest document.
        bos: Whether contexts begin with a BOS.
        letters: Maximum number of characters of a word in one token, which makes another tokenizer. None means whole
            words.
        thinks: Whether replies may begin with a thought, `<think> ... </think>`.
        keeps_thoughts: Whether the template keeps the thoughts of earlier answers.
        context: Number of positions.
        faulty: Returns an error that a decode fails with, or None. An error that is not one of agentcho's comes out as
            `CallFailed`. None for no errors.
        store_tokens: Size of the store, in tokens, for `StepResult.held`. No encoding ever has to leave it. None for no
            bound.

    Attributes:
        broken: An error that makes the next step fail, as a failing device does. None for none.
        guilty: As `faulty`, for every kind of call.
        steps: Number of steps so far.
        batches: Ids in each of the last steps.
        swapped: Ids that were to be swapped out.
    """

    _runner: ScriptedRunner
    framing: FakeFraming

    def __init__(
        self,
        reply: Reply | None = None,
        *,
        answer: Reply | None = None,
        bos: bool = True,
        letters: int | None = None,
        thinks: bool = False,
        keeps_thoughts: bool = False,
        context: int = 4096,
        faulty: Callable[[Decode], Exception | None] | None = None,
        store_tokens: int | None = None,
    ) -> None:
        super().__init__(ScriptedRunner(), FakeFraming(bos, letters, thinks, keeps_thoughts), context, 0)
        self._tokenizer = "fake" if letters is None else f"fake of {letters} letters"
        self._script = Script(reply, answer)
        self._faulty = faulty
        self._whole = store_tokens or inf
        self.broken: Exception | None = None
        self.guilty: Callable[[Call], Exception | None] = lambda call: None
        self.steps = 0
        self.batches: list[tuple[EncodingId, ...]] = []
        self.swapped: list[EncodingId] = []

    def meet(self, *texts: str) -> None:
        """Learn the long words of texts that another engine generated, so that their tokens can be decoded here.

        Args:
            *texts: The texts.
        """
        for text in texts:
            self.framing.content.encode(text)
            for piece in AROUND.split(text):
                self.framing.content.encode(piece)

    def mix(self, adapter: str) -> str:
        """Let calls name an adapter, which only separates keys; see `Engine.mix`.

        Args:
            adapter: Any name.

        Returns:
            The name.
        """
        self._admit_adapter(adapter, f"{self._runner.origin} {adapter}")
        return adapter

    @property
    def pages(self) -> int:
        """The number of messages that are stored."""
        return len(self._tiers.resident) - self.bos

    @property
    def fingerprint(self) -> dict[str, str]:
        """The names of model, tokenizer, dtype and device for a run record."""
        return {"model": "fake", "model_type": "fake", "tokenizer": self._tokenizer, "dtype": "none", "device": "none"}

    @owned
    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`."""
        if not self.idle and self.broken is None:
            self.steps += 1
            self.batches.append(tuple(sorted(call.id for call in self._scheduler.calls)))
            del self.batches[: BATCHES if len(self.batches) > 2 * BATCHES else 0]
        result = super().step(deterministic)
        running = sum(row.fed for row in self._scheduler.rows)
        return result._replace(held=(self.store.used - self.bos + running) / self._whole)

    @owned
    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        """See `EnginePort.swap_out`. Nothing moves, and the ids are noted in `swapped`."""
        self.swapped += [self._encoding(id).id for id in checked_ids(ids)]

    def _forward(self, plan: ForwardPlan) -> Ran:
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise EngineFailed.of(error) from error
        faults = ((segment, self._fault(each)) for each, segment in zip(plan.sequences, plan.segments, strict=True))
        self._runner.faults = {id(segment): fault for segment, fault in faults if fault is not None}
        return super()._forward(plan)

    def _fault(self, sequence: Admitted) -> Exception | None:
        """Return the error that the forward pass of a call raises, or None."""
        call = sequence.call
        if (raised := self.guilty(call)) is not None:
            return raised
        return self._faulty(call) if self._faulty and isinstance(call, Decode) else None

    def _constrain(self, call: Decode, local: Local) -> TokenConstraint | None:
        words = self.framing.content
        parents = (self._words(parent, local) for parent in call.parents)
        prompt = "\n".join(words.decode(parent.tokens[slice(*parent.content)]) for parent in parents)
        return scripted(call, self._script.text(call, prompt), words, self.framing.end)

    def _words(self, parent: EncodingId | Prefill | Repair, local: Local) -> Words:
        """Return the words of a parent that is stored, waits, or is in the same list."""
        if isinstance(parent, Prefill | Repair):
            known = local[id(parent)].words
        else:
            known = self._waiting[parent].words if parent in self._waiting else self.message(parent)
        assert known is not None
        return known
