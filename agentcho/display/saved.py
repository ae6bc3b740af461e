"""Shows a recorded run again: as it looked, as plain text, or as a picture.

Everything is read from the record, without an engine.
"""

from __future__ import annotations

import io
from operator import attrgetter
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.text import Text

from agentcho.display import Kind, heading, speech, text_table
from agentcho.display.safe import inline
from agentcho.display.text_table import TextTable
from agentcho.display.totals import costs, outcomes, second_encodings
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry

WIDTH = 100
ROWS = attrgetter("rows")


class Replay:
    """What is shown of a run: one game with its messages, with their ids if `ids` is set, or the outcomes of all
    games."""

    def __init__(self, run: SavedRun, game: int | None, ids: bool = False) -> None:
        games = run.games()
        finished = run.finished()
        only = next(iter(games)) if game is None and len(games) == 1 else game
        self.title = f"{heading(run.info.scenario, run.info.config)} · {inline(run.info.id)}"
        shown = games if only is None else {only: games.get(only, [])}
        over = [finished[index] for index in shown if index in finished]
        said = [entry for entries in shown.values() for entry in entries]
        written = run.status == "running"
        self.said = [] if only is None else [_speech(entry, written, ids) for entry in said]
        self.sheets: list[TextTable] = [*(outcomes(over) if over else []), *([costs(said)] if said else [])]
        self.sheets += filter(ROWS, [second_encodings(said)])
        begun = "" if only is None or only in finished else f"game {only} is not over, "
        self.last = f"{_how(run)}: {begun}{len(finished)} of {len(run.info.config.numbers)} games over"

    def plain(self, file: IO[str]) -> None:
        """Print it as plain lines."""
        said = [speech.plain(each) for each in self.said]
        parts = [self.title, *said, *("\n" + text_table.plain(each) for each in self.sheets), "\n" + self.last]
        print("\n".join(parts), file=file)

    def rich(self, console: Console) -> None:
        """Print it for a terminal."""
        console.print(Text(self.title, style="bold"), "")
        palette = speech.Palette()
        for said in self.said:
            console.print(speech.rich(said, palette))
        for each in self.sheets:
            console.print(text_table.table(each), "")
        console.print(Text(self.last, style="dim"))

    def svg(self, path: Path) -> None:
        """Write it as a picture."""
        console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, highlight=False)
        self.rich(console)
        path.write_text(console.export_svg(title="agentcho"), encoding="utf-8")


def _speech(entry: TranscriptEntry, written: bool, ids: bool) -> speech.MessageView:
    """Return the view of a message. One whose end is not recorded is under way while the record is being written, and
    otherwise died with its process."""
    said = speech.MessageView.of(entry)
    said = said._replace(id=entry.message.id) if ids else said
    return said._replace(ended=speech.UNDER_WAY) if written and entry.ended == "died" else said


def _how(run: SavedRun) -> str:
    """Return the status of a run. If it is running or died, with the process that writes or wrote it."""
    status = run.status
    who = run.writer
    if who is None or status not in ("running", "died"):
        return status
    return f"{status} (process {who.pid} on {inline(who.host)}, since {inline(who.since)})"


def show(run: SavedRun, game: int | None, kind: Kind | None, file: IO[str], *, ids: bool = False) -> None:
    """Show a run, with the ids of its messages if `ids` is set. `kind` None: for a terminal if `file` is one, else
    plain."""
    console = Console(file=file, highlight=False, emoji=False, markup=False)
    replay = Replay(run, game, ids)
    if kind == "plain" or (kind is None and not console.is_terminal):
        replay.plain(file)
    elif kind != "none":
        replay.rich(console)
