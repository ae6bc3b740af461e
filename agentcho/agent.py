"""Agents: who speaks, with a role, a system prompt, a default audience and a view.

An agent submits only as itself. Subclass it, set what is fixed, and call the verbs. Does not know: engines,
encodings, other agents' minds.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack

import anyio
import anyio.lowlevel
from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError

from agentcho.errors import (
    AgentchoError,
    AnswerInvalid,
    ArgumentError,
    AudienceWarning,
    RequestError,
    ScenarioError,
    nearest,
)
from agentcho.message import Audience, Message, Metadata
from agentcho.protocol.call import SamplingOptions, Unconstrained
from agentcho.protocol.json_schema import of_model
from agentcho.protocol.value_checks import checked_bool, checked_list, checked_text, type_name
from agentcho.provenance.views import View

if TYPE_CHECKING:
    from agentcho.games.tools.tool import Tool, Toolset

M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")
Names = Audience | Iterable[str] | str
ViewLike = View | Callable[[Sequence[Metadata]], View] | None
"""What a call reads: a view, a function that makes one of what it may read, or what `Agent.view` says (None)."""


def verb(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A verb of agents or games: where it raises, it lets others run before, and where it was cancelled, it does not
    begin. Code that tries again after every error could otherwise keep the event loop to itself, so that no deadline
    passes and no other game goes on."""

    @wraps(method)
    async def yielding(*args: P.args, **options: P.kwargs) -> T:
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            for move in args:
                if isinstance(move, Coroutine):
                    move.close()
            raise
        try:
            return await method(*args, **options)
        except Exception:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            raise

    return yielding


class ToolWish(NamedTuple):
    """What tools an agent may call before it says something: see `Agent.say`."""

    tools: tuple[Tool | Toolset, ...]
    choice: str = "auto"
    most: int = 8


class Utterance(NamedTuple):
    """What a verb asks its game for: one sampled message. `to` is its audience, `prompt` a private user message before
    it, `header` its beginning. `on_token` is called with each piece of its text. `release`: see `Agent.say`. For a
    person who says it: `labels` are what its choices are called, in their order, and `form` is the model that its JSON
    is of. Calls of `tools` come first."""

    to: Names
    prompt: str | None
    header: str
    view: ViewLike
    sampling: SamplingOptions
    on_token: Callable[[str], None] | None = None
    labels: tuple[str, ...] = ()
    form: type[BaseModel] | None = None
    release: bool = False
    tools: ToolWish | None = None


class GamePort(Protocol):
    """What an agent needs of the game that it is cast in. Each method is told which agent asks."""

    def name_of(self, agent: Agent) -> str | None:
        """The name under which the agent was cast. None: it was not cast here."""

    def system_prompt(self, agent: Agent) -> str | None:
        """The id of its system prompt. None: it has none."""

    def retokenized(self, text: str, id: str) -> str:
        """A text as the tokenizer of the model that said message `id` gives it back."""
        ...

    async def speak(self, agent: Agent, asked: Utterance) -> Message:
        """One sampled message."""
        ...

    async def tell(
        self, agent: Agent, text: str, to: Names, role: str, view: ViewLike = None, *, release: bool = False
    ) -> str:
        """A message of known text; returns its id."""
        ...

    async def release(self, agent: Agent, message: Message, to: Names, view: ViewLike) -> str:
        """The tokens of a message of its own before another audience; returns the id of the new message."""
        ...


class Agent:
    """One participant of a game: subclass it, or give its attributes by name. It is cast by `Game.cast` or
    `agentcho.run`, and speaks by its verbs, which are coroutines (`stream` is an async context) and may run side by
    side.

    Attributes, of the class or of one agent; by name only those can be given that the class declares:

    - `role` is shown in transcripts.
    - `system` is its system prompt, or None. Only the agent itself may read it. Without one it reads what the chat
      template of its model writes where there is none, if it writes anything: that is open to all, and encoded once.
    - `open_system` says that the system prompt is no secret. Then the scenario puts it into the talk, for everyone,
      once for all such agents with the same words, so that it is encoded once. Agents with another system prompt are
      not shown it in their views.
    - `audience` is who may read what the agent says where `say` names nobody: "everyone", or exact names. By default
      nobody but itself.
    - `model` is what the agent speaks through: the name of one of the run's models, or a function (a method) that is
      asked for one at each turn, with the number of the agent's own turn, from 0. None, and "default": the run's own.
    - `shares_thoughts`: whether those who may read what it says may read what its model thinks before; otherwise it
      alone may. None: as the run says (`--thoughts`).
    - `tools`: what it may call before it says something by `say`: made by `agentcho.tool`, or an `agentcho.MCPServer`.
    - `priority`: where not all calls that wait fit into a step, those of agents with a higher priority go first.

    Every verb takes `prompt` (a private user message put before what is said), `header` (the beginning of the
    message, which is no part of its text), `view` (a `View`, or a function from the readable messages to one; by
    default the agent's own), and the options of `Sampling` by name (max_tokens, temperature, stop, …): those of
    `SamplingOptions`, and where a verb itself says what can be said, as `choose` and `answer` do, those of
    `Unconstrained`.

    Every verb raises `AgentchoError` before the agent is cast, `LeakageError` where the view names what the agent may
    not read (but under `leakage="audit"`), `ContextOverflow` where what it reads does not fit the model's context, and
    `AudienceError` for a name that nobody has.
    """

    role: str = "agent"
    system: str | None = None
    open_system: bool = False
    audience: Names = ()
    priority: int = 0
    tools: Sequence[Tool | Toolset] = ()
    model: str | Callable[[int], str | None] | None = None
    shares_thoughts: bool | None = None

    def __init__(self, name: str, **attributes: Any) -> None:
        self._name = name
        self._game: GamePort | None = None
        for attribute, value in attributes.items():
            self._check_declared(attribute)
            setattr(self, attribute, value)

    def _check_declared(self, attribute: str) -> None:
        """`ArgumentError`: the class declares no attribute of this name, so that nothing would ever read it."""
        bases = type(self).__mro__
        declared = {name for base in bases for name in (*vars(base), *getattr(base, "__annotations__", ()))}
        public = {name for name in declared if not name.startswith("_")}
        if attribute not in public:
            like = nearest(attribute, public)
            remedy = f"{like} If not, declare it in the class" if like else "declare it in the class"
            raise ArgumentError(f"{type(self).__name__} has no attribute {attribute!r}; {remedy}")

    @property
    def name(self) -> str:
        """The agent's name. Once it is cast this is fixed: to set it raises `ScenarioError`."""
        return (self._game and self._game.name_of(self)) or self._name

    @name.setter
    def name(self, name: str) -> None:
        """`ScenarioError`: it has a seat."""
        if self._game is not None and (joined := self._game.name_of(self)) is not None:
            raise ScenarioError(
                f"cannot rename {joined} to {name!r}: an agent's name is fixed once it is cast. Cast another "
                "agent under that name"
            )
        self._name = name

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle gets: everything but the seat."""
        return self.__dict__ | {"_game": None}

    @property
    def brief(self) -> str | None:
        """The message id of its system prompt, or of its model's default one, for views. None: there is none, or it is
        in no game yet."""
        return None if self._game is None else self._game.system_prompt(self)

    def view(self, readable: Sequence[Metadata]) -> View:
        """What the agent reads at a call. `readable` is the metadata of all messages that it may read, in the order in
        which they were said; words are not shown.

        Override it to leave out, reorder or place messages. By default: its system prompt, then all others in order.
        """
        own = [m for m in readable if m.id == self.brief or (m.role == "system" and m.author == self.name)]
        return View.of([*own, *(m for m in readable if m not in own)])

    async def run(self) -> None:
        """What the agent does in a game of agents without a scenario, as `agentcho.run(agent, …)` plays it. Override
        it: an agent without a `run` of its own is refused there."""

    @verb
    async def think(
        self, prompt: str | None = None, *, header: str = "", view: ViewLike = None, **options: Unpack[SamplingOptions]
    ) -> Message:
        """Say something that only the agent itself may read. Returns the finished message."""
        return await self._speak((), prompt, header, view, **options)

    @verb
    async def say(
        self,
        to: Names | None = None,
        prompt: str | None = None,
        *,
        header: str = "",
        view: ViewLike = None,
        tools: Sequence[Tool | Toolset] | None = None,
        tool_choice: str = "auto",
        max_calls: int = 8,
        release: bool = False,
        **options: Unpack[SamplingOptions],
    ) -> Message:
        """Say something to an audience: "everyone", a name, several names, or an `Audience`. None stands for the
        agent's own `audience`. The agent itself may always read it. Returns the finished message.

        With `tools` (None: the agent's own) it may call some of them before, `max_calls` times at most: `tool_choice`
        is "auto", "required" (at least once), or the name of the one that it calls first. Only the agent reads calls
        and results. Raises `LeakageError` for a call that would tell a tool what those who learn of it may not know,
        and `ToolFailed` where a tool's server is gone; what else is wrong with a call is told to the agent as its
        result.

        `release`: let calls of tools run whatever their arguments were made from, and under a rule for words (`words=`)
        let it pass whatever the agent has read; audits list it."""
        told, may = checked_bool(release, "release"), self.tools if tools is None else tools
        wish = ToolWish(tuple(checked_list(may, "tools")), tool_choice, max_calls) if may else None
        asked = Utterance(
            to=self._audience(to), prompt=prompt, header=header, view=view, sampling=options, release=told, tools=wish
        )
        return await self._current_game.speak(self, asked)

    @verb
    async def choose(
        self,
        choices: Iterable[str],
        prompt: str | None = None,
        to: Names | None = None,
        opening: str = "",
        closing: str = "",
        *,
        header: str = "",
        view: ViewLike = None,
        **options: Unpack[Unconstrained],
    ) -> str:
        """Say exactly one of `choices`, between `opening` and `closing`, and return that choice. Only the agent itself
        may read it, unless `to` names others. Sampling is constrained to the choices, so nothing else can be said.

        Warns `AudienceWarning` where the agent has an `audience` and `to` is not given: give `to=()`, for from 0.6 on
        the choice is for that audience.
        Raises `RequestError` for a choice without letters, and `AnswerInvalid` where the model's tokenizer gives back
        other letters than a choice has."""
        given = checked_list(choices, "the choices", most=1 << 16)
        said: dict[str, str] = {f"{opening}{checked_text(choice, 'a choice')}{closing}": choice for choice in given}
        labels = tuple(said.values())
        audience = self._private(to, "choose")
        message = await self._speak(audience, prompt, header, view, labels=labels, choices=tuple(said), **options)
        if message.text in said:
            return said[message.text]
        game, id = self._current_game, message.id
        alike = (choice for whole, choice in said.items() if game.retokenized(whole, id) == message.text)
        if (found := next(alike, None)) is None:
            raise AnswerInvalid(
                f"{self.name} was forced to say something that is not one of its choices; force one of the "
                "choices, or force nothing"
            )
        return found

    @verb
    async def ask(
        self,
        prompt: str,
        choices: Iterable[str],
        to: Names | None = None,
        opening: str = "",
        closing: str = "",
        *,
        header: str = "",
        view: ViewLike = None,
        **options: Unpack[Unconstrained],
    ) -> str:
        """Ask the agent a private question, and return which of `choices` it says. The same as `choose` with the prompt
        first."""
        audience = self._private(to, "ask")
        return await self.choose(choices, prompt, audience, opening, closing, header=header, view=view, **options)

    @verb
    async def answer(
        self,
        model: type[M],
        prompt: str | None = None,
        to: Names | None = None,
        *,
        header: str = "",
        view: ViewLike = None,
        **options: Unpack[Unconstrained],
    ) -> M:
        """Say JSON of a pydantic model, and return it as an instance of that model. Sampling is constrained to the
        model's JSON schema, without keys that the model does not have, unless it allows them (`extra="allow"`). An item
        that is said twice in a set counts once, as pydantic has it. Only the agent itself may read the answer, unless
        `to` names others.

        Warns `AudienceWarning` where the agent has an `audience` and `to` is not given: give `to=()`, for from 0.6 on
        the answer is for that audience.
        Raises `RequestError` for a model without a JSON schema, and `AnswerInvalid` where the JSON fits the schema, and
        the model's own validators refuse it, or where `max_tokens` ended it before it was whole."""
        schema = _schema(model)
        message = await self._speak(
            self._private(to, "answer"), prompt, header, view, form=model, json_schema=schema, **options
        )
        said = message.text if message.kind == "decode" else message.text.removeprefix(header)
        try:
            return model.model_validate_json(said)
        except ValidationError as error:
            if message.stopped == "max_tokens" and error.errors()[0]["type"] == "json_invalid":
                raise AnswerInvalid(
                    f"max_tokens ended the answer of {self.name} before its JSON was whole; raise max_tokens"
                ) from error
            fields = [".".join(map(str, e["loc"])) or "(whole)" for e in error.errors()]
            raise AnswerInvalid(
                f"the answer of {self.name} fits the JSON schema of {model.__name__} but fails the model's "
                f"own validators at: {', '.join(fields)}. Express the rule in the schema (enum, ge, le, "
                "pattern), or ask again"
            ) from error

    @asynccontextmanager
    async def stream(
        self,
        to: Names | None = None,
        prompt: str | None = None,
        *,
        header: str = "",
        view: ViewLike = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncIterator[Pieces]:
        """Say something, and read its text piece by piece as it is sampled::

            async with agent.stream(to="everyone") as pieces:
                async for text in pieces:
                    print(text, end="")
            print(pieces.message.text)

        Leaving the context waits for the end of the message; then `pieces.message` is the finished message. An error in
        the body gives the message up: nobody can read it, and the record keeps what was sampled of it.
        """
        send, receive = anyio.create_memory_object_stream[str](inf)
        pieces = Pieces(receive)

        async def speak() -> None:
            with send:
                try:
                    say = send.send_nowait
                    pieces.message = await self._speak(self._audience(to), prompt, header, view, say, **options)
                except Exception as error:
                    pieces.error = error

        with receive:
            async with anyio.create_task_group() as group:
                group.start_soon(speak)
                try:
                    yield pieces
                except Exception as error:  # raised by the body: it must leave as it is, not in an exception group
                    pieces.error = error
                    group.cancel_scope.cancel()
        if pieces.error is not None:
            raise pieces.error

    @verb
    async def tell(
        self,
        text: str,
        to: Names | None = None,
        role: str = "assistant",
        view: ViewLike = None,
        *,
        release: bool = False,
    ) -> str:
        """Put a message of known text into the talk, as the agent's own, and return its id. Nothing is sampled; the
        text is encoded when somebody first reads it. `release`: see `Game.announce`."""
        return await self._current_game.tell(self, text, self._audience(to), role, view, release=release)

    @verb
    async def release(self, message: Message, to: Names | None = None, view: ViewLike = None) -> str:
        """Put the tokens of one of the agent's own messages before another audience, as a new message, and return its
        id. `view` is what the new message is encoded over. Audits list it as a release.

        Raises `AudienceError` where `message` is not a finished message of this agent."""
        return await self._current_game.release(self, message, self._audience(to), view)

    def _audience(self, to: Names | None) -> Names:
        return self.audience if to is None else to

    def _private(self, to: Names | None, called: str) -> Names:
        """Who may read a choice or an answer: nobody else unless `to` says so, whatever the agent's `audience` is."""
        if to is None and self.audience:
            told = f"{type(self).__name__}.{called}() without `to` is private although the agent has an audience"
            later = (
                "pass to=() to keep it private, or to=self.audience to share it; from agentcho 0.6 on, the "
                "default is the audience"
            )
            warnings.warn(f"{told}: {later}", AudienceWarning, stacklevel=4)
        return () if to is None else to

    async def _speak(
        self,
        to: Names,
        prompt: str | None,
        header: str,
        view: ViewLike,
        on_token: Callable[[str], None] | None = None,
        labels: tuple[str, ...] = (),
        form: type[BaseModel] | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Message:
        asked = Utterance(
            to=to,
            prompt=prompt,
            header=header,
            view=view,
            sampling=sampling,
            on_token=on_token,
            labels=labels,
            form=form,
        )
        return await self._current_game.speak(self, asked)

    @property
    def _current_game(self) -> GamePort:
        """The game that it was cast in. `AgentchoError`: none."""
        if self._game is None:
            raise AgentchoError(f"{self.name} is not in a game yet: cast it with game.cast(...) or agentcho.run(...)")
        return self._game


def require_run(agents: Iterable[Agent]) -> None:
    """`ScenarioError`: one of these agents has no `run` of its own, and would do nothing."""
    for agent in agents:
        if getattr(type(agent), "run", None) is Agent.run and "run" not in vars(agent):
            raise ScenarioError(
                f"agent {agent.name!r} cannot play on its own: {type(agent).__name__} defines no `run`. "
                "Define `async def run(self)` in its class, or let a scenario call its verbs"
            )


class Pieces:
    """The text of a message, piece by piece, as an async iterator. `message` is the finished message, at its end."""

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
    """The JSON schema of a pydantic model. `RequestError`: it is none, or has none."""
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise RequestError(f"the model of an answer is {type_name(model)}; give a pydantic model class", "sampling")
    try:
        return of_model(model)
    except PydanticUserError as error:
        raise RequestError(
            f"{model.__name__} has no JSON schema ({error.code}); use field types that JSON can express", "sampling"
        ) from error
