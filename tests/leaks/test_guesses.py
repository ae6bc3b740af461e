"""Words are guessed only from available messages that their author may read: checked on the calls that games submit,
against a slow oracle, and on corpora alone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

import agentcho
from agentcho.config import RunConfig
from agentcho.events import Ended, Event
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.message import EVERYONE, Audience, Message, Metadata, Words
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, Decode, EncodingId, SchedulingPriority
from agentcho.provenance.drafts import Draft
from agentcho.provenance.speculation_corpora import Corpora
from agentcho.provenance.views import History, MessageLog, ReadSet
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine

NAMES = ("ann", "bob", "cy")
Texts = set[tuple[int, ...]]


class Notes(FakeEngine):
    """Records the texts that each submitted decode may be guessed from; None: nothing is guessed."""

    def __init__(self) -> None:
        super().__init__(lambda call, prompt: f"word{len(self.noted)}")
        self.noted: dict[EncodingId, Texts | None] = {}

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        ids = super().submit(calls, turn)
        for id, call in zip(ids, calls, strict=True):
            if isinstance(call, Decode):
                drawn = None if call.corpora is None else {text for each in call.corpora for text in each.messages}
                self.noted[id] = drawn
        return ids


class Talk(agentcho.Scenario):
    """Random agents speak to random audiences, alone or in rounds of moves."""

    name = "talk"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice, self.rounds = Random(seed), list[list[set[str]]]()

    async def play(self, game: agentcho.Game) -> Any:
        agents = [game.cast(agentcho.Agent, name=name) for name in NAMES]
        for _ in range(5):
            moves = [set[str]() for _ in range(self._dice.choice((1, 3)))]
            self.rounds.append(moves)
            if len(moves) == 1:
                await self._move(agents, moves[0])
            else:
                await game.together(*(self._move(agents, said) for said in moves))
        return self.Outcome()

    async def _move(self, agents: Sequence[agentcho.Agent], said: set[str]) -> None:
        for _ in range(2):
            await self._say(agents, said)

    async def _say(self, agents: Sequence[agentcho.Agent], said: set[str]) -> None:
        speaker = self._dice.choice(agents)
        others = self._dice.sample(NAMES, self._dice.randrange(3))
        to: Any = "everyone" if self._dice.random() < 0.4 else sorted({speaker.name, *others})
        said.add((await speaker.say(to=to)).id)


class Played(NamedTuple):
    """A finished game: its messages in the order in which they ended, and the moves of its rounds."""

    engine: Notes
    said: list[TranscriptEntry]
    rounds: list[list[set[str]]]

    def out(self, own: str) -> list[Message]:
        """The messages available when this one was said: those outside of moves, all of earlier rounds, and those of
        its own move that ended before."""
        earlier = set[str]()
        for moves in self.rounds:
            mine = next((move for move in moves if own in move), None)
            if mine is not None:
                break
            earlier.update(*moves)
        moved, found = {id for moves in self.rounds for move in moves for id in move}, list[Message]()
        for message in (entry.message for entry in self.said):
            if message.id == own:
                return found
            if message.id in earlier | (mine or set()) or message.id not in moved:
                found.append(message)
        raise KeyError(own)


def played(seed: int, **options: Any) -> Played:
    engine, events, talk = Notes(), list[Event](), Talk(seed)
    play(RunRequest(talk, RunConfig(model="fake", max_tokens=4, **options), engine=engine, sink=events.append))
    return Played(engine, [event.entry for event in events if isinstance(event, Ended)], talk.rounds)


@pytest.mark.parametrize("mode", ["enforce", "audit", "baseline"])
def test_all_that_is_out_and_that_an_author_may_read_is_drawn_from_and_nothing_else(mode: str) -> None:
    options: dict[str, Any] = {"mode": "baseline"} if mode == "baseline" else {"leakage": mode}
    drawn = 0
    for seed in range(4):
        game = played(seed, speculate=True, **options)
        for said in game.said:
            if said.message.kind == "decode" and said.own is not None:
                author = said.message.author or ""
                readable = (each for each in game.out(said.message.id) if each.audience.includes(author))
                assert game.engine.noted[said.own.id] == {each.words.tokens for each in readable}
                drawn += len(game.engine.noted[said.own.id] or ())
    assert drawn > 50


def test_nothing_is_guessed_where_nobody_asked_for_it() -> None:
    assert set(map(str, played(1).engine.noted.values())) == {"None"}
    with pytest.raises(ValueError, match="speculate contradicts deterministic"):
        RunConfig(model="fake", deterministic=True, speculate=True)


# -- corpora alone ---------------------------------------------------------------------------------------


def draft(id: str, to: Audience, *tokens: int, tokenizer: str | None = None) -> Draft:
    message = Message(id, 0, "prefill", "user", None, to, (), Words("", id, tokens, (0, len(tokens))))
    metadata = Metadata(id, "prefill", "user", None, to, ())
    return Draft(metadata, id, None, ReadSet(None, (), None, ()), message, tokenizer=tokenizer)


def texts(corpora: Any) -> Texts:
    return {text for each in corpora for text in each.messages}


def test_a_corpus_is_of_one_audience_and_grows() -> None:
    ann, both = Audience(frozenset({"ann"})), Audience(frozenset({"ann", "bob"}))
    drafts = {each.metadata.id: each for each in (draft("a", ann, 1), draft("b", both, 2), draft("c", EVERYONE, 3))}
    log, corpora = MessageLog([drafts["a"].metadata, drafts["c"].metadata]), Corpora(drafts, lambda draft: True)
    to_ann, to_bob = corpora.of("ann", History(log)), corpora.of("bob", History(log))
    assert (texts(to_ann), texts(to_bob)) == ({(1,), (3,)}, {(3,)})
    log.add(drafts["b"].metadata)
    assert texts(corpora.of("bob", History(log))) == {(2,), (3,)}
    assert {*to_ann} < {*corpora.of("ann", History(log))}
    assert {*to_bob} == {*to_bob} & {*to_ann}  # what both may read is indexed once
    assert corpora.of(None, History(log)) == ()
    assert texts(corpora.read("bob", ["a", "b"])) == {(2,)}


def test_ids_of_another_tokenizer_are_no_guesses() -> None:
    drafts = {"a": draft("a", EVERYONE, 1), "b": draft("b", EVERYONE, 2, tokenizer="other")}
    corpora = Corpora(drafts, lambda draft: draft.tokenizer is None)
    log = MessageLog(each.metadata for each in drafts.values())
    assert texts(corpora.of("ann", History(log))) == texts(corpora.read("ann", drafts)) == {(1,)}
