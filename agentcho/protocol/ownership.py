"""Ownership of a network: admits one caller of its engines at a time, and refuses others at once.

A choreographer holds a network from its beginning to its end and calls it from any thread; a direct call holds it while
it lasts. Engines on one network have one owner. Independent of engines and event loops.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from agentcho.errors import EngineBusy
from agentcho.protocol.call_site import call_site

P = ParamSpec("P")
T = TypeVar("T")


class _Foreign(threading.local):
    on = False


_foreign = _Foreign()


@contextmanager
def foreign_code() -> Iterator[None]:
    """A context around the caller's code that an engine runs inside a call (a guard, a list of the caller's class). The
    code must not call an engine: such a call raises `EngineBusy`."""
    before, _foreign.on = _foreign.on, True
    try:
        yield
    finally:
        _foreign.on = before


class OwnershipClaim(NamedTuple):
    """A choreographer that holds a network. `who`: the object; `words`: its name in errors; `running`: whether its
    event loop may still run; `clear`: drops the calls and encodings that it left in the engine."""

    who: weakref.ref[Any]
    words: str
    running: Callable[[], bool]
    clear: Callable[[], None]

    @property
    def over(self) -> bool:
        """Whether the holder was collected, or its event loop has ended, without `let_go`."""
        return self.who() is None or not self.running()


class Owner:
    """Controls who may call the engines on one network. Its methods may be called from any thread. `around` returns a
    context in which every call runs."""

    def __init__(self) -> None:
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        self._lock = threading.Lock()
        self._hold: OwnershipClaim | None = None
        self._inside: int | None = None
        self._doing, self._depth = "", 0

    def hold(self, who: object, what: str, running: Callable[[], bool], clear: Callable[[], None]) -> None:
        """Take the network for `who`, until `let_go`. If `who` is collected, or is no longer `running`, without
        `let_go`, the next call runs `clear`, which drops the calls and encodings that `who` left in an engine. Neither
        function may keep `who` alive. Raises `EngineBusy` if another owner has the network."""
        with self.acting(None, what), self._lock:
            self._hold = OwnershipClaim(weakref.ref(who), f"{what} opened{_where(sys._getframe(1))}", running, clear)

    @property
    def words(self) -> str:
        """The holder of the network, in words."""
        hold = self._hold
        return "nobody" if hold is None else hold.words

    def let_go(self, who: object) -> None:
        """Give the network back. Does nothing if `who` does not hold it."""
        with self._lock:
            if self._hold is not None and self._hold.who() is who:
                self._hold = None

    @contextmanager
    def acting(self, who: object | None, what: str) -> Iterator[None]:
        """A context in which this thread calls an engine on the network, for its holder `who`, or directly (None).
        Contexts of one thread may be nested. Raises `EngineBusy` on entry if another owner holds the network, or
        another thread is in a call."""
        left = self._enter(who, what)
        try:
            with self.around():
                if left is not None:
                    left.clear()
                yield
        finally:
            with self._lock:
                self._depth -= 1
                if not self._depth:
                    self._inside = None

    def _enter(self, who: object | None, what: str) -> OwnershipClaim | None:
        """Enter a call, or a nested call. Returns a former holder that ended without `let_go`, or None."""
        left, me = None, threading.get_ident()
        if _foreign.on:
            raise EngineBusy("the call that is running this code")
        with self._lock:
            if self._inside != me:
                if self._inside is not None:
                    direct = f"a direct call of {self._doing}{_where_is(self._inside)}"
                    raise EngineBusy(direct if self._hold is None else self._hold.words)
                left = self._admit(who)
                self._inside, self._doing = me, what
            self._depth += 1
        return left

    def _admit(self, who: object | None) -> OwnershipClaim | None:
        """Return a former holder that ended without `let_go`, or None. Raises `EngineBusy` if another owner holds the
        network."""
        if self._hold is None or (who is not None and self._hold.who() is who):
            return None
        if not self._hold.over:
            raise EngineBusy(self._hold.words)
        left, self._hold = self._hold, None
        return left


class Owned(Protocol):
    """An engine, or a stand-in for one."""

    @property
    def owner(self) -> Owner: ...


E = TypeVar("E", bound=Owned)


def owned(method: Callable[Concatenate[E, P], T]) -> Callable[Concatenate[E, P], T]:
    """Restrict a method of an engine to one caller at a time; see `Owner.acting`."""

    @wraps(method)
    def alone(self: E, /, *args: P.args, **options: P.kwargs) -> T:
        with self.owner.acting(None, method.__name__):
            return method(self, *args, **options)

    return alone


def _where(frame: Any) -> str:
    """The line of the caller, and this thread's name, in words for an error."""
    line = call_site(frame)
    return f"{f' at {line}' if line else ''} in thread {threading.current_thread().name}"


def _where_is(ident: int) -> str:
    """The line where another thread called an engine, and that thread's name, in words for an error."""
    frame = sys._current_frames().get(ident)
    while frame is not None and frame.f_globals.get("__name__") != __name__:
        frame = frame.f_back
    line = None if frame is None else call_site(frame)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return f"{f' at {line}' if line else ''} in thread {names.get(ident, ident)}"
