"""Models that several runs of one event loop share: the first run opens them, and the last one closes them.

They are opened in a task of their own, so that a run may end or be cancelled while others continue. The last run waits
until they are closed. `aplay` plays a run this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, NamedTuple, TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from agentcho.config import RunConfig
from agentcho.games.play.game_models import LoadedEngines, RunModels
from agentcho.games.runs.limiter import GameLimiter
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.run import open_endpoints
from agentcho.games.runs.runtime import RunResult, checked, models_of, open_run, recorded, result, tell_begins

T = TypeVar("T")
Args = TypeVarTuple("Args")
Key = tuple[int, tuple[tuple[str, int], ...]]
"""The engines of a run, by identity, with the names that they have in it."""


class Hosted(NamedTuple):
    """Models that other runs may use too, and the limiter of all their games."""

    models: RunModels
    limiter: GameLimiter


class Host:
    """Keeps the models of one set of engines open, for as long as any run uses them."""

    def __init__(self, loaded: LoadedEngines, config: RunConfig, forget: Callable[[], None]) -> None:
        self._loaded = loaded
        self._config = config
        self._forget = forget
        self._hosted: Hosted | None = None
        self._guests, self._ready, self._empty, self.closed = 0, anyio.Event(), anyio.Event(), anyio.Event()
        self._error: BaseException | None = None
        self.task: object = None

    @property
    def closing(self) -> bool:
        """Whether no further run can come in."""
        return self._empty.is_set() or self._error is not None

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[Hosted]:
        """A context in which the models are open. Raises `EngineBusy` if one of the engines has another owner."""
        self._guests += 1
        try:
            await self._ready.wait()
            if self._hosted is None:
                assert self._error is not None
                raise self._error
            yield self._hosted
        finally:
            self._guests -= 1
            if not self._guests:
                self._empty.set()
                with anyio.CancelScope(shield=True):
                    await self.closed.wait()
        if isinstance(self._error, Exception):
            raise self._error

    async def keep(self) -> None:
        """Open the models, wait until no run uses them, and close them: the work of the task."""
        try:
            await self._open()
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._forget()
            self._ready.set()
            self.closed.set()

    async def _open(self) -> None:
        async with open_endpoints(self._loaded, self._config) as models:
            limiter = GameLimiter(models.own.tasks, None)
            limiter.follow(models)
            limiter.eager = True
            self._hosted = Hosted(models, limiter)
            self._ready.set()
            await self._empty.wait()


HOSTS: RunVar[dict[Key, Host]] = RunVar("agentcho.hosts")
"""The hosts of an event loop."""


@asynccontextmanager
async def hosted(loaded: LoadedEngines, config: RunConfig) -> AsyncIterator[Hosted]:
    """A context in which these engines are open, shared with other runs on the same engines in this event loop.

    They are opened with the options of the first run. Raises `EngineBusy` if one of them is in use in another thread,
    directly, or beside other models.
    """
    hosts = HOSTS.get({})
    HOSTS.set(hosts)
    key = id(loaded.engine), tuple((name, id(other)) for name, other in loaded.others.items())
    while (host := hosts.get(key)) is not None and host.closing:
        await host.closed.wait()
    if host is None:
        host = hosts[key] = Host(loaded, config, lambda: forget(hosts, key))
        host.task = _alone(host.keep)
    async with host.visit() as found:
        yield found


def forget(hosts: dict[Key, Host], key: Key) -> None:
    """Forget a host, so that the next run opens the engines again."""
    hosts.pop(key, None)


def _alone(work: Callable[[], Coroutine[Any, Any, None]]) -> object:
    """Run work in a task that belongs to no other."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return trio.lowlevel.spawn_system_task(work, context=copy_context())
    return loop.create_task(work())


async def aplay(request: RunRequest) -> RunResult:
    """Play a run as `games.runs.runtime.play`, in the running event loop, beside other runs on the same engines.

    A cancellation ends this run alone, and its record says that it was interrupted. Models are loaded in a thread.
    """
    request = request.checked()
    tasks = await _in_thread(checked, request)
    loaded = await _in_thread(models_of, request)
    with open_run(request, tasks, loaded) as (run, record):
        tell_begins(run)
        async with hosted(loaded, request.config) as (models, limiter):
            await run.visit(models, limiter)
        return recorded(record, run, result(run, run.interrupted))


async def _in_thread(work: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """Run work in a thread. After a cancellation the thread runs to its own end, and nobody waits for it."""
    return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=True)
