"""What the core of an engine needs of a `Runner`, which computes, and of its slots.

No torch: the runner of a model keeps tensors behind these types, other runners keep none. Does not know: when calls
run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from agentcho.engine.call_layout import CallContext, KVEntry, Segment, Slot
from agentcho.engine.generation import SamplingDraw
from agentcho.engine.protocols import KVPool, Row, TokenConstraint
from agentcho.engine.queue import TokenBudget
from agentcho.engine.sequence import Sequence as Admitted
from agentcho.protocol.call import Logprobs, Sampling
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.ownership import Owner
from agentcho.protocol.tools import AnswerForm

Ran = tuple[list[Segment], Any]
"""What a forward returns: its segments in the order of their rows of logits, and a sequence of these rows, one for each
wanted token."""


class Slots(Protocol):
    """The places where running decodes keep the keys and values that they attend to."""

    def expect(self, contexts: Iterable[CallContext]) -> None: ...
    def take(self, context: CallContext, feed: int, alone: bool, apart: bool) -> Slot: ...
    def open(self, tokens: int, alone: bool = False) -> Slot: ...
    def close(self, slot: Slot) -> None: ...
    def retract(self, slot: Slot, tokens: int) -> None:
        """Forget the last tokens that a row was fed."""

    def clear(self) -> None: ...


class Runner(Protocol):
    """Computes. `origin` is its name in every key. Token ids are below `vocabulary` (None: whatever ids the template
    knows). `budget` is what fits in one of its forwards. `owner` says who may call it. It keeps no state but its pages
    and slots."""

    @property
    def pages(self) -> KVPool: ...
    @property
    def slots(self) -> Slots: ...
    @property
    def origin(self) -> str: ...
    @property
    def vocabulary(self) -> int | None: ...
    @property
    def budget(self) -> TokenBudget: ...
    @property
    def owner(self) -> Owner: ...

    @property
    def block(self) -> int:
        """How many tokens of rows that are `Segment.alone` one forward of `run` takes so that no bit of one row depends
        on another; 0: each has a forward of its own."""

    costs: ForwardCosts | None
    """What forwards take, by which guesses are weighed; None: it was not measured, and nothing is guessed."""

    def measure(self, context: int) -> ForwardCosts | None:
        """Time forwards of running rows, in a model of so many positions, while none is running. None: they take no
        time."""

    @property
    def asynchronous(self) -> bool:
        """Whether a forward may still be under way when its method has returned."""

    def step(self, segments: Sequence[Segment]) -> Ran:
        """Run one forward of a step by the fastest way there is, and store its results."""

    def run(self, segments: Sequence[Segment]) -> Ran:
        """Run one forward and store its results. The same segments give the same bits, and rows that are
        `Segment.alone`, at most `block` tokens together, give those that each gives by itself."""

    def select(self, groups: Sequence[Sequence[Admitted]]) -> int:
        """Choose which tokens of these repairs are encoded anew, in one forward a group; returns the number of tokens
        fed for that."""

    def apart(self, tokens: Sequence[int], others: Sequence[Sequence[int]]) -> Sequence[float]:
        """How far the input embeddings of these tokens are from those of as many first tokens of each other, which has
        no fewer: L2 norms."""

    def make(self, entry: KVEntry) -> int:
        """Compute the keys and values of an entry by its recipe and write them into its pages; returns the number of
        tokens fed."""

    def store(self, slot: Slot, start: int, entry: KVEntry) -> None:
        """Move what a decode has in its slot, from token `start` on, into the pages of an entry."""

    def sample(self, rows: Sequence[Row], draws: Sequence[SamplingDraw]) -> list[int | None]:
        """A token for each row of logits; None where a row has no token that can be drawn."""

    def likely(self, rows: Sequence[Row], asked: Sequence[tuple[int, int]]) -> list[Logprobs]:
        """For each row of logits, and a token and a number: the natural logarithms of the probabilities of this token,
        and then of so many of the likeliest ones. See `SampledToken.likely`."""

    def keep(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The same rows, copied so that they stay valid after the step."""

    def constrain(self, sampling: Sampling, forms: Sequence[AnswerForm], begun: bool) -> TokenConstraint | None:
        """The constraint of a decode with these options, written in one of these forms if there are any; None where it
        may say anything. `begun`: the message has a header, so that what is said goes on with it. `RequestError`:
        nothing can satisfy them."""

    def synchronize(self) -> None:
        """Wait until all forwards that were asked for are done."""

    def probe(self) -> None:
        """Do a trivial operation on each device. If that raises, the device has failed."""
