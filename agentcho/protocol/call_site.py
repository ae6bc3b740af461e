"""Finds the line of a scenario, or else of an agent, that made the current call.

A coroutine that is passed on, as in `game.together(ann.say())`, runs in a task whose stack does not contain the line
that created it. So the line is taken when the coroutine is created, and kept in the context of its task.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

LOOPS = ("anyio", "asyncio", "trio", "threading", "concurrent")
HANDED_ON = ("contextlib", "functools")
"""Modules whose functions only pass a call on."""


class CallSite(NamedTuple):
    """Where user code made a call: file and line of the outermost of its frames, and of the innermost, with that one's
    globals."""

    outer: tuple[str, int]
    inner: tuple[str, int]
    scope: dict[str, Any]

    @property
    def where(self) -> str:
        """ "file:line" of the outermost frame."""
        return _line(*self.outer)


class UnawaitedCall(NamedTuple):
    """A call of a verb `of` an agent or a game that has not begun, and where it was made."""

    of: object
    verb: str
    site: CallSite

    def __str__(self) -> str:
        name = f"{getattr(self.of, 'name', 'game')}.{self.verb}"
        return f"{name}() was never awaited, so it did nothing; write `await {name}(...)`"


class ListedCall(NamedTuple):
    """A call, its coroutine, and the arguments of the call."""

    call: UnawaitedCall
    work: Coroutine[Any, Any, Any]
    args: tuple[object, ...]

    @property
    def settled(self) -> bool:
        """Whether its coroutine can no longer be awaited: it runs, was closed, or got an error thrown into it, as by
        the cancellation of a task that has not started."""
        return inspect.iscoroutine(self.work) and inspect.getcoroutinestate(self.work) != inspect.CORO_CREATED


_made_at: ContextVar[CallSite | None] = ContextVar("made_at", default=None)


_unawaited: ContextVar[dict[int, ListedCall] | None] = ContextVar("unawaited", default=None)
_numbers = count()


class CreatedCall:
    """A call whose coroutine is created. It is listed in the surrounding `unawaited_calls`, with the coroutine, until
    it begins, or until the coroutine is closed on purpose.

    Only the coroutine refers to it, so it is finalized when the coroutine is closed.
    """

    __slots__ = ("_listed", "_number", "site")

    def __init__(self, site: CallSite) -> None:
        self.site = site
        self._number, self._listed = next(_numbers), _unawaited.get()

    def watch(self, call: UnawaitedCall, work: Coroutine[Any, Any, Any], args: tuple[object, ...]) -> None:
        """List the call with its coroutine and its arguments."""
        if self._listed is not None:
            _drop_settled(self._listed)
            self._listed[self._number] = ListedCall(call, work, args)

    def begin(self) -> None:
        """Note that the coroutine runs."""
        if self._listed is not None:
            self._listed.pop(self._number, None)
            self._listed = None

    def __del__(self) -> None:
        self.begin()


def _drop_settled(listed: dict[int, ListedCall]) -> None:
    for number in [number for number, each in listed.items() if each.settled]:
        listed.pop(number, None)


def _of_tasks() -> list[object]:
    """Return the coroutines of asyncio's tasks, of which some may not have started."""
    try:
        return [task.get_coro() for task in asyncio.all_tasks()]
    except RuntimeError:  # another event loop
        return []


@contextmanager
def unawaited_calls() -> Iterator[Callable[[], list[UnawaitedCall]]]:
    """A context that returns, when it is asked, the calls within it that nobody has awaited, except the moves of a
    round that nobody has awaited.

    It then closes their coroutines, so that Python does not warn of them too, unless a task will await them.
    """
    listed: dict[int, ListedCall] = {}

    def found() -> list[UnawaitedCall]:
        _drop_settled(listed)
        every = list(listed.values())
        listed.clear()
        moves = {id(arg) for each in every for arg in each.args}
        awaited = _of_tasks()
        for each in every:
            if each.work not in awaited:
                each.work.close()
        return [each.call for each in every if id(each.work) not in moves]

    token = _unawaited.set(listed)
    try:
        yield found
    finally:
        with suppress(ValueError):  # a coroutine that is closed by another task
            _unawaited.reset(token)


def calling() -> CallSite | None:
    """Return where user code calls the function that calls this one. None if the caller is not user code."""
    frame = _caller(sys._getframe(2))
    return _site(frame) if frame is not None and outside(frame) else None


def _place(frame: FrameType) -> tuple[str, int]:
    return frame.f_code.co_filename, frame.f_lineno


def _caller(frame: FrameType | None) -> FrameType | None:
    """Return the frame that made a call which this frame may only pass on. None if an event loop made the call."""
    started = True
    while frame is not None and _top(frame) in (*LOOPS, *HANDED_ON):
        started = frame.f_code.co_name == "start_soon" or (started and _top(frame) in HANDED_ON)
        frame = frame.f_back
    return frame if started else None


@contextmanager
def called_at(site: CallSite | None) -> Iterator[None]:
    """Within it, calls were made at `site`, unless they have a site of their own. None: it is not known where."""
    token = _made_at.set(site)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is closed by another task
            _made_at.reset(token)


def made_at() -> str | None:
    """Return the "file:line" that made the current call, or the coroutine that makes it. None if unknown."""
    site = _made_at.get()
    return call_site(sys._getframe(1)) if site is None else site.where


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line of user code that made the current call."""
    site = _made_at.get() or _site(sys._getframe(1))
    if site is None:
        warnings.warn(message, category, stacklevel=2)
    else:
        warn_at(site, message, category)


def warn_at(site: CallSite, message: str, category: type[Warning]) -> None:
    """Warn at the innermost line of a site."""
    registry = site.scope.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, *site.inner, module=site.scope.get("__name__"), registry=registry)


def _site(frame: FrameType | None) -> CallSite | None:
    """Return where user code on the stack, from this frame up, made a call. None if there is none."""
    while frame is not None and (not outside(frame) or _top(frame) in HANDED_ON):
        frame = frame.f_back
    if frame is None:
        return None
    return CallSite(_place(_outermost(frame) or frame), _place(frame), frame.f_globals)


def call_site(frame: FrameType | None = None) -> str | None:
    """ "file:line" of the outermost frame on the stack (from `frame` up, if given) that belongs neither to agentcho nor
    to an event loop. None if there is none. See `shown_path` for the name of the file."""
    found = _outermost(frame or sys._getframe(1))
    return None if found is None else line_of(found)


def _outermost(frame: FrameType | None) -> FrameType | None:
    """Return the outermost frame of user code from this one up to the event loop."""
    found = None
    while frame is not None and _top(frame) not in LOOPS:
        if outside(frame):
            found = frame
        frame = frame.f_back
    return found


def outside(frame: FrameType) -> bool:
    """Whether a frame belongs neither to agentcho nor to an event loop."""
    return _top(frame) not in (*LOOPS, "agentcho")


def is_users(frame: FrameType) -> bool:
    """Whether a frame is one of user code: of neither agentcho nor a library that calls back for it."""
    return outside(frame) and _top(frame) not in (*HANDED_ON, "pydantic")


def line_of(frame: FrameType) -> str:
    """ "file:line" of a frame."""
    return _line(*_place(frame))


def _line(file: str, line: int) -> str:
    return f"{_shown(file, os.getcwd())}:{line}"


@lru_cache(maxsize=1024)
def _shown(file: str, _folder: str) -> str:
    """The name of a file, computed once in each working folder."""
    return shown_path(Path(file))


def _top(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".", 1)[0]


def shown_path(path: Path) -> str:
    """The name of a file in errors and records: relative to the working folder, or else its folder and name."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return "/".join(path.parts[-2:])
