"""People who share one keyboard: what each may see, and who is asked next, one after the other.

Independent of how anything is shown or typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import anyio

from agentcho.display.totals import ending, error_for_people
from agentcho.games.play.people import People, Person, PersonPrompt, person_left
from agentcho.message import Message
from agentcho.records.record import GameOver


class Question:
    """One question to one person. `words` is the answer, or None if the person has left."""

    def __init__(self, asked: PersonPrompt) -> None:
        self.asked = asked
        self.game = asked.game
        self.agent = asked.agent
        self.answered = anyio.Event()
        self.words: str | None = None

    @property
    def left(self) -> float:
        """Seconds until its deadline; `inf` if there is none."""
        return max(0.0, self.asked.deadline - anyio.current_time())


class Notice(NamedTuple):
    """A notice that everybody here may read: a game is over. `agent` None: it is for nobody in particular."""

    game: int
    agent: str | None
    text: str


Item = Question | Notice


class Session(Person):
    """One keyboard for the people of these `names`, in a run of `games` games. `at` is the person at the keyboard,
    `current` the question or notice to answer now, `note` a remark on what has just happened.

    Questions to the person at the keyboard come first, then those of the first game, so that few games run at a time
    and the keyboard is passed on rarely. `changed` is called after each change, on the event loop.
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
        """The people by agent: all of them are asked here."""
        return dict.fromkeys(self.names, self)

    # -- events of the run -------------------------------------------------------------------------------

    def is_same(self, agent: str, other: str) -> bool:
        """Each name is a person of its own, who sees nothing of what the others have seen."""
        return agent == other

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
                self.note = f"the last question was withdrawn{'' if question.left else ' because its time was up'}"
            self._remove(question)
        if question.words is None:
            raise person_left(asked.agent)
        return question.words

    def over(self, game: int, agent: str, over: GameOver) -> None:
        if not over.failed:
            self._open.discard(game)
        how = f"ended early: error: {error_for_people(over)}" if over.failed else ending(over)
        alone = len(self.names) == 1
        if alone or not any(isinstance(each, Notice) and each.game == game for each in self._waiting):
            self._add(Notice(game, agent if alone else None, f"{self.which(game)} is over. {how}"))

    def absent(self, game: int, agent: str, cast: Sequence[str]) -> None:
        there = ", ".join(cast) or "nobody"
        self._add(
            Notice(game, None, f"{self.which(game)} is over, and no agent in it was named {agent}; its agents: {there}")
        )

    # -- display state -----------------------------------------------------------------------------------

    @property
    def handing(self) -> bool:
        """Whether the keyboard is being passed on, so that nobody's messages may be seen."""
        return isinstance(self.current, Question) and self.current.agent != self.at

    @property
    def shown(self) -> tuple[int, str] | None:
        """The game and the agent whose messages may be seen now. None if nobody's may be."""
        if self.handing or self.at is None or (self.current is not None and self.current.agent is None):
            return None
        return self._shown

    @property
    def talk(self) -> Sequence[Message]:
        """The messages that may be seen now."""
        return [] if self.shown is None else self._talks.get(self.shown, [])

    @property
    def others(self) -> int:
        """The number of other games that wait for somebody here."""
        here = None if self.current is None else self.current.game
        return len({each.game for each in self._waiting if isinstance(each, Question) and each.game != here})

    def all_over(self) -> bool:
        """Return whether every game in which somebody here plays is over, so that nothing need be kept back."""
        return not self._open

    def which(self, game: int) -> str:
        """Return the name of a game. If there are several, it has the number of the game, from 0 as in records."""
        return "The game" if self.games == 1 else f"Game {game} (of {self.games})"

    # -- actions of people -------------------------------------------------------------------------------

    def take(self) -> None:
        """Note that the person who is asked is at the keyboard now."""
        assert self.current is not None
        self.at, self._shown, self.note = self.current.agent, self._place(self.current), ""
        self.changed()

    def answer(self, words: str) -> None:
        """Answer the question with words that have no fault."""
        assert isinstance(self.current, Question)
        self.current.words, self.note = words, ""
        self.current.answered.set()
        self._remove(self.current)

    def read(self) -> None:
        """Note that the notice was read."""
        assert isinstance(self.current, Notice)
        self._remove(self.current)

    def leave(self) -> None:
        """Note that everybody here has left, so that no question is answered any more."""
        self.gone = True
        for each in [*self._waiting]:
            if isinstance(each, Question):
                each.answered.set()
        self._waiting.clear()
        self.current = None
        self._settle()

    async def finished(self) -> None:
        """Wait until no question or notice is left, after all games are over."""
        while self._waiting:
            self._empty = anyio.Event()
            await self._empty.wait()

    def changed(self) -> None:
        """Update the display. Subclasses override it."""

    # -- the queue ---------------------------------------------------------------------------------------

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
    """Return the remaining time as minutes and seconds. Empty if there is no deadline."""
    if seconds == inf:
        return ""
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02} left"
