"""Whether the training of an adapter has finished, by the files in its folder.

`agentcho tune` keeps its best adapter so far in the folder from the first step on, so that it can be tried early.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

GOING = "going"
"""The folder inside it that holds the last checkpoint until the training is finished."""


def unfinished(folder: str | Path) -> str | None:
    """Return a sentence about a training that is going on or was interrupted; None if the adapter is finished.

    An adapter that was trained elsewhere counts as finished.
    """
    path = Path(folder)
    if not (path / GOING).is_dir():
        return None
    step = 0
    with suppress(OSError, ValueError, LookupError, TypeError):
        step = int(json.loads((path / "agentcho.json").read_bytes())["step"])
    so_far = f"after step {step}" if step else "from before the first step, which changes nothing"
    return (
        f"the training of adapter {path} has not finished: this is its best checkpoint so far, {so_far}; repeat the "
        "`agentcho tune` command that began it, and it goes on"
    )
