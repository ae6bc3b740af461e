"""Finds the line of a scenario, or else of an agent, that made the current call.

A coroutine that is passed on, as in `game.together(ann.say())`, runs in a task whose stack does not contain the line
that created it. So the line is taken when the coroutine is created, and kept in the context of its task.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import NamedTuple

LOOPS = ("anyio", "asyncio", "trio", "threading", "concurrent")


class CallSite(NamedTuple):
    """Where user code made a call: "file:line" of the outermost of its frames, and file and line of the innermost."""

    where: str
    file: str
    line: int


_warned: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}
"""By file, the warnings that were given, as `warnings` keeps them for a module."""
_made_at: ContextVar[CallSite | None] = ContextVar("made_at", default=None)


def calling() -> CallSite | None:
    """Return where user code makes the current call. None if no user code is on the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not outside(frame):
        frame = None if _top(frame) in LOOPS else frame.f_back
    where = None if frame is None else call_site(frame)
    return None if frame is None or where is None else CallSite(where, frame.f_code.co_filename, frame.f_lineno)


@contextmanager
def called_at(site: CallSite | None) -> Iterator[None]:
    """Within it, a call without user code on its stack was made at `site`. None changes nothing."""
    if site is None:
        yield
        return
    token = _made_at.set(site)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is closed by another task
            _made_at.reset(token)


def made_at() -> str | None:
    """Return the "file:line" that made the current call, or else the coroutine that makes it. None if unknown."""
    site = _made_at.get()
    return call_site(sys._getframe(1)) or (None if site is None else site.where)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line of user code that made the current call."""
    site = calling() or _made_at.get()
    if site is None:
        warnings.warn(message, category, stacklevel=2)
    else:
        warnings.warn_explicit(message, category, site.file, site.line, registry=_warned.setdefault(site.file, {}))


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
