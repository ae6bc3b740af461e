"""Writes prisoner's dilemma games, and each player's own view of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .grammar import Writer
from .views import Sample, Turn, heard, own, prompt
from .wordings import rules

ROUNDS = {1: "one round", 2: "two rounds", 3: "three rounds"}
WARMTH = {"warm": 1.0, "wary": 0.0, "evasive": -0.7, "hard": -1.0}
STANCES = {
    "always-defect": (("warm", 0.5), ("hard", 0.3), ("evasive", 0.2)),
    "always-cooperate": (("warm", 0.8), ("wary", 0.2)),
    "none": (("warm", 0.5), ("wary", 0.2), ("evasive", 0.12), ("hard", 0.18)),
}
Payoffs = dict[str, int]


@dataclass
class Player:
    """One player of a game while it is being written. `tones` are the tones of its turns, in order."""

    name: str
    strategy: str
    stance: str
    tones: list[str] = field(default_factory=list)
    plan: str = ""
    decision: str = ""


@dataclass
class Game:
    """A whole game: who said what, in order, with the payoffs and the number of rounds."""

    players: tuple[Player, Player]
    payoffs: Payoffs
    rounds: int
    talk: list[tuple[int, str]] = field(default_factory=list)


def draw_payoffs(writer: Writer) -> Payoffs:
    """Payoffs with T > R > P > S; the usual 5, 3, 1, 0 four times in ten."""
    if writer.chance(0.4):
        return {"T": 5, "R": 3, "P": 1, "S": 0}
    low = writer.random.choice((0, 0, 0, 1, 2))
    gaps = [writer.random.randint(1, 4) for _ in range(3)]
    return {"S": low, "P": low + gaps[0], "R": low + sum(gaps[:2]), "T": low + sum(gaps)}


def draw_stance(writer: Writer, strategy: str) -> str:
    """The tone that a player with this strategy aims for."""
    stances, weights = zip(*STANCES[strategy], strict=True)
    return str(writer.random.choices(stances, weights)[0])


def draw_game(writer: Writer, names: tuple[str, str] | None = None, strategies: tuple[str, str] | None = None) -> Game:
    """A game with its talk and decisions. Names and strategies are drawn if not given."""
    if names is None:
        first = "Alice" if writer.split == "train" and writer.chance(0.2) else writer.name()
        second = "Bob" if first == "Alice" and writer.chance(0.7) and writer.split == "train" else writer.name(first)
        names = (first, second) if writer.chance(0.5) else (second, first)
    kinds = ("none", "none", "always-defect", "always-cooperate")
    chosen = strategies or (writer.random.choice(kinds), writer.random.choice(kinds))
    players = tuple(Player(name, kind, draw_stance(writer, kind)) for name, kind in zip(names, chosen, strict=True))
    game = Game((players[0], players[1]), draw_payoffs(writer), writer.random.choice((2, 2, 2, 2, 1, 3)))
    for number in (0, 1):
        plan(writer, game, number)
    for turn in range(2 * game.rounds):
        speak(writer, game, turn % 2)
    for number in (0, 1):
        decide(writer, game, number)
    return game


def slots(game: Game, number: int) -> dict[str, object]:
    """The values of the wordings' placeholders for one player."""
    me, you = game.players[number], game.players[1 - number]
    return {"me": me.name, "you": you.name, "rounds": ROUNDS[game.rounds], **game.payoffs}


def plan(writer: Writer, game: Game, number: int) -> None:
    """Write a player's private plan."""
    me = game.players[number]
    kind = me.strategy.removeprefix("always-")
    me.plan = writer.write(rules("dilemma"), f"plan.{kind}.{me.stance}", **slots(game, number))


def speak(writer: Writer, game: Game, number: int) -> None:
    """Add a player's next turn of talk, in reply to the other's last."""
    me, you = game.players[number], game.players[1 - number]
    tone = next_tone(writer, me, you)
    begin = "reply" if you.tones and writer.chance(0.6) else "first"
    symbol = f"{'next' if me.tones else begin}.{tone}"
    text = writer.write(rules("talk"), symbol, **slots(game, number))
    if you.tones and not symbol.startswith("first") and writer.chance(0.8):
        text = writer.write(rules("talk"), f"to.{you.tones[-1]}", **slots(game, number)) + " " + text
    me.tones.append(tone)
    game.talk.append((number, text))


def next_tone(writer: Writer, me: Player, you: Player) -> str:
    """A player's tone, which is its stance. A player without an instruction usually answers a hard or evasive tone in
    kind."""
    if me.strategy == "none" and you.tones and you.tones[-1] in ("hard", "evasive") and writer.chance(0.6):
        return "hard" if you.tones[-1] == "hard" and writer.chance(0.6) else "wary"
    if me.strategy == "none" and me.stance == "wary" and you.tones and you.tones[-1] == "warm" and writer.chance(0.6):
        return "warm"
    return me.stance


def decide(writer: Writer, game: Game, number: int) -> None:
    """Draw a player's decision: according to its instruction or, without one, to how warmly the other spoke."""
    me, you = game.players[number], game.players[1 - number]
    if me.strategy != "none":
        me.decision = me.strategy.removeprefix("always-").upper()
        return
    heard_warmth = sum(WARMTH[tone] for tone in you.tones) / len(you.tones)
    pull = 2.8 * heard_warmth + 0.2 * WARMTH[me.stance] + temptation(game.payoffs)
    me.decision = "COOPERATE" if writer.chance(1 / (1 + math.exp(-pull))) else "DEFECT"


def temptation(payoffs: Payoffs) -> float:
    """A slight pull from the payoffs, between -0.15 and 0.15."""
    gain, loss = payoffs["R"] - payoffs["P"], payoffs["T"] - payoffs["R"]
    return 0.15 * (gain - loss) / (gain + loss)


def view(writer: Writer, game: Game, number: int) -> Sample:
    """What one player reads and says, in the order of baseline mode."""
    me, you = game.players[number], game.players[1 - number]
    kind, values = me.strategy.removeprefix("always-"), slots(game, number)
    instruction = "" if kind == "none" else writer.write(rules("dilemma"), f"canon.{kind}", **values)
    turns = [prompt("system", writer.write(rules("dilemma"), "canon.system", instruction=instruction, **values))]
    turns += [
        prompt("user", writer.write(rules("dilemma"), "canon.ask.plan", **values)),
        own(me.name, me.plan),
    ]
    for speaker, text in game.talk:
        say, other = (own, you) if speaker == number else (heard, me)
        turns.append(say(game.players[speaker].name, text, f"To {other.name}: "))
    if writer.chance(0.3):
        turns += verdict(writer, me.name, "prediction", you.decision, values)
    turns += verdict(writer, me.name, "decision", me.decision, values)
    facts = {"strategy": me.strategy, "decision": me.decision, "other": you.strategy, "other_plan": you.plan}
    return Sample("dilemma", me.name.lower(), tuple(turns), facts)


def verdict(writer: Writer, name: str, key: str, value: str, values: dict[str, object]) -> list[Turn]:
    """A private question and its answer as JSON, the beginning of which is in the header nine times in ten."""
    asked = prompt("user", writer.write(rules("dilemma"), f"canon.ask.{key}", **values))
    opening, rest = f'{{"{key}": ', f'"{value}"}}'
    if writer.chance(0.1):
        return [asked, own(name, opening + rest, weight=2.0)]
    return [asked, own(name, rest, opening, weight=3.0)]


def dilemma(writer: Writer) -> list[Sample]:
    """One game, as each of its players sees it."""
    game = draw_game(writer)
    return [view(writer, game, 0), view(writer, game, 1)]
