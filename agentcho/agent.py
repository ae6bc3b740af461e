"""Agents: who speaks, with a role, a system prompt, a default audience and a view.

An agent submits only as itself. Subclass it, set what is fixed, and call the verbs. Does not know: engines,
encodings, other agents' minds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Protocol, TypeVar, Unpack

import anyio
from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError

from agentcho.calls.call import SamplingOptions, Unconstrained
from agentcho.calls.schema import closed
from agentcho.calls.values import kind, listed, text
from agentcho.errors import AgentchoError, AnswerInvalid, BadSampling, ScenarioError
from agentcho.flow.views import View
from agentcho.message import Audience, Message, Metadata

M = TypeVar("M", bound=BaseModel)
Names = Audience | Iterable[str] | str
Wish = View | Callable[[Sequence[Metadata]], View] | None
"""What a call reads: a view, a function that makes one of what it may read, or what `Agent.view` says (None)."""


class Playing(Protocol):
    """The game as its agents see it."""

    async def speak(
        self,
        agent: Agent,
        to: Names,
        prompt: str | None,
        header: str,
        view: Wish,
        sampling: SamplingOptions,
        on_token: Callable[[str], None] | None = None,
    ) -> Message: ...

    async def tell(self, agent: Agent, text: str, to: Names, role: str, view: Wish) -> str: ...

    async def release(self, agent: Agent, message: Message, to: Names, view: Wish) -> str: ...

    def seat(self, agent: Agent) -> str | None: ...

    def brief(self, agent: Agent) -> str | None: ...

    def spelt(self, text: str) -> str: ...


class Agent:
    """One participant of a game. Its verbs are coroutines, `stream` an async context, and may run side by side.

    `role` is shown in transcripts. `system` is its system prompt, or None: private to it, unless `open_system` says
    that it is no secret. Then the scenario puts it into the talk, for everyone, and once for all such agents with the
    same words, so that it is encoded once; views of agents that have another one are not shown it. `audience` is who
    may read what it says where `say` names nobody: "everyone", or exact names; by default nobody but itself.
    `priority`: where not all that waits fits into a step, what agents of a higher one say goes first. Keyword
    arguments become attributes.

    Every verb takes `prompt` (a private user message put before it), `header` (the beginning of the message,
    not part of its text), `view` (a view, or a function of what it may read; default: its own), and the options of
    `Sampling` by name (max_tokens, temperature, stop, …): those of `SamplingOptions`, and where a verb itself says what
    can be said, as `choose` and `answer` do, those of `Unconstrained`.
    """

    role: str = "agent"
    system: str | None = None
    open_system: bool = False
    audience: Names = ()
    priority: int = 0

    def __init__(self, name: str, **attributes: Any) -> None:
        self._name = name
        self._game: Playing | None = None
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    @property
    def name(self) -> str:
        """What it is called; once it is cast, the name of its seat, by which alone the game knows it."""
        return (self._game and self._game.seat(self)) or self._name

    @name.setter
    def name(self, name: str) -> None:
        """`ScenarioError`: it has a seat."""
        if self._game is not None and (seat := self._game.seat(self)) is not None:
            raise ScenarioError(
                f"{seat} cannot be called {name!r}: who speaks is known by the seat in the game, from when it is cast. "
                "Cast another agent under that name"
            )
        self._name = name

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle gets: everything but the seat."""
        return self.__dict__ | {"_game": None}

    @property
    def brief(self) -> str | None:
        """The id of its system prompt, for views; None: it has none, or is in no game yet."""
        return None if self._game is None else self._game.brief(self)

    def view(self, readable: Sequence[Metadata]) -> View:
        """What it reads at a call, of the messages it may read, in the order they were said.

        Override to leave out, reorder or place messages. Default: its system prompt, then all others.
        """
        own = [m for m in readable if m.id == self.brief or (m.role == "system" and m.author == self.name)]
        return View.of([*own, *(m for m in readable if m not in own)])

    async def run(self) -> None:
        """What it does when it is started by itself; see `agentcho.run`."""

    async def think(
        self, prompt: str | None = None, *, header: str = "", view: Wish = None, **options: Unpack[SamplingOptions]
    ) -> Message:
        """Say something to itself alone."""
        return await self._speak((), prompt, header, view, **options)

    async def say(
        self,
        to: Names | None = None,
        prompt: str | None = None,
        *,
        header: str = "",
        view: Wish = None,
        **options: Unpack[SamplingOptions],
    ) -> Message:
        """Say something to an audience (the default one where `to` is None); it can always read itself."""
        return await self._speak(self.audience if to is None else to, prompt, header, view, **options)

    async def choose(
        self,
        choices: Iterable[str],
        prompt: str | None = None,
        to: Names = (),
        opening: str = "",
        closing: str = "",
        *,
        header: str = "",
        view: Wish = None,
        **options: Unpack[Unconstrained],
    ) -> str:
        """Say exactly one of `choices`, between `opening` and `closing`, and return it. Private by default."""
        given = listed(choices, "the choices", most=1 << 16)
        said: dict[str, str] = {f"{opening}{text(choice, 'a choice')}{closing}": choice for choice in given}
        message = await self._speak(to, prompt, header, view, choices=tuple(said), **options)
        if message.text in said:
            return said[message.text]
        alike = (choice for whole, choice in said.items() if self._playing.spelt(whole) == message.text)
        if (found := next(alike, None)) is None:
            raise AnswerInvalid(
                f"{self.name} was made to say what is none of its choices; force words that are one of them, or none"
            )
        return found

    async def ask(
        self,
        prompt: str,
        choices: Iterable[str],
        to: Names = (),
        opening: str = "",
        closing: str = "",
        *,
        header: str = "",
        view: Wish = None,
        **options: Unpack[Unconstrained],
    ) -> str:
        """Put a private question to it and return its choice."""
        return await self.choose(choices, prompt, to, opening, closing, header=header, view=view, **options)

    async def answer(
        self,
        model: type[M],
        prompt: str | None = None,
        to: Names = (),
        *,
        header: str = "",
        view: Wish = None,
        **options: Unpack[Unconstrained],
    ) -> M:
        """Say JSON of a pydantic model and return it parsed. It always fits the model's JSON schema, and has no keys
        that the model has not, unless the model, or one in it, says that it allows them (`extra="allow"`);
        `AnswerInvalid` where the model's own validators refuse it all the same."""
        message = await self._speak(to, prompt, header, view, json_schema=closed(_schema(model)), **options)
        try:
            return model.model_validate_json(message.text)
        except ValidationError as error:
            fields = [".".join(map(str, e["loc"])) or "(whole)" for e in error.errors()]
            raise AnswerInvalid(
                f"the answer fits the JSON schema of {model.__name__} and fails its own validators at: "
                f"{', '.join(fields)}. Put the rule into the schema (enum, ge, le, pattern), or ask again"
            ) from error

    @asynccontextmanager
    async def stream(
        self,
        to: Names | None = None,
        prompt: str | None = None,
        *,
        header: str = "",
        view: Wish = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncIterator[Pieces]:
        """Say something and read its text as it comes: `async with a.stream() as pieces: async for text in pieces`.

        Leaving the context waits for the end; then `pieces.message` is the message. Leaving it with an error
        gives the message up: nobody reads it, and what was heard of it is on record.
        """
        send, receive = anyio.create_memory_object_stream[str](inf)
        pieces = Pieces(receive)

        async def speak() -> None:
            with send:
                try:
                    audience = self.audience if to is None else to
                    pieces.message = await self._speak(audience, prompt, header, view, send.send_nowait, **options)
                except Exception as error:
                    pieces.error = error

        with receive:
            async with anyio.create_task_group() as group:
                group.start_soon(speak)
                try:
                    yield pieces
                except Exception as error:  # of the body: to come out as it is, not in a group
                    pieces.error = error
                    group.cancel_scope.cancel()
        if pieces.error is not None:
            raise pieces.error

    async def tell(self, text: str, to: Names | None = None, role: str = "assistant", view: Wish = None) -> str:
        """Put a message of known text into the talk as its own; returns its id. Encoded when first read."""
        return await self._playing.tell(self, text, self.audience if to is None else to, role, view)

    async def release(self, message: Message, to: Names | None = None, view: Wish = None) -> str:
        """Put the tokens of a message of its own before another audience, as a new message; returns its id. `view`
        is what the new message is encoded over. An audience is never widened: who could not read `message` reads
        this one, which an audit lists as a release."""
        return await self._playing.release(self, message, self.audience if to is None else to, view)

    async def _speak(
        self,
        to: Names,
        prompt: str | None,
        header: str,
        view: Wish,
        on_token: Callable[[str], None] | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Message:
        return await self._playing.speak(self, to, prompt, header, view, sampling, on_token)

    @property
    def _playing(self) -> Playing:
        if self._game is None:
            raise AgentchoError(f"{self.name} is in no game yet: cast it with game.cast(...) or agentcho.run(...)")
        return self._game


class Pieces:
    """The text of a message as it comes. `message` is set at its end."""

    def __init__(self, receive: anyio.abc.ObjectReceiveStream[str]) -> None:
        self._receive = receive
        self.message: Message | None = None
        self.error: Exception | None = None

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> str:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def _schema(model: Any) -> dict[str, Any]:
    """The JSON schema of a pydantic model. `BadSampling`: it is none, or has none."""
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise BadSampling(f"an answer is asked for of what is {kind(model)}", "give a pydantic model")
    try:
        return model.model_json_schema()
    except PydanticUserError as error:
        raise BadSampling(f"{model.__name__} has no JSON schema ({error.code})", "give fields that JSON has") from error
