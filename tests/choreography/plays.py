"""Games that several tests play. Independent of what is tested."""

from __future__ import annotations

from agentcho import Agent, Game

from .stage import Script, Talker


class Schemer(Agent):
    """Has a secret and talks."""

    role = "talker"
    system = "Your secret is a number."
    audience = "everyone"


async def plans_and_talk(game: Game) -> tuple[Agent, Agent]:
    """Two private plans, then four turns of talk; returns both agents."""
    alice, bob = game.cast(Schemer, "alice"), game.cast(Schemer, "bob")
    await game.announce("Talk to each other.")
    await game.together(alice.think("Plan."), bob.think("Plan."))
    for _ in range(2):
        await alice.say(header="To Bob: ")
        await bob.say(header="To Alice: ")
    return alice, bob


async def chat(game: Game) -> tuple[Agent, Agent]:
    """Two rounds of simultaneous talk; one agent has a system prompt and is asked in private. Returns both agents."""
    alice, bob = game.cast(Talker, "alice", system="Be brief."), game.cast(Talker, "bob")
    await game.announce("Talk.")
    for _ in range(2):
        await game.together(alice.say(prompt="Well?"), bob.say())
    return alice, bob


def monologue(turns: int) -> Script:
    """One agent that speaks `turns` times."""

    async def play(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        for _ in range(turns):
            await ann.say()

    return play
