"""`agentcho.load`: a run in hand, from its record. Does not know: how it was played."""

from __future__ import annotations

from pathlib import Path

from agentcho.records.record import find
from agentcho.results.played import Played, from_record


def load(run: str | Path = "last", out: str | Path = "runs") -> Played:
    """A recorded run: of that path, of that id in the folder `out`, of the only id that begins so, or the newest
    ("last"). Its messages are read when they are asked for.

    `RecordNotFound`: there is no such run. `RecordBroken`: a file of it is damaged, and the error names its line.
    `RecordError`: a newer version has written it.
    """
    return from_record(find(str(run), Path(out)))
