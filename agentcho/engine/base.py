"""What the core of an engine needs from below: a `Runner` that computes, its pages and its slots, and the template that
frames messages.

No torch: the runner of a model keeps tensors behind these types, other runners keep none. Does not know: calls, when
they run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from agentcho.calls.call import ContentPort, FramingPort, Logprobs, Sampling
from agentcho.calls.owner import Owner
from agentcho.calls.tools import AnswerForm

if TYPE_CHECKING:
    from agentcho.calls.costs import Costs
    from agentcho.engine.cache import KVEntry
    from agentcho.engine.generation import Draw
    from agentcho.engine.layout import Context, Segment
    from agentcho.engine.sequence import Sequence as Admitted
    from agentcho.engine.waiting import Budget

Row = Any
"""One row of logits `[vocab]`, or what stands for one. Only the runner that made it looks inside."""
Stored = Any
"""The pages of one encoding, or a copy of them outside. Only the runner that made it looks inside."""
Slot = Any
"""The place where one running decode keeps the keys and values that it attends to. `slot.pieces` are those of its
context that it gathers; the others are in the shared runs of `slot.readings`, or are read where they are stored, as
`slot.stored`. `slot.pool.kind.alone` says whether its decode runs in forwards of its own."""
SharedRun = Any
"""What several slots read in one place: its `pieces`. `claimed`: one of their decodes gathers it in this forward, or
has gathered it."""
Ran = tuple[list["Segment"], Any]
"""What a forward returns: its segments in the order of their rows of logits, and a sequence of these rows, one for each
wanted token."""


class Detokenizer(Protocol):
    """Turns the tokens of one message into text, one token at a time. `end` gives what is left behind the last one."""

    def push(self, id: int) -> str: ...
    def end(self) -> str: ...


class Content(ContentPort, Protocol):
    """Turns text into the token ids of a message's content, and back. `forbidden`: control tokens, which are never part
    of a content. `stream` gives a fresh `Detokenizer`; where the message has begun with a header, a blank at the
    beginning of what follows is part of the text."""

    forbidden: frozenset[int]

    def stream(self, begun: bool = False) -> Detokenizer: ...
    def encode_behind(self, text: str) -> list[int]:
        """The ids of a text that stands behind the header of its message."""


class Template(FramingPort, Protocol):
    """How messages are framed. `stops`: the ids that end a decode. `end`: the one by which a model ends its message;
    the assistant's closing may have blanks before it."""

    @property
    def content(self) -> Content: ...
    @property
    def stops(self) -> Collection[int]: ...
    @property
    def end(self) -> int: ...


class Constraint(Protocol):
    """Restricts what one decode may say. `allowed`: the ids that it may sample next, for `Runner.sample`. `done`: no
    token can follow.

    `ahead()` is a copy, to see with `allowed` what may follow tokens that were not said; `only` is the one id that may
    come next, or None; `follow(token)` notes a token whatever is left of the budget.

    `take(token, left)` notes a sampled token, `left` tokens before the end of the budget (this token included), and
    returns the token to be said. That is another one only where the sampled token could not be brought to an end in
    time.
    """

    @property
    def allowed(self) -> Any: ...
    @property
    def only(self) -> int | None: ...
    @property
    def done(self) -> bool: ...
    def ahead(self) -> Constraint: ...
    def follow(self, token: int) -> None: ...
    def take(self, token: int, left: int) -> int: ...


class Pool(Protocol):
    """Keeps encodings in pages of `page_tokens` tokens, at most `limit` pages. Counted in pages: `used` hold encodings,
    `reserved` are promised to running calls, `room` are left."""

    page_tokens: int
    limit: int
    used: int
    reserved: int
    high_water: int

    @property
    def room(self) -> int: ...
    def pages_for(self, tokens: int) -> int: ...
    def reserve(self, tokens: int) -> int:
        """Promise room for this many tokens; returns the number of pages. `StoreFull`: nothing was promised."""

    def unreserve(self, pages: int) -> None: ...
    def allocate(self, length: int) -> Stored:
        """Pages for this many tokens. `StoreFull`: there is no room."""

    def free(self, pages: Stored) -> None: ...
    def copy_out(self, pages: Stored) -> Stored: ...
    def copy_in(self, pages: Stored, copy: Stored) -> None: ...
    def copy(self, source: Stored, target: Stored, tokens: int) -> None:
        """Copy the first so many tokens of one encoding to the beginning of another."""

    def checksum(self, copy: Stored) -> int:
        """A checksum of all that a copy holds."""

    def packed(self, copy: Stored) -> bytes:
        """A copy as the bytes of a file."""

    def unpacked(self, data: bytes) -> Stored:
        """The copy that these bytes were made from, to the bit."""

    def check(self, stored: Sequence[tuple[Stored, int]]) -> None:
        """Raise `StoreDamaged` unless each page is free or in one of these, each of so many tokens."""


class Slots(Protocol):
    """The places where running decodes keep the keys and values that they attend to."""

    def expect(self, contexts: Iterable[Context]) -> None: ...
    def take(self, context: Context, feed: int, alone: bool, apart: bool) -> Slot: ...
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
    def pages(self) -> Pool: ...
    @property
    def slots(self) -> Slots: ...
    @property
    def origin(self) -> str: ...
    @property
    def vocabulary(self) -> int | None: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def owner(self) -> Owner: ...

    @property
    def block(self) -> int:
        """How many tokens of rows that are `Segment.alone` one forward of `run` takes so that no bit of one row depends
        on another; 0: each has a forward of its own."""

    costs: Costs | None
    """What forwards take, by which guesses are weighed; None: it was not measured, and nothing is guessed."""

    def measure(self, context: int) -> Costs | None:
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

    def sample(self, rows: Sequence[Row], draws: Sequence[Draw]) -> list[int | None]:
        """A token for each row of logits; None where a row has no token that can be drawn."""

    def likely(self, rows: Sequence[Row], asked: Sequence[tuple[int, int]]) -> list[Logprobs]:
        """For each row of logits, and a token and a number: the natural logarithms of the probabilities of this token,
        and then of so many of the likeliest ones. See `Spoken.likely`."""

    def keep(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The same rows, copied so that they stay valid after the step."""

    def constrain(self, sampling: Sampling, forms: Sequence[AnswerForm], begun: bool) -> Constraint | None:
        """The constraint of a decode with these options, written in one of these forms if there are any; None where it
        may say anything. `begun`: the message has a header, so that what is said goes on with it. `RequestError`:
        nothing can satisfy them."""

    def synchronize(self) -> None:
        """Wait until all forwards that were asked for are done."""

    def probe(self) -> None:
        """Do a trivial operation on each device. If that raises, the device has failed."""
