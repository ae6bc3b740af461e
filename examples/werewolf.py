"""Werewolf for nine: roles are secret, wolves whisper at night, everyone talks and votes by day.

    agentcho run examples/werewolf.py --model fake
    agentcho view last

Cast: two werewolves, a seer, a doctor, five villagers. Only the player knows its role, and only players who are awake
hear what is said at night; talk and votes are for everyone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from pydantic import Field

import agentcho

NAMES = ("ada", "ben", "cleo", "dan", "eli", "fay", "gil", "hana", "ian")
ROLES = ("werewolf", "werewolf", "seer", "doctor", *("villager",) * 5)
RULES = (
    "You are {name}, one of nine players of Werewolf: {names}. Your secret role is {role}. {task} Each night the "
    "werewolves kill one player; each day all who live talk and then vote one out. Speak in one or two sentences."
)
TASKS = {
    "werewolf": "Stay unseen; you win when the werewolves are as many as the others.",
    "seer": "Each night you learn whether one player is a werewolf. Find them all.",
    "doctor": "Each night you save one player from the werewolves. Find them all.",
    "villager": "Find the werewolves.",
}


class Player(agentcho.Agent):
    """A player of any role, who talks and votes in public."""

    audience = "everyone"

    async def pick(self, living: list[str], why: str, to: agentcho.Audience | Sequence[str] | str = ()) -> str:
        """One of the other living players, chosen before an audience; by default nobody hears it."""
        others = [name for name in living if name != self.name]
        return await self.choose(others, f"Who {why}?", to=to, opening="I choose ", closing=".")


class Werewolf(agentcho.Scenario):
    """Nine players, two of them werewolves, for a few nights and days."""

    name = "werewolf"

    class Options(agentcho.Scenario.Options):
        """The maximum length of a game."""

        days: int = Field(3, ge=1, le=9, description="days after which the villagers have failed")

    class Outcome(agentcho.Scenario.Outcome):
        """Who won, after how many days, and who is still alive."""

        winner: str
        days: int
        living: tuple[str, ...]

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        roles = list(ROLES)
        Random(f"{game.seed} roles").shuffle(roles)
        self.roles = dict(zip(NAMES, roles, strict=True))
        self.players = {name: self.seat(game, name, role) for name, role in self.roles.items()}
        living = list(NAMES)
        for day in range(1, self.options.days + 1):
            await game.announce(f"Night {day} falls. All close their eyes.")
            await self.lose(game, living, await self.night(game, living), "was found dead at dawn")
            if (winner := self.winner(living)) is not None:
                return self.Outcome(winner=winner, days=day, living=tuple(living))
            await self.lose(game, living, await self.day(living, game), "was voted out")
            if (winner := self.winner(living)) is not None:
                return self.Outcome(winner=winner, days=day, living=tuple(living))
        return self.Outcome(winner="werewolves", days=self.options.days, living=tuple(living))

    def seat(self, game: agentcho.Game, name: str, role: str) -> Player:
        """A player with a secret role."""
        rules = RULES.format(name=name, names=", ".join(NAMES), role=role, task=TASKS[role])
        return game.cast(Player, name=name, role=role, system=rules)

    def awake(self, living: list[str], role: str) -> list[str]:
        """The living players of a role."""
        return [name for name in living if self.roles[name] == role]

    async def night(self, game: agentcho.Game, living: list[str]) -> str | None:
        """Werewolves whisper and choose; seer and doctor act. Returns the player who dies."""
        pack = self.awake(living, "werewolf")
        await game.announce(f"Werewolves, open your eyes: {', '.join(pack)}.", to=pack)
        for wolf in pack:
            await self.players[wolf].say(to=pack, prompt="Whisper to your pack: whom to kill, and why?", max_tokens=40)
        prey = [name for name in living if name not in pack]
        victim = await self.players[pack[0]].pick(prey, "dies tonight", to=pack)
        for seer in self.awake(living, "seer"):
            seen = await self.players[seer].pick(living, "do you look at")
            what = "is" if self.roles[seen] == "werewolf" else "is not"
            await game.announce(f"{seen} {what} a werewolf.", to=[seer], release=True)
        saved = [await self.players[doctor].pick(living, "do you save") for doctor in self.awake(living, "doctor")]
        return None if victim in saved else victim

    async def day(self, living: list[str], game: agentcho.Game) -> str:
        """All think, talk, then vote together. Returns the player voted out: in a tie, the first by name."""
        await game.together(*(self.players[name].think("Whom do you suspect?", max_tokens=30) for name in living))
        for name in living:
            await self.players[name].say(max_tokens=40)
        votes = await game.together(*(self.players[name].pick(living, "is voted out", "everyone") for name in living))
        return max(sorted(living), key=Counter(votes).__getitem__)

    async def lose(self, game: agentcho.Game, living: list[str], name: str | None, how: str) -> None:
        """Tell everyone who is out, and that player's role: the rules reveal it, whatever was chosen in private."""
        if name is None:
            await game.announce("Dawn: nobody died.", release=True)
            return
        living.remove(name)
        await game.announce(f"{name}, {self.roles[name]}, {how}.", release=True)

    def winner(self, living: list[str]) -> str | None:
        """The winning side, or None."""
        wolves = len(self.awake(living, "werewolf"))
        return "villagers" if wolves == 0 else "werewolves" if 2 * wolves >= len(living) else None

    def score(self, outcome: Outcome) -> dict[str, float]:
        """Whether the villagers won, and how many players are alive."""
        return {"villagers win": float(outcome.winner == "villagers"), "living": float(len(outcome.living))}
