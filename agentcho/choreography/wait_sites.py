"""Finds where tasks wait: which agents wait, at which line of code, and what they await there.

This explains a game that is stuck. Whether a wait can end is unknown: a person, a socket or a thread may end it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any, NamedTuple

from agentcho.protocol.call_site import line_of, outside


class WaitSite(NamedTuple):
    """One task that waits.

    Attributes:
        who: Names of the objects whose methods are running, the outermost first.
        at: "file:line" of the innermost line of user code. None if there is none.
        on: Qualified name of the coroutine that is awaited there.
    """

    who: tuple[str, ...]
    at: str | None
    on: str

    def __str__(self) -> str:
        who = ", ".join(self.who) or "a task"
        return f"{who} waits{f' at {self.at}' if self.at else ''} for {self.on}"


def wait_of(work: Coroutine[Any, Any, Any]) -> WaitSite:
    """Return where a suspended coroutine waits."""
    suspended = list(_suspended(work))
    frames = [frame for _, frame in suspended]
    inner = max((place for place, frame in enumerate(frames) if outside(frame)), default=-1)
    names = (_name(frame.f_locals.get("self")) for frame in frames[: inner + 1])
    on = suspended[inner + 1][0] if inner + 1 < len(suspended) else "the event loop"
    at = line_of(frames[inner]) if inner >= 0 else None
    return WaitSite(tuple(dict.fromkeys(name for name in names if isinstance(name, str))), at, on)


def _name(who: object) -> object:
    """Return the name of an object, or None. Reading it may run code of the object."""
    try:
        return getattr(who, "name", None)
    except Exception:
        return None


def _suspended(awaited: Any) -> Iterator[tuple[str, FrameType]]:
    """Yield the name and frame of a coroutine, of what it awaits, and so on.

    A wrapper has the name of what it wraps.
    """
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            if (frame := getattr(awaited, f"{kind}_frame", None)) is not None:
                yield awaited.__qualname__, frame
                break
        links = (getattr(awaited, link, None) for link in ("cr_await", "gi_yieldfrom", "ag_await"))
        awaited = next((link for link in links if link is not None), None)
