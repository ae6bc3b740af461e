"""`agentcho view`: show a record as a page, written to a file, or served while the run goes on.

Independent of what is on the page and of HTTP.
"""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from agentcho.cli.extension import lab
from agentcho.cli.outputs import writable
from agentcho.display.safe import inline
from agentcho.extras import require
from agentcho.records.files import write_output

if TYPE_CHECKING:
    from agentcho.viewer.page_content import PageContent, PageSelection

NO_FILE = frozenset('/\\:*?"<>|')


class ViewArgs(NamedTuple):
    """The arguments of the command."""

    target: str
    eyes: str | None
    game: int | None
    html: Path | None
    serve: bool
    port: int
    browse: bool
    out: Path
    beside: str | None = None


def view(asked: ViewArgs) -> None:
    """Write the page, or serve it until Ctrl-C."""
    if asked.serve:
        if asked.html is not None or asked.game is not None:
            raise typer.BadParameter(
                "--serve writes no file and shows all games; leave out one of them", param_hint="--html or --game"
            )
        _serve(asked)
    elif asked.port:
        raise typer.BadParameter(
            "has no effect without --serve; give --serve too, or leave it out", param_hint="--port"
        )
    else:
        _write(asked)


def _write(asked: ViewArgs) -> None:
    from agentcho.viewer.page import page
    from agentcho.viewer.page_content import PageSelection

    file, chosen = writable(asked.html), PageSelection(asked.eyes, asked.game)
    given = Path(asked.target)
    if asked.beside is not None:
        found, folder = _of_two(asked, asked.beside, chosen)
    else:
        found, folder = _of_file(given, chosen) if given.is_file() else _of_runs(asked.target, asked.out, chosen)
    file = file or _default_file(folder, asked)
    write_output(file, page(found))
    typer.echo(inline(str(file)))
    if asked.browse:
        webbrowser.open(file.resolve().as_uri())


def _of_runs(named: str, out: Path, chosen: PageSelection) -> tuple[PageContent, Path]:
    """Return the content of a run, or of all runs of a folder, and the folder for its page."""
    from agentcho.viewer.page_content import folder_of_runs, page_content, target

    runs, folder = target(named, out), folder_of_runs(named)
    figures = None if folder is None else lab().figures(folder)
    return page_content(runs, chosen, figures=figures), folder or runs[0].path


def _of_two(asked: ViewArgs, other: str, chosen: PageSelection) -> tuple[PageContent, Path]:
    """Return the content of two runs, or of the runs of two folders, and the folder for its page."""
    from agentcho.viewer.beside import beside
    from agentcho.viewer.page_content import NamedRuns

    _refuse_files(asked.target, other)
    one, two = NamedRuns(asked.target, asked.out), NamedRuns(other, asked.out)
    return beside(one.runs(), two.runs(), chosen, (one.name, two.name)), one.folder or one.paths()[0]


def _refuse_files(*names: str) -> None:
    """Raise `BadParameter` if one of two that are compared is a file."""
    for name in names:
        if Path(name).is_file():
            raise typer.BadParameter(f"{name} is a file; give two runs or two folders of runs", param_hint="--beside")


def _of_file(file: Path, chosen: PageSelection) -> tuple[PageContent, Path]:
    """Return the content of a file, and the folder for its page."""
    from agentcho.viewer.audit_pages import of_file

    return lab().result(file, chosen) or of_file(file, chosen), file.parent


def _default_file(folder: Path, asked: ViewArgs) -> Path:
    """Return the path of a record's page, in its folder."""
    eyes = [] if asked.eyes is None else [asked.eyes]
    named = [] if asked.beside is None or asked.eyes is not None else [Path(asked.beside).resolve().name]
    other = [] if asked.beside is None else ["beside", *named]
    words = ("".join("_" if char in NO_FILE else char for char in word) for word in (*eyes, *other))
    return folder / f"{'-'.join(('view', *words))}.html"


def _serve(asked: ViewArgs) -> None:
    require("to serve a page", "serve")
    from agentcho.viewer.live import LiveRecords, serve

    if asked.beside is not None:
        _refuse_files(asked.target, asked.beside)

    def ready(address: str) -> None:
        typer.echo(inline(f"serving at {address}, for anyone who has this full address; press Ctrl-C to stop"))
        sys.stdout.flush()
        if asked.browse:
            webbrowser.open(address)

    source = LiveRecords(asked.target, asked.out, asked.eyes, lab().figures, beside=asked.beside)
    serve(source, asked.port, ready)
