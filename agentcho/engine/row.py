"""One running decode: what it feeds next, what it has said, and how it ends.

Does not know: the model, the store, other rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from agentcho.calls.call import Begun, Decode, Encoded, EncodingId, Spoken, Stopped
from agentcho.engine.constraint import Constraint
from agentcho.engine.lanes import Lane
from agentcho.engine.layout import Layout, decoded
from agentcho.engine.sampler import Draw
from agentcho.engine.template import Framing


class Row:
    """A decode from its framing to its closing.

    Feeds opening and header, then each token it is given, then the closing. `feed` is what the next forward
    takes; `asks` says whether that forward's last row chooses a token.
    """

    apart = late = False

    def __init__(
        self, id: EncodingId, call: Decode, placed: Layout, framing: Framing, constraint: Constraint | None
    ) -> None:
        self.id, self.call, self.context = id, call, placed.context
        self._framed, self._closing, self._stops = placed.framed, placed.framed.closing, framing.stops
        self._content, self._stream, self._constraint = framing.content, framing.content.stream(), constraint
        self.lane: Lane | None = None
        self.feed: tuple[int, ...] = placed.framed.begun
        self.due, self.fed = True, 0
        self.sampled: list[int] = []
        self.logits: list[Tensor] = []
        self.stopped: Stopped | None = None
        self._text, self._shown = "", 0

    @property
    def asks(self) -> bool:
        """Whether it waits for a token."""
        return self.stopped is None

    @property
    def wanted(self) -> Sequence[int]:
        """The own tokens of the next feed whose next-token logits are asked for: the last one's while it waits for a
        token; where logits are kept, those of every token of its text, the last one's for the first closing token."""
        said = len(self.feed) - (0 if self.asks else len(self._closing))
        if self.call.logits and self.sampled:
            return range(said)
        return (said - 1,) if self.asks else ()

    @property
    def ending(self) -> bool:
        """Whether the next forward is its last: what it feeds ends with the closing."""
        return not self.asks

    @property
    def script(self) -> tuple[int, ...]:
        """Every id that is certain to be the message's: framing, header, accepted tokens, the closing once it ended."""
        closing = self._closing if self.ending else ()
        return (*self._framed.begun, *self.sampled, *closing)

    @property
    def position(self) -> int:
        """Where the next fed token stands."""
        return self.context.start + self.fed

    def draw(self) -> Draw:
        """How the next token is to be drawn."""
        allowed = self._constraint.allowed if self._constraint else None
        return Draw(self.call.sampling, len(self.sampled), allowed)

    def forced(self) -> int | None:
        """The next forced token: the text's, then the closing's first. None where tokens are sampled."""
        if self.call.forced is None:
            return None
        done = len(self.sampled)
        return self.call.forced[done] if done < len(self.call.forced) else self._closing[0]

    def advance(self) -> None:
        """The feed went through a forward."""
        self.fed += len(self.feed)
        self.feed = ()

    def take(self, token: int) -> Spoken | None:
        """Say `token`; sets the next feed. None where it ended the message and adds no text."""
        forced = self.call.forced is not None
        if self.call.forced and self.call.stride > 1:
            return self._take_some(self.call.forced)
        left = self.call.last - len(self.sampled)
        if self._constraint is not None and not forced:
            token = self._constraint.take(token, left)
        if len(self.sampled) == len(self.call.forced) if self.call.forced is not None else token in self._stops:
            self._end("forced" if forced else "stop", ())
            return self._tail()
        self.sampled.append(token)
        self._text += self._stream.push(token)
        self.feed = (token,)
        self._check_end(token, left, forced)
        return Spoken(self.id, len(self.sampled) - 1, token, self._show())

    def _take_some(self, forced: tuple[int, ...]) -> Spoken:
        """As many of the next forced tokens as go in at once."""
        done = len(self.sampled)
        self.feed = forced[done : done + self.call.stride]
        self.sampled += self.feed
        self._text += "".join(map(self._stream.push, self.feed))
        if len(self.sampled) == len(forced):
            self._end("forced", self.feed)
        return Spoken(self.id, done, forced[done], self._show())

    def _check_end(self, token: int, left: int, forced: bool) -> None:
        if not forced and self._cut() is not None:
            self._end("stop_string", (token,))
        elif not forced and self._constraint is not None and self._constraint.done:
            self._end("stop", (token,))
        elif not forced and left == 1:
            self._end("max_tokens", (token,))

    def _end(self, why: Stopped, unfed: tuple[int, ...]) -> None:
        self.stopped, self.feed = why, unfed + self._closing
        whole = self._content.decode(self.sampled)
        if whole.startswith(self._text):  # a character that stayed incomplete comes out as U+FFFD
            self._text = whole

    def _cut(self) -> int | None:
        """Where the earliest stop string begins in the text, if one is there."""
        found = [at for at in (self._text.find(stop) for stop in self.call.sampling.stop) if at >= 0]
        return min(found, default=None)

    def _show(self) -> str:
        """Text that is certain to stay, and was not shown before."""
        cut = self._cut()
        end = cut if cut is not None else len(self._text) - (self._doubtful() if self.asks else 0)
        piece, self._shown = self._text[self._shown : end], max(self._shown, end)
        return piece

    def _doubtful(self) -> int:
        """Length of the text's end that may yet turn out to begin a stop string."""
        stops = self.call.sampling.stop
        longest = max(map(len, stops), default=1) - 1
        ends = range(min(longest, len(self._text)), 0, -1)
        return next((n for n in ends if any(stop.startswith(self._text[-n:]) for stop in stops)), 0)

    def _tail(self) -> Spoken | None:
        piece = self._show()
        return Spoken(self.id, len(self.sampled) - 1, self.sampled[-1], piece) if piece else None

    def tokens(self) -> tuple[int, ...]:
        """Every id of the message."""
        return (*self._framed.begun, *self.sampled, *self._closing)

    @property
    def begun(self) -> Begun:
        """What is fed before its first token, and over what."""
        framed = self._framed._replace(content=(), closing=())
        return Begun(self.id, decoded(self.call, framed, "", None), self.context.receipt)

    def words(self) -> Encoded:
        """The finished message."""
        whole, cut = self._content.decode(self.sampled), self._cut()
        text = whole if cut is None else whole[:cut]
        framed = self._framed._replace(content=tuple(self.sampled))
        return decoded(self.call, framed, text, self.stopped, self._content.spells(self.sampled, text))
