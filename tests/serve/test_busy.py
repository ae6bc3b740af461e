"""A society whose agents all talk at once and quote forgotten messages, and some of whom disconnect meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from agentcho.errors import CallbackFailed
from agentcho.serve.request import AnswerDelta, Caller, ChatRequest, QuotedMessage, ServedMode
from agentcho.serve.sharing.society import RetentionLimits
from tests.serve.stage import Asked, agent, assistant, conclusion, play, served, system, tool, user

NAMES = ("ann", "bob", "cem", None)
KEPT = (RetentionLimits(tokens=20), RetentionLimits(tokens=100, messages=40), RetentionLimits(tokens=400))
AUDIENCES = (None, None, ("ann",), ("ann", "bob"), ("cem",))


class Gone(Exception):
    """A client that has disconnected."""


class Crowd:
    """Random requests: the agent, the messages quoted, their readers, and when the client disconnects."""

    def __init__(self, at: Asked, seed: int) -> None:
        self._at, self._dice = at, random.Random(seed)
        self._said = list[tuple[frozenset[str] | None, str, str]]()

    async def go_on(self, rounds: int) -> None:
        """Sends several random requests at a time, for this many rounds."""
        for _ in range(rounds):
            async with anyio.create_task_group() as group:
                for _ in range(self._dice.randrange(1, 6)):
                    group.start_soon(self._ask)

    async def _ask(self) -> None:
        dice, name = self._dice, self._dice.choice(NAMES)
        caller, audience = agent(name, key=dice.choice("kl")), dice.choice(AUDIENCES)
        asked = ChatRequest(
            tuple(self._prompt(name)),
            max_tokens=dice.choice((1, 3, 8, 40)),
            seed=dice.randrange(99),
            choices=dice.choice((1, 1, 2, 3)),
            audience=audience,
        )
        with anyio.move_on_after(dice.choice((10, 10, 0.002))), suppress(CallbackFailed):
            await self._answered(caller, asked)

    async def _answered(self, caller: Caller, asked: ChatRequest) -> None:
        answers = await self._at.model.answer(caller, asked, self._listener(self._dice.choice((99, 99, 0, 2))))
        readers = None if asked.audience is None else frozenset({*asked.audience, caller.agent or ""})
        self._said += [(readers, answer.text, answer.id) for answer in answers.answers]

    def _listener(self, patience: int) -> Callable[[AnswerDelta], None]:
        heard = list[AnswerDelta]()

        def hear(delta: AnswerDelta) -> None:
            heard.append(delta)
            if len(heard) > patience:
                raise Gone

        return hear

    def _prompt(self, name: str | None) -> list[QuotedMessage]:
        dice = self._dice
        known = [said for said in self._said if said[0] is None or name in said[0] or dice.random() < 0.15]
        quoted = [dice.choice((assistant, user))(text, None, dice.choice((id, None))) for _, text, id in known[-9:]]
        told = [system(f"you are {name}")] if dice.random() < 0.6 else []
        found = [tool(f"result {dice.randrange(4)}")] if dice.random() < 0.2 else []
        return [*told, *found, *dice.sample(quoted, min(len(quoted), 4)), user(f"question {dice.randrange(8)}")]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["enforce", "baseline"])
@pytest.mark.parametrize(
    "keeping",
    [RetentionLimits(tokens=20), RetentionLimits(tokens=100, messages=40), RetentionLimits(tokens=400)],
    ids=str,
)
def test_a_crowd_leaves_a_record_that_knows_what_everybody_read(
    tmp_path: Path, mode: ServedMode, keeping: RetentionLimits
) -> None:
    async def body() -> None:
        async with served(tmp_path, keeping=keeping, mode=mode) as at:
            await Crowd(at, 7).go_on(40)

    play(body)
    assert conclusion(tmp_path) == "clean"


def test_who_stops_listening_at_the_first_word_leaves_a_record_that_knows_what_it_read(tmp_path: Path) -> None:
    def gone(delta: AnswerDelta) -> None:
        raise Gone

    async def body() -> None:
        async with served(tmp_path) as at:
            asked = ChatRequest((user("shall we build a bridge"),), max_tokens=8)
            with pytest.raises(CallbackFailed):
                await at.model.answer(agent("ann"), asked, gone)
            await at.ask(user("shall we build a bridge"), who=agent("bob"), max_tokens=8)

    play(body)
    assert conclusion(tmp_path) == "clean"
