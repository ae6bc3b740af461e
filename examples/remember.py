"""Three ways to limit what an agent reads: the last messages, the relevant ones, and a summary of older ones."""

from __future__ import annotations

from collections.abc import Sequence

import bm25s

import agentcho

QUESTIONS = ("Where is the key?", "Who is the baker?", "When does the train leave?", "Where was the key again?")


class Recent(agentcho.Agent):
    """Reads its system prompt and the last four messages."""

    audience = "everyone"

    def view(self, readable: Sequence[agentcho.Metadata]) -> agentcho.View:
        return agentcho.View.last(readable, 4, keep=[self.brief])


class Searching(agentcho.Agent):
    """Reads the two messages that share most words with a question. The search looks at all messages."""

    audience = "everyone"

    async def reply(self, game: agentcho.Game, question: str) -> str:
        ids = [read.id for read in agentcho.View.open_to(game.said, "everyone").reads]
        index = bm25s.BM25()
        index.index(bm25s.tokenize([game.message(id).text for id in ids], show_progress=False), show_progress=False)
        found, _ = index.retrieve(
            bm25s.tokenize(question, show_progress=False), k=min(2, len(ids)), show_progress=False
        )
        relevant = agentcho.View.of(ids[place] for place in sorted(found[0]))
        return (await self.say(prompt=question, view=relevant, max_tokens=16)).text


class Summing(agentcho.Agent):
    """Summarises the messages that are about to leave its view, and reads the summary instead."""

    audience = "everyone"
    summary: str | None = None
    seen = 0

    async def reply(self, game: agentcho.Game) -> str:
        mine = [read.id for read in agentcho.View.open_to(game.said, "everyone").reads]
        if len(mine) - self.seen > 4:
            old = agentcho.View.of([self.summary, *mine[self.seen : -2]])
            self.summary = (await self.think("Sum this up.", view=old, max_tokens=24)).id
            self.seen = len(mine) - 2
        return (await self.say(view=agentcho.View.of([self.summary, *mine[self.seen :]]), max_tokens=16)).text


class Remember(agentcho.Scenario):
    """Three agents with different memories answer the same questions."""

    class Outcome(agentcho.Scenario.Outcome):
        answers: int

    async def play(self, game: agentcho.Game) -> Outcome:
        recent, searching, summing = (
            game.cast(Recent, "recent"),
            game.cast(Searching, "searching"),
            game.cast(Summing, "summing"),
        )
        for question in QUESTIONS:
            await game.announce(question)
            await recent.say(max_tokens=16)
            await searching.reply(game, question)
            await summing.reply(game)
        return self.Outcome(answers=3 * len(QUESTIONS))
