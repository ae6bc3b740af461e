"""Finds the line of a scenario, or else of an agent, that made the current call."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

LOOPS = ("anyio", "asyncio", "trio", "threading", "concurrent")


def call_site(frame: FrameType | None = None) -> str | None:
    """ "file:line" of the outermost frame on the stack (from `frame` up, if given) that belongs neither to agentcho nor
    to an event loop. None if there is none. See `shown_path` for the name of the file."""
    found, frame = None, frame or sys._getframe(1)
    while frame is not None and _top(frame) not in LOOPS:
        if outside(frame):
            found = frame
        frame = frame.f_back
    return None if found is None else line_of(found)


def outside(frame: FrameType) -> bool:
    """Whether a frame belongs neither to agentcho nor to an event loop."""
    return _top(frame) not in (*LOOPS, "agentcho")


def line_of(frame: FrameType) -> str:
    """ "file:line" of a frame."""
    return f"{shown_path(Path(frame.f_code.co_filename))}:{frame.f_lineno}"


def _top(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".", 1)[0]


def shown_path(path: Path) -> str:
    """The name of a file in errors and records: relative to the working folder, or else its folder and name."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return "/".join(path.parts[-2:])
