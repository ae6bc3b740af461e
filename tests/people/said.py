"""A person for tests, who says given words and notes everything that it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentcho.games.play.people import Person, PersonPrompt, person_left
from agentcho.message import Message
from agentcho.records.record import GameOver


class Scripted(Person):
    """Says these words one after another, and leaves when there are none left."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self.words = list(words)
        self.asked: list[PersonPrompt] = []
        self.heard: list[tuple[int, str, Message]] = []
        self.notes: list[str] = []
        self.ends: list[GameOver] = []

    def joined(self, game: int, agent: str) -> None:
        self.notes.append(f"{agent} joined {game}")

    def hear(self, game: int, agent: str, message: Message) -> None:
        self.heard.append((game, agent, message))
        self.notes.append(message.id)

    async def ask(self, asked: PersonPrompt) -> str:
        self.asked.append(asked)
        self.notes.append(f"asked {asked.id}")
        if not self.words:
            raise person_left(asked.agent)
        return self.words.pop(0)

    def over(self, game: int, agent: str, over: GameOver) -> None:
        self.ends.append(over)
        self.notes.append(f"{agent} over {game}")

    def absent(self, game: int, agent: str, cast: Sequence[str]) -> None:
        self.notes.append(f"{agent} not in {game}: {', '.join(cast)}")

    @property
    def read(self) -> str:
        """All texts that it was shown."""
        return "\n".join(message.header + message.text for _, _, message in self.heard)
