"""What one forward does, and what is decided before it. Does not know: how it was chosen, what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentcho.engine.encoding import Segment
from agentcho.engine.queue import Waiting
from agentcho.engine.sequence import Sequence

Fed = tuple[Sequence, Segment]


@dataclass
class Plan:
    """One forward: segments with the sequence of each, and of these the decodes and shadows (`rows`); known words that
    end with it; calls that fail before it or in it; repairs whose tokens are chosen (`judged`) first; shadows that are
    `late`: done with it, and encoded when somebody reads them; and who has left the line (`begun`) for it. `exact`:
    each sequence depends on itself alone, to the bit."""

    exact: bool
    segments: list[Segment] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    rows: list[Fed] = field(default_factory=list)
    prefills: list[Sequence] = field(default_factory=list)
    failed: list[tuple[Sequence, Exception]] = field(default_factory=list)
    judged: list[Sequence] = field(default_factory=list)
    late: list[Sequence] = field(default_factory=list)
    begun: list[Waiting] = field(default_factory=list)
