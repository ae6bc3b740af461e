"""`agentcho merge`: combine the records of the parts of a run into one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentcho.display.safe import inline
from agentcho.games.runs.run_shards import Missing, merge
from agentcho.records.record import SavedRun, find, runs


def merge_parts(named: Sequence[str], out: Path, missing: Missing) -> str:
    """Merge these runs, and those in these folders, into a new one in `out`.

    Returns lines that tell where the record is, and how many games it has.
    """
    merged = merge([part for run in named for part in _parts(run, out)], out, missing)
    over = len(merged.finished())
    games = merged.info.config.games
    parts = len(merged.info.parts)
    lines = [f"{over} of {games} games, from {parts} parts", f"record: {merged.path}"]
    if merged.status == "interrupted":
        lines.append(f"incomplete: `agentcho run --resume {merged.info.id} --runs-dir {out}` plays the missing games")
    return "\n".join(map(inline, lines))


def _parts(run: str, out: Path) -> list[SavedRun]:
    """Return the runs in a folder of that path, or else the run that `find` finds."""
    return runs(Path(run)) or [find(run, out)]
