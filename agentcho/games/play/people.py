"""People who play agents: what a person is asked, what they may see, and how their answer is checked.

A person is asked in place of a model, in the middle of a turn, and sees only what the agent may read. The answer is
then forced. Independent of terminals and engines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import anyio
from pydantic import BaseModel, ValidationError

from agentcho.agent import Utterance
from agentcho.config import RunConfig
from agentcho.errors import AudienceError, CallbackFailed, ContextOverflow, PersonLeft, RequestError
from agentcho.extras import require
from agentcho.games.play.game_models import GameModel
from agentcho.message import Audience, Message, Metadata, audience, cast_name
from agentcho.protocol.call import Sampling
from agentcho.protocol.value_checks import type_name
from agentcho.provenance.drafts import Draft
from agentcho.records.record import GameOver

SCHEMAS = "to check the JSON that a person answers with"


@dataclass(frozen=True, eq=False)
class PersonPrompt:
    """A question to a person: the words of one message. They are one of `choices`, or JSON of `schema`, or free text.

    Attributes:
        game: Number of the game, from 0.
        agent: The agent that the person plays.
        id: Id of the message.
        to: Who will read it.
        header: The beginning of the message, which the person does not type.
        prompt: The private question that precedes it. None if there is none.
        sampling: The options that a model would be sampled with.
        labels: The labels of the choices, in their order.
        model: The pydantic model of the JSON. None if there is none.
        deadline: When the time is over, in seconds on the event loop's clock. `inf` means never.
        most: Maximum number of tokens.
        spelled: Returns the token ids of a text.
        unspelled: Returns the text of token ids.
    """

    game: int
    agent: str
    id: str
    to: Audience
    header: str
    prompt: str | None
    sampling: Sampling
    labels: tuple[str, ...]
    model: type[BaseModel] | None
    deadline: float
    most: int
    spelled: Callable[[str], Sequence[int]]
    unspelled: Callable[[Sequence[int]], str]

    @property
    def choices(self) -> tuple[str, ...]:
        """The only texts that can be said. Empty if there is no such list."""
        return self.sampling.choices or ()

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema of the words. None if they are not JSON."""
        return self.sampling.json_schema

    def tokens(self, words: str) -> int:
        """Return the length of a text in tokens of the agent's model, or in bytes if the model is behind an API.

        Args:
            words: The text.

        Returns:
            The number of tokens or bytes.
        """
        return len(self.spelled(words))

    def fault(self, words: str) -> str | None:
        """Return why a text cannot be said, and what to do, as a sentence for the person who typed it.

        Args:
            words: The text.

        Returns:
            The sentence. None if the text can be said.

        Raises:
            ExtraMissing: JSON cannot be checked, because the extra `people` is not installed.
        """
        if not isinstance(words, str):
            return f"the message must be text, and this is {type_name(words)}"
        try:
            words.encode()
        except UnicodeEncodeError:
            return "it contains invalid characters (lone surrogates); type it again"
        if self.choices:
            return None if words in self.choices else f"it is not one of the {len(self.choices)} choices"
        if not words.strip():
            return "it is empty: say something"
        stops = self.sampling.stop if self.schema is None else ()
        if stop := next((stop for stop in stops if stop in words), None):
            return f"{stop!r} ends a message here; leave it out"
        count = self.tokens(words)
        if count > self.most:
            return f"it has {count} tokens, and at most {self.most} are allowed; shorten it by {count - self.most}"
        return None if self.schema is None else self._misfit(self.unspelled(self.spelled(words)))

    def _misfit(self, words: str) -> str | None:
        """Return why a text is not the requested JSON, or None if it is."""
        assert self.schema is not None
        fault = schema_fault(self.schema, words)
        if fault is not None or self.model is None:
            return fault
        try:
            self.model.model_validate_json(words)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            return f"{'.'.join(map(str, first['loc'])) or 'the answer'}: {first['msg'].removeprefix('Value error, ')}"
        return None


def schema_fault(schema: Mapping[str, Any], words: str) -> str | None:
    """Return why a text is not JSON of a schema, or None if it is. Raises `ExtraMissing` if nothing can check it."""
    require(SCHEMAS, "people")
    from agentcho.integrations.endpoints.answer import checked

    found = checked(Sampling(json_schema=dict(schema)), words, True)
    if not found.fault and found.text != words.strip():
        return "there is text after the JSON"
    told = found.fault.removeprefix("Your answer ").removeprefix("does not match the JSON schema: ").removesuffix(".")
    return told.removeprefix("at ") or None


def question_of(game: int, draft: Draft, sampling: Sampling, asked: Utterance, model: GameModel) -> PersonPrompt:
    """Return the question to a person for the message of a draft. Raises `ContextOverflow` if no token would fit."""
    author = draft.metadata.author
    content = model.frames.framing.content
    frames = model.frames
    assert author is not None
    opening, closing = frames.framing.opening("assistant", draft.name), frames.framing.closing("assistant")
    bare = len(opening) + len(content.encode(draft.text)) + len(closing)
    room = frames.context - model.resolver.decode_end(draft, bare)
    if room < 1:
        raise ContextOverflow(frames.context - room + 1, frames.context, model.choreographer.name)
    most = room if sampling.choices else min(room, sampling.max_tokens)
    deadline = anyio.current_effective_deadline()
    told = audience(asked.to), draft.text, asked.prompt
    shape = sampling, asked.labels, asked.form
    return PersonPrompt(game, author, draft.metadata.id, *told, *shape, deadline, most, content.encode, content.decode)


class Person:
    """Somebody who plays agents, in one game of a run or in many. Subclass it, and write `ask`.

    All methods are called on the event loop of the run. What `hear`, `joined`, `over` and `absent` raise comes out of
    the next `ask`, as `CallbackFailed`.
    """

    def present(self) -> AbstractAsyncContextManager[Any]:
        """Return a context around all games, for whatever shows the person anything."""
        return nullcontext()

    def is_same(self, agent: str, other: str) -> bool:
        """Return whether one human being plays two of the agents that this object plays.

        What is then shown to either counts as known to both, for audits and `words=`. Override this where one object
        stands for several people, as a terminal does that they share.

        Args:
            agent: An agent that this object plays.
            other: Another one.

        Returns:
            True, unless overridden.
        """
        return True

    def joined(self, game: int, agent: str) -> None:
        """Note that the agent has joined a game. The game begins, or begins again after an error, and nothing of it was
        heard.

        Args:
            game: Number of the game, from 0.
            agent: The agent.
        """

    def hear(self, game: int, agent: str, message: Message) -> None:
        """Show a message that is out and that the agent may read.

        Each message is heard once, in order, before the next question to the agent. A message that comes out during a
        question is heard after the answer.

        Args:
            game: Number of the game, from 0.
            agent: The agent.
            message: The message.
        """

    async def ask(self, asked: PersonPrompt) -> str:
        """Return the words to say. It is cancelled when the time is over.

        Args:
            asked: The question.

        Returns:
            The words, for which `asked.fault` returns None.

        Raises:
            PersonLeft: The person has left. The game ends, and can be resumed.
        """
        raise NotImplementedError

    def over(self, game: int, agent: str, over: GameOver) -> None:
        """Note that a game of the agent is over. Its outcome may only be told now.

        Args:
            game: Number of the game, from 0.
            agent: The agent.
            over: How the game ended.
        """

    def absent(self, game: int, agent: str, cast: Sequence[str]) -> None:
        """Note that a game is over in which nobody had the agent's name.

        Args:
            game: Number of the game, from 0.
            agent: The name.
            cast: The names that agents of the game had.
        """


def person_left(agent: str) -> PersonLeft:
    """Return the error for a person who has left."""
    return PersonLeft(
        f"the person who plays {agent} has left; everything said so far is recorded, and --resume continues from there"
    )


People = Mapping[str, Person]
"""The people who play agents, by the agents' names."""
Readable = Callable[[str], Sequence[Metadata]]


class Seats:
    """The people of one game.

    Args:
        game: Number of the game, from 0.
        people: The people, by the names of their agents.
        readable: Returns what an agent may read, as far as it is out for the running task.
        words: Returns a message by its id.
        waits: Called before a person is waited for.
    """

    def __init__(
        self,
        game: int,
        people: People,
        readable: Readable,
        words: Callable[[str], Message | None],
        waits: Callable[[], None],
    ) -> None:
        self._game = game
        self._people = people
        self._readable = readable
        self._words = words
        self._waits = waits
        self._heard: dict[str, set[str]] = {}
        self._asked: dict[str, int] = {}
        self._broken: dict[str, Exception] = {}

    def __contains__(self, agent: str) -> bool:
        """Return whether a person plays the agent."""
        return agent in self._people

    def played_with(self, agent: str) -> tuple[str, ...]:
        """Return all agents that have joined and whose words the person who plays this agent has been shown."""
        person = self._people[agent]
        return tuple(
            each
            for each in self._heard
            if self._people[each] is person and (each == agent or person.is_same(agent, each))
        )

    def joined(self, agent: str) -> None:
        """Note that an agent has joined."""
        if agent in self._people:
            self._heard[agent], self._asked[agent] = set(), 0
            self._call(agent, self._people[agent].joined, self._game, agent)

    def tell(self) -> None:
        """Show everybody the messages that are out and that they may read, except people who are being asked."""
        for agent in [agent for agent, open_ in self._asked.items() if not open_]:
            self._tell(agent)

    async def ask(self, asked: PersonPrompt) -> str:
        """Return the words of a person, who first hears all that their agent may read. Raises `RequestError` for words
        that cannot be said."""
        agent = asked.agent
        self._tell(agent)
        if agent in self._broken:
            raise CallbackFailed(f"the person who plays {agent}", self._broken[agent])
        self._waits()
        self._asked[agent] += 1
        try:
            words = await _asking(self._people[agent], asked)
        finally:
            self._asked[agent] -= 1
        if fault := asked.fault(words):
            raise RequestError(f"the person who plays {agent} gave a message that cannot be said: {fault}", "typed")
        return words

    def _tell(self, agent: str) -> None:
        heard, person = self._heard[agent], self._people[agent]
        for message in self._readable(agent):
            if message.id not in heard:
                heard.add(message.id)
                whole = self._words(message.id)
                assert whole is not None
                if message.author != agent:  # what only its author read stays untold
                    whole = replace(whole, parents=message.parents, offsets=None, new_offset=None)
                self._call(agent, person.hear, self._game, agent, whole)

    def _call(self, agent: str, hear: Callable[..., None], *told: Any) -> None:
        """Call a method of a person. An error is kept, so that it does not end messages of others."""
        try:
            hear(*told)
        except Exception as error:
            self._broken.setdefault(agent, error)


def _asking(person: Person, asked: PersonPrompt) -> Awaitable[str]:
    """Return the question to a person. Raises `RequestError` if `ask` is not a coroutine."""
    asking: object = person.ask(asked)
    if not isinstance(asking, Awaitable):
        raise RequestError(
            f"`ask` of {type(person).__name__}, the person who plays {asked.agent}, is not a coroutine; write `async "
            "def ask(self, asked)`"
        )
    return asking


def with_people(config: RunConfig, people: People, cast: Collection[str] | None = None) -> RunConfig:
    """Return the options of a run in which people play.

    Raises:
        RequestError: No `Person` is given for an agent that a person is to play, or one is given for another agent.
        AudienceError: A name cannot name an agent, or is not in the `cast`, if that is known.
    """
    names = config.people or tuple(people)
    if not names:
        return config
    for name in names:
        if name not in people:
            raise RequestError(
                f"{name} is played by a person, but no person is given; give people={{{name!r}: ...}}, or play "
                "the run with `agentcho run --as`"
            )
    for name, person in people.items():
        if cast_name(name) not in names:
            raise RequestError(
                f"people play {', '.join(names)} in this run, not {name}; give a person for these agents only"
            )
        if not isinstance(person, Person):
            raise RequestError(f"the person for {name} is {type_name(person)}; give a Person, with a method `ask`")
        if cast is not None and name not in cast:
            raise AudienceError(f"no agent is named {name}, which a person is to play", cast)
    return config.model_copy(update={"people": names})
