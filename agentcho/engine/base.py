"""What a core needs of whoever computes: the `Runner` under it, its pages and slots, and the template of its words.

No torch: a model's runner has tensors behind all this, others have none. Does not know: calls, when they run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from agentcho.calls.call import ContentPort, FramingPort, Sampling
from agentcho.calls.owner import Owner

if TYPE_CHECKING:
    from agentcho.engine.cache import KVEntry
    from agentcho.engine.layout import Context, Segment
    from agentcho.engine.sequence import Draw
    from agentcho.engine.sequence import Sequence as Admitted
    from agentcho.engine.waiting import Budget

Row = Any
"""A row of logits `[vocab]`, or what stands for one. The runner that made it looks inside, and nobody else."""
Stored = Any
"""Pages of one encoding, and a copy of them in host memory; likewise."""
Slot = Any
"""Where one running decode keeps what it attends to; `slot.pool.shared` is the context it shares with others, or None,
and `slot.pool.kind.alone` says whether its forwards are of its own."""
SharedContext = Any
"""A context that several slots have in common; `claimed`: one of their rows gathers it, or has."""
Ran = tuple[list["Segment"], Any]
"""The segments of a forward in the order of their rows, and a sequence of these: one for each wanted token."""


class Detokenizer(Protocol):
    """Text token by token."""

    def push(self, id: int) -> str: ...


class Content(ContentPort, Protocol):
    """Text to content ids, and back; `stream` is a fresh decoder of one message."""

    def stream(self) -> Detokenizer: ...


class Template(FramingPort, Protocol):
    """How messages are framed. `stops` end a decode; `bos` is the id that every context begins with, or None."""

    @property
    def content(self) -> Content: ...
    @property
    def stops(self) -> Collection[int]: ...
    @property
    def bos(self) -> int | None: ...


class Constraint(Protocol):
    """Follows one row. `allowed` are the ids it may sample now, for `Runner.sample`; `done` says that nothing can
    follow.

    `take(token, left)` follows a sampled token, `left` tokens from the end of the budget (this one included),
    and returns the token to be said: another one only where the sampled one could not be ended in time.
    """

    @property
    def allowed(self) -> Any: ...
    @property
    def done(self) -> bool: ...
    def take(self, token: int, left: int) -> int: ...


class Pool(Protocol):
    """Where encodings are kept, in pages of `page_tokens`, at most `limit`; `used` are of encodings, `reserved`
    promised to running calls, `room` is left. `allocated` are ready for use, those in `free_pages` not in use."""

    page_tokens: int
    limit: int
    used: int
    reserved: int
    high_water: int
    free_pages: list[int]

    @property
    def allocated(self) -> int: ...
    @property
    def room(self) -> int: ...
    def pages_for(self, tokens: int) -> int: ...
    def reserve(self, tokens: int) -> int:
        """Promise room for so many tokens; returns the pages. `StoreFull`: nothing was promised."""

    def unreserve(self, pages: int) -> None: ...
    def allocate(self, length: int) -> Stored:
        """Pages for so many tokens. `StoreFull`: no room is left."""

    def free(self, pages: Stored) -> None: ...
    def copy_out(self, pages: Stored) -> Stored: ...
    def copy_in(self, pages: Stored, copy: Stored) -> None: ...
    def checksum(self, copy: Stored) -> int:
        """Of all that a copy holds."""


class Slots(Protocol):
    """Where running decodes keep what they attend to."""

    def expect(self, contexts: Iterable[Context]) -> None: ...
    def take(self, context: Context, feed: int, alone: bool, apart: bool) -> Slot: ...
    def open(self, tokens: int, alone: bool = False) -> Slot: ...
    def close(self, slot: Slot) -> None: ...
    def clear(self) -> None: ...


class Runner(Protocol):
    """What computes. `origin` names it in every key; token ids are below `vocabulary` (None: whatever the template
    knows); `budget` is what one forward of it takes; `owner` says who may call it. Stateless but for pages and
    slots."""

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
    def asynchronous(self) -> bool:
        """Whether forwards go on after they were asked for."""

    def step(self, segments: Sequence[Segment]) -> Ran:
        """One forward of a step, kept, by whatever is quickest."""

    def run(self, segments: Sequence[Segment]) -> Ran:
        """One forward, kept. The same bits for the same segments."""

    def select(self, groups: Sequence[Sequence[Admitted]]) -> int:
        """Choose the tokens of repairs, in a forward a group; returns the tokens that this fed."""

    def make(self, entry: KVEntry) -> int:
        """Compute an entry into its pages by its recipe; returns the tokens fed."""

    def store(self, slot: Slot, start: int, entry: KVEntry) -> None:
        """Move a row's own keys, from token `start` of its slot on, into the pages of an entry."""

    def sample(self, rows: Sequence[Row], draws: Sequence[Draw]) -> list[int | None]:
        """A token for each row; None where it has none."""

    def keep(self, rows: Sequence[Row]) -> Sequence[Row]:
        """These rows, to be kept for good."""

    def constrain(self, sampling: Sampling) -> Constraint | None:
        """What follows a row that may not say anything. `RequestError`: nobody can."""

    def synchronize(self) -> None:
        """Wait until all that was asked for has been computed."""

    def probe(self) -> None:
        """Do something trivial on each device. Raises what that raises: then a device has failed."""
