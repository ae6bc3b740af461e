"""The state of one request to vLLM: what it reads, feeds and makes, shared by the parts of this integration.

The prompt of a request is a row of slots: first those of the encodings that its call reads, which the connector fills,
then the call's own tokens, which vLLM computes. Must not import vLLM or torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcho.engine.call_layout import ContextPiece, Reading

Ids = tuple[int, ...]
OPTION = "agentcho"
"""The key of agentcho's options of the connector and parameters of a request."""
PAUSE = 0
"""The token at which a request pauses, and with which it ends. It is never computed."""


@dataclass(eq=False)
class Job:
    """One request to vLLM, which is the slot of its decode; see `call_layout.Slot`.

    Attributes:
        name: The id of the request, and `inner` the one that vLLM has made of it.
        stored: The encodings that it reads, in the order of their slots.
        start: The logical position of its first own token.
        own: The first own tokens, in the prompt of the request.
        known: Own tokens that are fed next, before another is drawn.
        more: Tokens that vLLM is given together after a pause; `paused`: whether it was told to pause for them.
        follows: Whether more tokens will come, so that it pauses when none is known.
        grown: The number of tokens after its prompt.
        asks: Called in the worker right before the encodings are read; raises if they must not be.
        needs_token: Whether all of its tokens are computed in the running step, so that it needs another.
        done: All own tokens were computed.
        error: Why it ended before that.
        blocks: Its blocks in vLLM's cache, in order.
        begun: How often vLLM has given it blocks: more than once after a preemption.
        written: What the connector has written into its slots: position and number of tokens of each encoding.
    """

    name: str
    stored: Sequence[ContextPiece]
    start: int
    own: Ids
    asks: Callable[[], None] = lambda: None
    known: deque[int] = field(default_factory=deque)
    more: Ids = ()
    paused: bool = False
    follows: bool = False
    grown: int = 0
    needs_token: bool = False
    done: bool = False
    error: Exception | None = None
    blocks: list[int] = field(default_factory=list)
    begun: int = 0
    written: list[tuple[int, int]] = field(default_factory=list)
    sent: bool = False
    inner: str = ""
    alone: bool = False
    pieces: Sequence[ContextPiece] = ()
    readings: Sequence[Reading] = ()

    @property
    def before(self) -> int:
        """The number of slots of the encodings that it reads."""
        return sum(piece.entry.length for piece in self.stored)

    @property
    def slots(self) -> int:
        """The number of its slots that hold a token."""
        return self.before + len(self.own) + self.grown

    @property
    def shift(self) -> int:
        """The slot of a token minus its logical position. vLLM rotates keys by slot number, and a query sees only
        differences of positions, so all keys of a request may be moved by the same number."""
        return self.before - self.start

    @property
    def prompt(self) -> list[int]:
        """The token ids of all slots that exist before anything is sampled."""
        return [*(id for piece in self.stored for id in tokens_of(piece)), *self.own]

    def next(self, pause: int) -> int:
        """The token that vLLM takes as sampled: the known one, if there is exactly one. If there are several or none,
        or vLLM would take that one for `pause`, it is `pause`: vLLM drops it, pauses, and is given the known tokens
        together, so that they take one step."""
        if len(self.known) == 1 and self.known[0] != pause:
            self.grown += 1
            return self.known.popleft()
        self.done = not self.known and not self.follows
        self.more, self.paused = tuple(self.known), True
        self.known.clear()
        return pause

    def check(self) -> None:
        """Raise unless each encoding that it reads is complete and in the store, and its guard permits reading it."""
        for piece in self.stored:
            if not piece.entry.ready or piece.entry.pages is None:
                raise RuntimeError(f"encoding {piece.id} is not in the store")
        self.asks()

    def expected(self) -> list[tuple[int, int]]:
        """What the connector must have written before anything is computed over it."""
        return [(piece.offset, piece.entry.length) for piece in self.stored]


def tokens_of(piece: ContextPiece) -> Ids:
    """The token ids of an encoding."""
    recipe = piece.entry.recipe
    assert recipe is not None
    return recipe.tokens


class Jobs:
    """The requests of one engine that vLLM has, by name.

    Attributes:
        sample: Takes the jobs of a step that wait for a token, with their rows of logits; returns the token of each.
        load_kv: Fills the slots that a job reads, and notes what it has written.
        caches: vLLM's cache of each layer, by the name of the layer.
    """

    def __init__(self) -> None:
        self.live: dict[str, Job] = {}
        self.sample: Callable[[Sequence[tuple[Job, Any]]], Sequence[int]] = lambda asking: [0 for _ in asking]
        self.load_kv: Callable[[Job], None] = lambda job: None
        self.caches: dict[str, Any] = {}

    def load(self, job: Job) -> bool:
        """Fill the slots of a job. Returns False if what it reads is missing or may not be read; its `error` says why.
        Does not raise, because that would end all other requests too."""
        try:
            if job.error is not None:
                raise job.error
            job.check()
            self.load_kv(job)
            if job.written != job.expected():
                raise RuntimeError("not all that is read was written")
        except Exception as error:
            job.error = error
            return False
        return True

    def __getitem__(self, name: str) -> Job:
        return self.live[name]

    def get(self, name: str) -> Job | None:
        """The job of that name, None if there is none."""
        return self.live.get(name)

    def values(self) -> Iterable[Job]:
        """All jobs."""
        return list(self.live.values())


ENGINES: dict[str, Jobs] = {}
"""The requests of each engine of this process, by the name given to its connector and its logits processor."""
