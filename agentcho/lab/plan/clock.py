"""An engine that computes nothing and keeps a virtual clock; the core, the scheduler and the choreographer are the real
ones.

A forward costs the larger of FLOPs / peak and bytes / bandwidth, plus its launches and the host's time. Independent of
workflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentcho.engine.call_layout import ContextPiece, KVEntry, Segment
from agentcho.engine.core import EngineCore
from agentcho.engine.fake.toy_tokenizer import FakeFraming
from agentcho.engine.queue import TokenBudget
from agentcho.engine.runner_port import Ran
from agentcho.engine.virtual_runner import VirtualRunner, VirtualSlot, virtual
from agentcho.lab.plan.hardware import Hardware
from agentcho.lab.plan.shape import CostShape
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, EncodingId, SchedulingPriority, StepResult

PACKED = 4096
"""Maximum of tokens in one forward, as in an engine with a model."""
LETTERS = 4
"""Letters per token of a word in a trace."""


def forward_seconds(machine: Hardware, model: CostShape, segments: Sequence[Segment]) -> float:
    """The seconds of one forward of these segments."""
    tokens = pairs = wanted = rows = read = 0
    begins = False
    for segment in segments:
        fed = len(segment.ids)
        before = _depth(segment)
        tokens += fed
        wanted += len(segment.wanted)
        rows += segment.slot is not None
        begins = begins or _begins(segment)
        read += before
        pairs += fed * before + fed * (fed + 1) // 2
    flops = 2 * (tokens * model.layer_weights + wanted * model.head_weights)
    flops += 4 * pairs * model.query_size * model.layers
    weights = model.layer_weights + (model.head_weights if wanted else 0)
    moved = weights * model.bytes + (read + tokens) * model.token_bytes
    computing = flops / (machine.flops * machine.compute_efficiency)
    moving = moved / (machine.bandwidth * machine.bandwidth_efficiency)
    launches = machine.launch_seconds * machine.layer_launches * model.layers
    host = machine.step_seconds + rows * machine.row_seconds + begins * machine.begin_seconds
    return max(computing, moving) + launches + host


def _begins(segment: Segment) -> bool:
    """Whether the segment is the first one fed to its slot."""
    slot = virtual(segment)
    return slot is not None and slot.value is None


def _depth(segment: Segment) -> int:
    """The number of tokens that a segment attends to besides its own. A slot counts what it was fed in `value`."""
    slot = virtual(segment)
    if slot is None:
        pieces: Iterable[ContextPiece] = segment.pieces
        return segment.done + sum(piece.entry.length for piece in pieces)
    return int(slot.value or 0) + sum(piece.entry.length for piece in slot.pieces)


class ClockRunner(VirtualRunner):
    """Advances `seconds` by the cost of each forward."""

    origin = "clock"

    def __init__(self, machine: Hardware, model: CostShape) -> None:
        super().__init__()
        self._machine, self._model = machine, model
        self.budget = TokenBudget(PACKED, machine.beside)
        self.seconds = 0.0
        self.highest = 0

    def run(self, segments: Sequence[Segment]) -> Ran:
        """See `VirtualRunner.run`."""
        self.seconds += forward_seconds(self._machine, self._model, segments)
        ran = super().run(segments)
        self.highest = max(self.highest, self.pages.used + self.pages.reserved)
        return ran

    def feed(self, segment: Segment) -> None:
        """Count what a slot was fed."""
        if (slot := virtual(segment)) is not None:
            slot.value = int(slot.value or 0) + len(segment.ids)

    def keep_fed(self, slot: VirtualSlot, entry: KVEntry) -> None:
        """Do nothing: a slot has no content."""


class ClockEngine(EngineCore):
    """A core on a `ClockRunner`. `submitted`, `first` and `ended` are virtual seconds by encoding."""

    _runner: ClockRunner

    def __init__(self, machine: Hardware, model: CostShape) -> None:
        self.submitted = dict[EncodingId, float]()
        self.first = dict[EncodingId, float]()
        self.ended = dict[EncodingId, float]()
        super().__init__(ClockRunner(machine, model), FakeFraming(letters=LETTERS), 1 << 60, 0)

    @property
    def fingerprint(self) -> dict[str, str]:
        """The engine's identity in a run record."""
        return {"model": "clock", "model_type": "clock", "tokenizer": "words", "dtype": "none", "device": "none"}

    @property
    def seconds(self) -> float:
        """The virtual time."""
        return self._runner.seconds

    @property
    def highest(self) -> int:
        """The maximum of tokens in the KV cache at once, stored or reserved."""
        return self._runner.highest

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """See `EngineCore.submit`."""
        ids = super().submit(calls, turn)
        self.submitted.update(dict.fromkeys(ids, self.seconds))
        return ids

    def step(self, deterministic: bool = False) -> StepResult:
        """See `EngineCore.step`."""
        result = super().step(deterministic)
        for token in result.spoken:
            self.first.setdefault(token.id, self.seconds)
        self.ended.update(dict.fromkeys(result.finished, self.seconds))
        return result
