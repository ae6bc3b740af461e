"""The folder of an adapter: what tables call it, and whether its training has finished, by the files in it.

`agentcho tune` keeps its best adapter so far in the folder from the first step on, so that it can be tried early.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

EPOCH = "epoch-"
"""The folders inside it that hold the adapters of its epochs begin with this, and end with a number."""
GOING = "going"
"""The folder inside it that holds the last checkpoint until the training is finished."""


def called(folder: str | Path) -> str:
    """Return the name of an adapter in tables: the last part of its path, or the last two if it is that of an epoch."""
    path = Path(folder)
    epoch = re.fullmatch(rf"{EPOCH}\d+", path.name)
    return f"{path.parent.name}/{path.name}" if epoch and path.parent.name else path.name


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
