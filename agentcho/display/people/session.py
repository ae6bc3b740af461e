"""The people who share one keyboard: what each may see, and who is asked what next, one after the other.

Does not know: how anything is shown or typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import anyio

from agentcho.display.totals import ending
from agentcho.games.play.people import People, Person, PersonPrompt, person_left
from agentcho.message import Message
from agentcho.records.record import GameOver


class Question:
    """One question to one person. `words` None: it has left."""

    def __init__(self, asked: PersonPrompt) -> None:
        self.asked = asked
        self.game = asked.game
        self.agent = asked.agent
        self.answered = anyio.Event()
        self.words: str | None = None

    @property
    def left(self) -> float:
        """Seconds until its time is over; `inf`: it has no end."""
        return max(0.0, self.asked.deadline - anyio.current_time())


class Notice(NamedTuple):
    """What everybody here may know: a game is over. `agent` None: it is no one's in particular."""

    game: int
    agent: str | None
    text: str


Item = Question | Notice


class Session(Person):
    """One keyboard for the people of these `names`, in a run of so many `games`. `at` is who sits there, `current` what
    is to be answered now, `note` a word on what has just happened.

    Questions of who sits there come first, then those of the first game, so that few games are under way at a time and
    the keyboard is passed seldom. `changed` is called after each change, on the event loop.
    """

    def __init__(self, names: Sequence[str], games: int) -> None:
        self.names, self.games = tuple(names), games
        self.at: str | None = names[0] if len(names) == 1 else None
        self.current: Item | None = None
        self.note = ""
        self.gone = False
        self._waiting: list[Item] = []
        self._talks: dict[tuple[int, str], list[Message]] = {}
        self._shown: tuple[int, str] | None = None
        self._open: set[int] = set()
        self._empty = anyio.Event()

    @property
    def people(self) -> People:
        """Who plays which agent: all of them are asked here."""
        return dict.fromkeys(self.names, self)

    # -- what the run tells ------------------------------------------------------------------------------

    def joined(self, game: int, agent: str) -> None:
        self._talks[game, agent] = []
        self._open.add(game)
        self._shown = self._shown or (game, agent)
        self.changed()

    def hear(self, game: int, agent: str, message: Message) -> None:
        self._talks[game, agent].append(message)
        self.changed()

    async def ask(self, asked: PersonPrompt) -> str:
        if self.gone:
            raise person_left(asked.agent)
        question = Question(asked)
        self._add(question)
        try:
            await question.answered.wait()
        finally:
            if question is self.current and not question.answered.is_set():
                self.note = "the last question was withdrawn because its time was up"
            self._remove(question)
        if question.words is None:
            raise person_left(asked.agent)
        return question.words

    def over(self, game: int, agent: str, over: GameOver) -> None:
        if not over.failed:
            self._open.discard(game)
        alone = len(self.names) == 1
        if alone or not any(isinstance(each, Notice) and each.game == game for each in self._waiting):
            self._add(Notice(game, agent if alone else None, f"{self.which(game)} is over. {ending(over)}"))

    def absent(self, game: int, agent: str, cast: Sequence[str]) -> None:
        there = ", ".join(cast) or "nobody"
        self._add(
            Notice(game, None, f"{self.which(game)} is over, and no agent in it was named {agent}; its agents: {there}")
        )

    # -- what is shown -----------------------------------------------------------------------------------

    @property
    def handing(self) -> bool:
        """Whether the keyboard is to be passed on, so that nothing of anybody's may be seen."""
        return isinstance(self.current, Question) and self.current.agent != self.at

    @property
    def shown(self) -> tuple[int, str] | None:
        """The game and the agent whose talk may be seen now; None: nobody's may."""
        if self.handing or self.at is None or (self.current is not None and self.current.agent is None):
            return None
        return self._shown

    @property
    def talk(self) -> Sequence[Message]:
        """The messages that may be seen now."""
        return [] if self.shown is None else self._talks.get(self.shown, [])

    @property
    def others(self) -> int:
        """How many other games wait for somebody here."""
        here = None if self.current is None else self.current.game
        return len({each.game for each in self._waiting if isinstance(each, Question) and each.game != here})

    def all_over(self) -> bool:
        """Whether every game in which somebody here plays has come to its end, so that nothing of it is kept back."""
        return not self._open

    def which(self, game: int) -> str:
        """What a game is called: of several, its number, from 0 as in records."""
        return "The game" if self.games == 1 else f"Game {game} (of {self.games})"

    # -- what people do ----------------------------------------------------------------------------------

    def take(self) -> None:
        """Who is asked sits at the keyboard now."""
        assert self.current is not None
        self.at, self._shown, self.note = self.current.agent, self._place(self.current), ""
        self.changed()

    def answer(self, words: str) -> None:
        """Answer the question, whose words have no fault."""
        assert isinstance(self.current, Question)
        self.current.words, self.note = words, ""
        self.current.answered.set()
        self._remove(self.current)

    def read(self) -> None:
        """A notice is read."""
        assert isinstance(self.current, Notice)
        self._remove(self.current)

    def leave(self) -> None:
        """Everybody here has gone: nobody answers any more."""
        self.gone = True
        for each in [*self._waiting]:
            if isinstance(each, Question):
                each.answered.set()
        self._waiting.clear()
        self.current = None
        self._settle()

    async def finished(self) -> None:
        """Return when there is nothing left to be read, after all games are over."""
        while self._waiting:
            self._empty = anyio.Event()
            await self._empty.wait()

    def changed(self) -> None:
        """Show it anew."""

    # -- what comes next ---------------------------------------------------------------------------------

    def _add(self, item: Item) -> None:
        if not self.gone:
            self._waiting.append(item)
            self._settle()

    def _remove(self, item: Item) -> None:
        if item in self._waiting:
            self._waiting.remove(item)
        if item is self.current:
            self.current = None
        self._settle()

    def _settle(self) -> None:
        if self.current is None and self._waiting:
            self.current = min(self._waiting, key=lambda each: (each.agent not in (self.at, None), each.game))
            if not self.handing:
                self._shown = self._place(self.current) or self._shown
        if not self._waiting:
            self._empty.set()
        self.changed()

    def _place(self, item: Item) -> tuple[int, str] | None:
        return None if item.agent is None else (item.game, item.agent)


def remaining(seconds: float) -> str:
    """Time that is left, for a clock that is looked at; nothing where it has no end."""
    if seconds == inf:
        return ""
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02} left"
