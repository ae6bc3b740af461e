"""An `EnginePort` that forwards everything to a real engine; subclasses override what they observe or change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentcho import Engine
from agentcho.engine.framing import Framing
from agentcho.message import Words
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, EncodingId, Receipt, SchedulingPriority, StepResult
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.ownership import Owner


class Around:
    """Forwards all of `EnginePort` to `engine`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def take_place(self, place: int, prefill_budget: int | None = None) -> None:
        self.engine.take_place(place, prefill_budget)

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        return self.engine.submit(calls, turn)

    def step(self, deterministic: bool = False) -> StepResult:
        return self.engine.step(deterministic)

    def cancel(self, ids: Iterable[EncodingId]) -> None:
        self.engine.cancel(ids)

    def release(self, ids: Iterable[EncodingId]) -> None:
        self.engine.release(ids)

    def swap_out(self, ids: Iterable[EncodingId]) -> None:
        self.engine.swap_out(ids)

    def speculate(self, costs: ForwardCosts | None = None) -> ForwardCosts | None:
        return self.engine.speculate(costs)

    def message(self, id: EncodingId) -> Words:
        return self.engine.message(id)

    def receipt(self, id: EncodingId) -> Receipt:
        return self.engine.receipt(id)

    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Words:
        return self.engine.frame(role, name, text, tokens)

    @property
    def framing(self) -> Framing:
        return self.engine.framing

    @property
    def context(self) -> int:
        return self.engine.context

    @property
    def bos(self) -> int:
        return self.engine.bos

    @property
    def owner(self) -> Owner:
        return self.engine.owner

    @property
    def idle(self) -> bool:
        return self.engine.idle

    @property
    def fingerprint(self) -> dict[str, str]:
        return self.engine.fingerprint
