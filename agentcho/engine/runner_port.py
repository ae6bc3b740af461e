"""The interface between the core of an engine and its `Runner`, which computes, with the runner's slots.

No torch: the runner of a model keeps tensors behind these types, other runners keep none. Independent of scheduling.
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
        """Remove the last `tokens` tokens that were fed into a slot."""

    def clear(self) -> None: ...


class Runner(Protocol):
    """Computes forwards. `origin` is its name in every key. Token ids are below `vocabulary` (None: any ids that the
    template knows). `budget` is what fits into one of its forwards. `owner` controls who may call it. It has no state
    except its pages and slots."""

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
        """How many tokens of rows that are `Segment.alone` one forward of `run` can take such that no bit of one row
        depends on another. 0 if each needs a forward of its own."""

    costs: ForwardCosts | None
    """The costs of forwards, which decide how many tokens to draft. None if they were not measured: no drafts then."""

    def measure(self, context: int) -> ForwardCosts | None:
        """Time forwards of rows in a model with `context` positions. No row may be running. None if forwards take no
        time."""

    @property
    def asynchronous(self) -> bool:
        """Whether a forward may still be running when its method has returned."""

    def step(self, segments: Sequence[Segment]) -> Ran:
        """Run one forward of a step in the fastest way, and store its results."""

    def run(self, segments: Sequence[Segment]) -> Ran:
        """Run one forward and store its results. The same segments give the same bits, and rows that are
        `Segment.alone`, at most `block` tokens in total, give the same bits as each by itself."""

    def select(self, groups: Sequence[Sequence[Admitted]]) -> int:
        """Choose which tokens of these repairs are recomputed, in one forward per group. Returns the number of tokens
        fed for that."""

    def apart(self, tokens: Sequence[int], others: Sequence[Sequence[int]]) -> Sequence[float]:
        """The distances (L2 norms) between the input embeddings of these tokens and those of equally many first tokens
        of each of the others, which have no fewer."""

    def make(self, entry: KVEntry) -> int:
        """Compute the keys and values of an entry by its recipe and write them into its pages. Returns the number of
        tokens fed."""

    def store(self, slot: Slot, start: int, entry: KVEntry) -> None:
        """Move the keys and values in a decode's slot, from token `start` on, into the pages of an entry."""

    def sample(self, rows: Sequence[Row], draws: Sequence[SamplingDraw]) -> list[int | None]:
        """Sample a token for each row of logits. None for a row in which no token can be drawn."""

    def likely(self, rows: Sequence[Row], asked: Sequence[tuple[int, int]]) -> list[Logprobs]:
        """For each row of logits, given a token and a number n: the log-probabilities of this token, and then of the n
        likeliest tokens. See `SampledToken.likely`."""

    def keep(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The same rows, copied so that they stay valid after the step."""

    def constrain(self, sampling: Sampling, forms: Sequence[AnswerForm], begun: bool) -> TokenConstraint | None:
        """The constraint of a decode with these options, in one of these forms if there are any. None if any text is
        allowed. `begun`: the message has a header, which the text continues. Raises `RequestError` if nothing can
        satisfy the options."""

    def synchronize(self) -> None:
        """Wait until all requested forwards are done."""

    def probe(self) -> None:
        """Do a trivial operation on each device. If that raises, the device has failed."""
