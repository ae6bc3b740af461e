"""What one forward does, and what is decided before it. Does not know: how it was chosen, what comes of it."""

from __future__ import annotations

from typing import NamedTuple

from agentcho.engine.encoding import Segment
from agentcho.engine.follower import Follower
from agentcho.engine.pending import Pending, PendingDecode, PendingPrefill, PendingRepair
from agentcho.engine.queue import Waiting
from agentcho.engine.row import Row


class Plan(NamedTuple):
    """One forward: segments with the call of each, rows with the segment of each, prefills that end with it, calls that
    fail before it or in it, whether each row depends on itself `alone`, to the bit, repairs whose tokens are chosen
    (`judged`) first, shadows that are `late`: done with it, and encoded when somebody reads them, and who has left the
    line (`begun`) for it."""

    segments: list[Segment]
    calls: list[Pending]
    rows: list[tuple[Row | Follower, Segment]]
    prefills: list[PendingPrefill]
    failed: list[tuple[Pending, Exception]]
    alone: bool
    judged: list[PendingRepair]
    late: list[PendingDecode]
    begun: list[Waiting]
