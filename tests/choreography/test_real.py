"""Games on a tiny real model: steps, coins, and baseline prompts as a chat API would encode them."""

from typing import Any

import anyio
import pytest
import torch

from agentcho import Agent, Choreographer, Decode, Engine, Game, Prefill, RunConfig, Sampling, Scenario
from agentcho.choreographer import Request
from agentcho.config import Mode
from agentcho.events import Ended, Event
from agentcho.transcript import Entry

from .conftest import Play


def test_six_agents_that_speak_three_times_take_the_steps_of_the_longest(play: Play, tiny: Engine) -> None:
    steps: list[int] = []
    banned = Sampling(temperature=0, max_tokens=1)

    async def agent(c: Choreographer, words: int) -> None:
        for turn in range(3):
            forced = tuple(tiny.framing.content.encode("x" * words))
            await c.run(Request((Decode(forced=forced, sampling=banned),), (words, turn)))

    async def work() -> None:
        async with Choreographer(tiny) as c:
            await c.turns.together(*(agent(c, words) for words in range(3, 9)))
            steps.append(c.steps)

    used = tiny.fullness.used
    play(work)
    assert steps == [3 * (8 + 2)]
    assert (tiny.fullness.used, tiny.fullness.reserved, tiny.rows) == (used, 0, 0)


CALLS = [
    Sampling(temperature=0, max_tokens=9),
    Sampling(temperature=0.7, seed=1, max_tokens=17),
    Sampling(temperature=1.3, seed=2, max_tokens=5, top_k=20),
    Sampling(temperature=1.0, seed=3, max_tokens=30, stop=("a", "e")),
    Sampling(temperature=1.0, seed=4, max_tokens=12, choices=("left", "right", "straight on")),
    Sampling(temperature=1.0, seed=5, max_tokens=25, top_p=0.5, min_p=0.01),
]


def test_requests_with_their_own_options_say_the_same_together_and_apart(play: Play, tiny: Engine) -> None:
    prompt = Prefill("What do you say?")
    requests = [Request((prompt, Decode(f"{i}: ", parents=[prompt], sampling=s)), (i,)) for i, s in enumerate(CALLS)]

    async def work() -> tuple[list[Any], list[Any]]:
        async with Choreographer(tiny) as c:
            together = await c.turns.together(*(c.run(request) for request in requests))
            return together, [await c.run(request) for request in requests]

    together, apart = play(work)
    assert [r.made[-1].words for r in together] == [r.made[-1].words for r in apart]
    assert len({r.made[-1].words.tokens for r in together}) == len(CALLS)


class Talker(Agent):
    """Has a secret and talks."""

    role = "talker"
    system = "Your secret is a number."
    audience = "everyone"


class Talk(Scenario):
    """Two private plans, then four turns of talk."""

    name = "talk"

    async def play(self, game: Game) -> Scenario.Outcome:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.together(alice.think("Plan."), bob.think("Plan."))
        for _ in range(2):
            await alice.say(header="To Bob: ")
            await bob.say(header="To Alice: ")
        return self.Outcome()


def transcript(engine: Engine, mode: Mode) -> list[Entry]:
    events: list[Event] = []

    async def work() -> None:
        async with Choreographer(engine, mode) as c:
            await Game(c, 0, 5, RunConfig(mode=mode, max_tokens=12, temperature=0), sink=events.append).play(Talk())

    anyio.run(work)
    return [event.entry for event in events if isinstance(event, Ended)]


@pytest.mark.parametrize("mode", ["baseline", "choreographed"])
def test_every_token_is_the_likeliest_over_what_its_receipt_says(tiny: Engine, mode: Mode) -> None:
    """Encode each prompt from nothing, as the receipts say, and choose again: the same tokens come out."""
    entries = transcript(tiny, mode)
    records = {record.id: record for entry in entries for record in entry.made}
    messages = {entry.message.id: entry.message for entry in entries}
    ids: dict[int, int] = {}
    for entry in entries:
        for record in entry.made:
            receipt, message = record.receipt, messages[record.message]
            content = message.tokens[slice(*message.content)]
            parents, offsets = [ids[e.id] for e in receipt.context], [e.offset for e in receipt.context]
            again = Prefill("", parents, offsets, receipt.start, message.role, message.name, content)
            ids[record.id] = tiny.prefill(again)
            if record.id == entry.encoding and message.sampled is not None:
                said = message.tokens[slice(*message.sampled)]
                rows = tiny.score("", message.header, parents, offsets, receipt.start, message.name, said)
                rows[:, list(tiny.framing.content.forbidden - tiny.framing.stops)] = -torch.inf
                assert rows.argmax(-1).tolist()[: len(said)] == list(said)
    baseline = [r for r in records.values() if r.recipe == "baseline"]
    assert bool(baseline) == (mode == "baseline")
    for record in baseline:
        ends = [e.offset + e.length for e in record.receipt.context]
        assert [e.offset for e in record.receipt.context] == [1, *ends[:-1]][: len(ends)]
    tiny.release(ids.values())
