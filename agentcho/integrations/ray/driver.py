"""Deals games to workers, deals them again if a worker dies, and takes in each finished game once.

A game that has used up its allowed worker deaths is dealt last and alone, so that it takes no other game down with it.
Texts do not depend on where a game is played, so games are kept in no order. Independent of how games are played, of
the system that runs the workers, and of records.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, NamedTuple, Protocol

from agentcho import errors
from agentcho.errors import AgentchoError, WorkersLost
from agentcho.games.runs.resume import engine_differences, others_differences
from agentcho.integrations.ray.work import (
    Answer,
    Assignment,
    GameDone,
    ToolCallNote,
    WorkerHello,
    WorkerLost,
    WorkerPool,
    WorkerReady,
    WorkerRefused,
    WorkerReport,
    WorkSpec,
)
from agentcho.records.environment import versions

LOG = logging.getLogger("agentcho.cluster")
LOSSES = 3
"""Losses per worker, with no game finished in between, after which lost workers are no longer replaced."""


class WorkBook(Protocol):
    """Provides the games of a piece of work and takes in their results."""

    def open(self, begun: WorkerReady) -> None:
        """The first worker is ready, with these engines. `AgentchoError`: the games belong to other engines."""
        ...

    def deal(self, game: int) -> Assignment:
        """The assignment of a game."""
        ...

    def over(self, done: GameDone) -> bool:
        """Take in a finished game. Returns whether to go on."""
        ...

    def note(self, note: ToolCallNote) -> None:
        """A tool call is about to be made in a game, or has ended. It has to be on record when this returns."""
        ...

    def lost(self, game: int, why: str) -> bool:
        """Give a game up, because workers died too often while playing it. Returns whether to go on."""
        ...


class NoWork:
    """A `WorkBook` without games."""

    def open(self, begun: WorkerReady) -> None:
        """No-op."""

    def deal(self, game: int) -> Assignment:
        """Never called."""
        return Assignment(game)

    def over(self, done: GameDone) -> bool:
        """Ignore a game of earlier work."""
        return True

    def note(self, note: ToolCallNote) -> None:
        """Ignore a call of earlier work."""

    def lost(self, game: int, why: str) -> bool:
        """Ignore a game of earlier work."""
        return True


class Timeouts(NamedTuple):
    """Time limits in seconds: for more workers to arrive before the first one begins (`gathering`), for any worker to
    arrive (`hello`), for a worker to load its models (`loading`), and for a sign of life of a playing worker
    (`silence`). `beat` is the interval between signs of life."""

    gathering: float = 10
    hello: float = 300
    loading: float = 3600
    silence: float = 60
    beat: float = 1


@dataclass
class WorkerState:
    """The driver's view of one worker. `called` is when it was last called, None if no call is in progress."""

    state: Literal["coming", "here", "beginning", "playing"] = "coming"
    hello: WorkerHello | None = None
    called: float | None = None
    dealt: dict[int, None] = field(default_factory=dict)
    wants: int = 0
    work: int = -1
    steps: int = 0
    most: int = 0


class Driver:
    """Keeps `workers` workers of a pool at work. `deaths`: after how many worker deaths a game is still dealt again;
    after one more it is given up. `warn` is called with each reason why a worker does not take part, once per reason.

    `play` may be called several times; workers keep what they have loaded.
    """

    def __init__(
        self,
        pool: WorkerPool,
        workers: int,
        deaths: int = 2,
        warn: Callable[[str], None] = lambda what: None,
        patience: Timeouts | None = None,
    ) -> None:
        self._pool = pool
        self._workers = workers
        self._deaths_allowed = deaths
        self._warn = warn
        self._patience = patience or Timeouts()
        self._members: dict[int, WorkerState] = {}
        self._refused, self._told = dict[str, WorkerRefused](), set[str]()
        self._first: WorkerReady | None = None
        self._out = self._losses = self._plays = 0
        self._why = ""
        self.steps = self.most = 0

    def play(self, work: WorkSpec, games: Iterable[int], book: WorkBook) -> None:
        """Have these games played until all are over or `book` wants no more.

        `WorkersLost`: no worker is left, or none comes. If every worker refuses, raises the error of the first refusal.
        Raises whatever `book` raises; KeyboardInterrupt passes through.
        """
        self._set_out(work, games, book)
        while self._going and (self._waiting or self._under_way):
            self._turn()
        mine = [member for member in self._members.values() if member.work == self._plays]
        self.steps, self.most = sum(each.steps for each in mine), sum(each.most for each in mine)

    def ready(self, work: WorkSpec) -> WorkerReady:
        """Wait until the first worker is ready for a piece of work, and return what it reports. Raises as `play`."""
        self._set_out(work, (), NoWork())
        while self._first is None:
            self._turn()
        return self._first

    @property
    def hellos(self) -> list[WorkerHello]:
        """The workers that are present."""
        return [member.hello for member in self._members.values() if member.hello is not None]

    def dismiss(self) -> None:
        """End all workers. New ones are started when there is more to play."""
        for id in [*self._members]:
            del self._members[id]
            self._pool.stop(id)

    def _set_out(self, work: WorkSpec, games: Iterable[int], book: WorkBook) -> None:
        self._work = work
        self._book = book
        self._first = None
        self._waiting, self._deaths = deque(games), Counter[int]()
        self._heard = self._began = monotonic()
        self._going, self._plays = True, self._plays + 1
        for member in self._members.values():
            member.dealt.clear()
            if member.called is None and member.hello is not None:
                member.state = "here"

    def _turn(self) -> None:
        """Run the loop once: wait for answers, take them in, and give work to idle workers."""
        self._fill()
        for id, answer in self._pool.answers(self._patience.beat):
            if id in self._members:
                self._take(id, self._members[id], answer)
        self._begin_all()
        self._tell_refused()
        self._deal_all()
        self._give_up_silent()

    @property
    def _under_way(self) -> bool:
        return any(member.dealt for member in self._members.values())

    # -- workers -----------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Ask for workers in place of lost ones. `WorkersLost`: none is left, or none comes."""
        for _ in range(self._workers - self._out - len(self._members)):
            id = self._pool.start()
            self._members[id] = WorkerState()
            self._call(id, "hello")
        if not self._members:
            raise self._nobody()
        coming = all(member.state == "coming" for member in self._members.values())
        if coming and monotonic() - self._heard > self._patience.hello:
            what = f"no worker started within {self._patience.hello:g} s{self._why and ', after: '}{self._why}"
            raise WorkersLost(f"{what}; check that the cluster has room for the workers")

    def _nobody(self) -> AgentchoError:
        """The error to raise when no worker is left: the first refusal, or why the last worker died."""
        if self._refused:
            first = next(iter(self._refused.values()))
            return rebuilt(first)
        return WorkersLost(f"workers die as soon as they start: {self._why}")

    def _call(self, id: int, method: str, *given: object) -> None:
        self._members[id].called = monotonic()
        self._pool.call(id, method, *given)

    def _take(self, id: int, member: WorkerState, answer: Answer) -> None:
        """Handle one answer. An answer about earlier work only shows that the worker is free."""
        member.called, self._heard = None, monotonic()
        match answer:
            case WorkerLost(why=why):
                self._lose(id, why)
            case WorkerHello():
                self._greet(id, member, answer)
            case _ if member.work != self._plays:
                member.state = "here"
            case WorkerRefused():
                self._refuse(id, answer)
            case WorkerReady():
                self._welcome(id, member, answer)
            case WorkerReport():
                self._hear(member, answer)

    def _greet(self, id: int, member: WorkerState, hello: WorkerHello) -> None:
        member.state, member.hello = "here", hello
        if differ := other_versions(hello.versions):
            what = f"the worker has {'; '.join(differ)}; install the same versions on all machines"
            self._refuse(id, WorkerRefused("WorkersLost", what))

    def _begin_all(self) -> None:
        """Let workers begin once it is known how many share a machine, or the time to wait for that is over."""
        here = [(id, member) for id, member in self._members.items() if member.state == "here"]
        coming = any(member.hello is None for member in self._members.values())
        if not here or (coming and monotonic() - self._began < self._patience.gathering):
            return
        nodes = Counter(member.hello.node for member in self._members.values() if member.hello is not None)
        for id, member in here:
            assert member.hello is not None
            member.state = "beginning"
            member.work = self._plays
            member.wants = 0
            member.steps = 0
            member.most = 0
            self._call(id, "begin", self._work, nodes[member.hello.node])

    def _welcome(self, id: int, member: WorkerState, begun: WorkerReady) -> None:
        if self._first is None:
            self._book.open(begun)
            self._first = begun
        differ = engine_differences(self._first.engine, begun.engine)
        differ += others_differences(self._first.others, begun.others)
        if differ:
            self._refuse(id, WorkerRefused("WorkersLost", f"the worker has another engine: {'; '.join(differ)}"))
            return
        member.state, member.wants = "playing", 1

    def _refuse(self, id: int, refused: WorkerRefused) -> None:
        """Go on without a worker, because a replacement on its machine would be refused too. The reason is reported
        once another worker is ready; if none ever is, it becomes the error."""
        member = self._members.pop(id)
        self._pool.stop(id)
        self._out += 1
        what = f"{refused.what} ({member.hello})"
        self._refused.setdefault(what, refused._replace(what=what))

    def _tell_refused(self) -> None:
        if self._first is not None:
            for what in self._refused.keys() - self._told:
                self._warn(f"a worker does not take part: {what}")
            self._told.update(self._refused)

    def _lose(self, id: int, why: str) -> None:
        """Deal the games of a lost worker to others. Workers are no longer replaced if they do nothing but die."""
        member = self._members.pop(id)
        self._pool.stop(id)
        self._losses, self._why = self._losses + 1, f"{member.hello or 'a worker'}: {why}"
        LOG.warning("%s is lost (%s), with %d games", member.hello or "a worker", why, len(member.dealt))
        self._out += self._losses > LOSSES * self._workers
        for game in reversed([*member.dealt]):
            self._deaths[game] += 1
            if self._deaths[game] > self._deaths_allowed:
                self._going &= self._book.lost(game, self._why)
            else:
                self._waiting.appendleft(game)

    def _give_up_silent(self) -> None:
        """Give up workers that hang: their process exists but does not respond."""
        now, patience = monotonic(), {"playing": self._patience.silence, "beginning": self._patience.loading}
        for id, member in list(self._members.items()):
            seconds = patience.get(member.state)
            if seconds is not None and member.called is not None and now - member.called > seconds:
                self._lose(id, f"it did not respond for {seconds:g} s")

    # -- games -------------------------------------------------------------------------------------------

    def _hear(self, member: WorkerState, report: WorkerReport) -> None:
        member.wants = report.wants
        member.steps = report.steps
        member.most = report.most
        for note in report.notes:
            if note.game in member.dealt:
                self._book.note(note)
        for done in report.done:
            if done.over.game in member.dealt:
                del member.dealt[done.over.game]
                self._losses = 0
                self._going &= self._book.over(done)

    def _deal_all(self) -> None:
        for id, member in self._members.items():
            if member.state == "playing" and member.called is None:
                games = self._share(member)
                member.dealt.update(dict.fromkeys(games))
                if member.dealt:
                    self._call(id, "exchange", [self._book.deal(game) for game in games], self._patience.beat)

    def _share(self, member: WorkerState) -> list[int]:
        """The next games of a worker: few enough to leave some for the others, so that all finish at about the same
        time."""
        if any(map(self._suspect, member.dealt)):
            return []
        plain = [game for game in self._waiting if not self._suspect(game)] if self._deaths else self._waiting
        most = min(member.wants, -(-len(plain) // (2 * len(self._members))))
        games = [game for game, _ in zip(plain, range(most), strict=False)]
        if not plain and not member.dealt and self._waiting:
            games = [self._waiting[0]]
        for game in games:
            self._waiting.remove(game)
        return games

    def _suspect(self, game: int) -> bool:
        """Whether a game has its last chance."""
        return self._deaths_allowed > 0 and self._deaths[game] == self._deaths_allowed


def other_versions(theirs: Mapping[str, str]) -> list[str]:
    """Return, in words, which of a worker's versions differ from the driver's. For Python, major and minor count."""
    ours = versions()
    cut = {name: 2 if name == "python" else 9 for name in ours}
    return [
        f"{name} {theirs.get(name, 'none')}, not {ours[name]}"
        for name in ours
        if theirs.get(name, "none").split(".")[: cut[name]] != ours[name].split(".")[: cut[name]]
    ]


def rebuilt(refused: WorkerRefused) -> AgentchoError:
    """Rebuild the error that a worker refused with: of its own class if that is one of agentcho's, with its text
    alone."""
    kind = getattr(errors, refused.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, AgentchoError)):
        return WorkersLost(f"{refused.kind}: {refused.what}", refused.code)
    error = kind.__new__(kind)
    AgentchoError.__init__(error, refused.what, refused.code)
    return error
