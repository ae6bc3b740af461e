"""The shadow of a running decode: the same tokens over another context, fed once they are accepted.

Does not know: who may read what, why there are two.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from agentcho.calls.call import Encoded, EncodingId, Shadow
from agentcho.engine.encoding import Context
from agentcho.engine.lanes import Lane
from agentcho.engine.row import Row

STRIDE = 16
"""Tokens that a shadow feeds at a time: it reads its context once for all of them."""
SHORT = 2 * STRIDE
"""Tokens of a message, its framing and header among them, up to which its shadow does not begin while it is said."""


class Follower:
    """Feeds what its leader has said so far and it has not fed yet, some tokens at a time; done when the leader has
    ended. It asks for nothing, keeps nothing, and never hears of a token that was not accepted."""

    asks, apart = False, True
    wanted: tuple[int, ...] = ()
    logits: tuple[Tensor, ...] = ()

    def __init__(self, id: EncodingId, call: Shadow, context: Context, leader: Row) -> None:
        self.id, self.call, self.context, self.leader = id, call, context, leader
        self.lane: Lane | None = None
        self.fed = self.portion = 0

    @property
    def lacking(self) -> int:
        """Tokens that are its leader's and not yet its own, or go into the same forward."""
        return len(self.leader.script) - self.fed

    @property
    def due(self) -> bool:
        """Whether it goes into the next forward."""
        return self.portion > 0

    @property
    def feed(self) -> tuple[int, ...]:
        """What the next forward takes."""
        return self.leader.script[self.fed : self.fed + self.portion]

    @property
    def ending(self) -> bool:
        """Whether the next forward is its last."""
        return self.leader.ending

    @property
    def late(self) -> bool:
        """Whether its leader has ended in a short message and it has fed nothing: it need not begin before somebody
        reads it. More is not left for who reads it to wait for."""
        return self.ending and not self.fed and self.lacking <= SHORT

    @property
    def position(self) -> int:
        """Where the next fed token stands."""
        return self.context.start + self.fed

    def advance(self) -> None:
        """The feed went through a forward."""
        self.fed += self.portion
        self.portion = 0

    def tokens(self) -> tuple[int, ...]:
        """Every id of the message."""
        return self.leader.tokens()

    def words(self) -> Encoded:
        """The finished message: its leader's."""
        return self.leader.words()


def take_turns(rows: Sequence[Row | Follower], alone: bool) -> None:
    """Say how many tokens each shadow feeds in the next forward: `STRIDE` at least, and all of them together no more
    than that, or than their leaders say in it, so that they keep up and hold up nobody. Who lacks most goes first. None
    goes with its leader's first token, whose coming it must not delay, or begins before its message is more than
    `SHORT`; each goes with its leader's last, unless it is late. `alone`: what one feeds depends on its leader only,
    and a late one is fed like the others."""
    shadows = [row for row in rows if isinstance(row, Follower)]
    room = max(STRIDE, sum(len(shadow.leader.feed) for shadow in shadows if shadow.leader.fed))
    for shadow in sorted(shadows, key=lambda each: (-each.lacking, each.id)):
        shadow.portion, most = 0, STRIDE if alone else room
        if shadow.ending:
            shadow.portion = shadow.lacking if alone or not shadow.late else 0
        elif shadow.leader.fed and min(most, shadow.lacking) >= STRIDE and (shadow.fed or shadow.lacking > SHORT):
            shadow.portion = min(most, shadow.lacking)
            room -= shadow.portion
