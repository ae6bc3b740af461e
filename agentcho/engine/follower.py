"""The shadow of a running decode: the same tokens over another context, fed once they are accepted.

Does not know: who may read what, why there are two.
"""

from __future__ import annotations

from torch import Tensor

from agentcho.engine.encoding import Context
from agentcho.engine.lanes import Lane
from agentcho.engine.row import Row
from agentcho.request import Encoded, EncodingId, Shadow

STRIDE = 16
"""Tokens that a shadow feeds at a time: it reads its context once for all of them."""


class Follower:
    """Feeds what its leader has said so far and it has not fed yet, some tokens at a time; done when the leader has
    ended. It asks for nothing, keeps nothing, and never hears of a token that was not accepted."""

    asks, apart = False, True
    wanted: tuple[int, ...] = ()
    logits: tuple[Tensor, ...] = ()

    def __init__(self, id: EncodingId, call: Shadow, context: Context, leader: Row) -> None:
        self.id, self.call, self.context, self.leader = id, call, context, leader
        self.lane: Lane | None = None
        self.fed = 0

    @property
    def due(self) -> bool:
        """Whether it goes into the next forward: never with its leader's first token, whose coming it must not delay,
        always with its last, and in between once there is enough to feed. The first time that is more or less, by its
        id, so that not all shadows go at once."""
        if self.leader.fed == 0 or self.leader.ending:
            return self.leader.fed > 0
        lacking = self.leader.fed + len(self.leader.feed) - self.fed
        return lacking >= (STRIDE if self.fed else STRIDE // 2 + self.id % STRIDE)

    @property
    def feed(self) -> tuple[int, ...]:
        """What the next forward takes; more than the leader's where it began later."""
        return self.leader.script[self.fed :]

    @property
    def ending(self) -> bool:
        """Whether the next forward is its last."""
        return self.leader.ending

    @property
    def position(self) -> int:
        """Where the next fed token stands."""
        return self.context.start + self.fed

    def advance(self) -> None:
        """The feed went through a forward."""
        self.fed += len(self.feed)

    def tokens(self) -> tuple[int, ...]:
        """Every id of the message."""
        return self.leader.tokens()

    def words(self) -> Encoded:
        """The finished message: its leader's."""
        return self.leader.words()
