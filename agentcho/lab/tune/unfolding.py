"""Converts a workflow with known texts to the segments of one forward: what attends to what, at which positions.

The workflow is replayed through the resolver that games use, on an engine that computes nothing and reports every call
as finished, so that contexts and positions are those of inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agentcho.config import Leakage, Mode
from agentcho.engine.call_layout import KVEntry, Segment
from agentcho.engine.core import EngineCore
from agentcho.engine.framing import Framing
from agentcho.engine.protocols import Template
from agentcho.engine.virtual_runner import VirtualRunner, VirtualSlot, virtual
from agentcho.errors import RequestError
from agentcho.games.runs.replay import replay
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, EncodingId, Repair, SchedulingPriority, Shadow
from agentcho.records.trace import Workflow
from agentcho.reuse.method import Weighing
from agentcho.reuse.registry import READINGS

STRIDE = 1 << 20
"""Forced tokens per step: a whole message at once."""


class Unfolded(NamedTuple):
    """Segments in an order in which each follows what it attends to, the BOS first if the model has one.

    Only what agents say has wanted rows: row by row, `targets` are the ids to predict, those of the text and then the
    first of the closing, as in `Engine.score`.
    """

    segments: tuple[Segment, ...]
    targets: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """The tokens that one forward over it feeds."""
        return sum(len(segment.ids) for segment in self.segments)


class EngineTemplate(Protocol):
    """What unfolding needs from an engine: how it frames messages, and its number of positions."""

    framing: Framing
    context: int

    @property
    def fingerprint(self) -> dict[str, str]: ...


def unfold(workflow: Workflow, engine: EngineTemplate, mode: Mode, leakage: Leakage) -> Unfolded:
    """Everything that a play of this workflow with `mode` and `leakage` would feed and that agents' texts depend on.

    Raises what replay raises, before anything is computed: `RecordBroken`, `LeakageError`, `ContextOverflow`.
    """
    recording = RecordingEngine(engine)
    try:
        replay(workflow.whole, recording, mode=mode, leakage=leakage, logits=False, shadow="never", stride=STRIDE)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    segments = recording.segments
    needed = _needed(segments)
    return Unfolded(tuple(segment for segment in segments if segment in needed), recording.targets)


def _needed(segments: Sequence[Segment]) -> set[Segment]:
    """The segments with wanted rows, and all segments that these attend to."""
    needed = set[Segment]()
    for segment in reversed(segments):
        if segment.wanted or segment in needed:
            needed.add(segment)
            needed.update(piece.entry.segment for piece in segment.pieces if piece.entry.segment is not None)
    return needed


class RecordingRunner(VirtualRunner):
    """Records the segments of whole messages instead of running them. `segments` maps each entry to the segment that
    makes it."""

    origin = "recording"

    def __init__(self, template: Template) -> None:
        super().__init__()
        self.segments: dict[KVEntry, Segment] = {}
        self.targets: list[int] = []
        self._closing = len(template.closing("assistant"))

    def feed(self, segment: Segment) -> None:
        """Record the whole segment of a message with known text; for a row, the length of its opening and header."""
        if segment.entry is not None:
            self.segments[segment.entry] = segment
        elif (slot := virtual(segment)) is not None and slot.value is None:
            slot.value = len(segment.ids)

    def keep_fed(self, slot: VirtualSlot, entry: KVEntry) -> None:
        """Record the tokens of a decode as one segment, with a wanted row for each of its sampled tokens."""
        assert entry.recipe is not None
        tokens, context = entry.recipe.tokens, entry.recipe.context
        begin, end = slot.value, len(tokens) - self._closing
        wanted = range(begin - 1, end)
        self.segments[entry] = Segment(tokens, context.start, context.pieces, entry=entry, wanted=wanted)
        self.targets += tokens[begin : end + 1]


class RecordingEngine(EngineCore):
    """A core that records the segments that it would feed. Equal prefills share a segment."""

    _runner: RecordingRunner

    def __init__(self, engine: EngineTemplate) -> None:
        self._print = engine.fingerprint
        super().__init__(RecordingRunner(engine.framing), engine.framing, engine.context, 0)

    @property
    def fingerprint(self) -> dict[str, str]:
        """The fingerprint of the engine whose framing this is."""
        return self._print

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All recorded segments, each after those that it attends to; also sets each as the segment of its entry."""
        for entry, segment in self._runner.segments.items():
            entry.segment = segment
        return tuple(self._runner.segments.values())

    @property
    def targets(self) -> tuple[int, ...]:
        """See `Unfolded`."""
        return tuple(self._runner.targets)

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """See `EnginePort.submit`. `RequestError`: a shadow or a repair, or a call that weighs what it reads."""
        for call in calls:
            if isinstance(call, Shadow | Repair):
                raise RequestError(f"a {type(call).__name__} cannot be unfolded: train without repairs and shadows")
            if call.ape is not None:
                able = " or ".join(each.name for each in READINGS if not issubclass(each, Weighing))
                raise RequestError(f"reads weighted by {call.ape.name} cannot be unfolded: train with reuse {able}")
        return super().submit(calls, turn)
