"""Agents: participants with a name, a role, a system prompt, a default audience and a view.

An agent submits only as itself, so that the speaker is always known. Subclass `Agent`, set its attributes, and call the
verbs. Independent of engines and encodings.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack, cast

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
    shown,
)
from agentcho.message import EVERYBODY, EVERYONE, Audience, Message, Metadata
from agentcho.protocol.call import Sampling, SamplingOptions, Unconstrained
from agentcho.protocol.call_site import CreatedCall, UnawaitedCall, called_at, calling, warn_caller
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
"""What a call reads: a view, a function from readable metadata to one, or None for `Agent.view`."""


def verb(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a verb of an agent or a game so that it cooperates with the event loop.

    A cancelled verb does not begin. A verb that raises lets other tasks run first. Otherwise code that retries after
    every error could keep the event loop to itself, so that no deadline passes and no other game continues.

    The call notes the line of user code that makes it, because another task may await it. A verb that another verb
    calls has the line of that one. A game warns of a call that was never awaited.
    """

    async def sited(call: CreatedCall, /, *args: P.args, **options: P.kwargs) -> T:
        call.begin()
        with called_at(call.site):
            return await yielding(*args, **options)

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

    @wraps(method)
    def called(*args: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
        site = calling()
        if site is None:
            return yielding(*args, **options)
        call = CreatedCall(site)
        work = sited(call, *args, **options)
        call.watch(UnawaitedCall(next(iter(args), None), method.__name__, site), work, args)
        return work

    for each in (sited, yielding):
        each.__name__, each.__qualname__ = method.__name__, method.__qualname__
    return _coroutine_function(called)


def _coroutine_function(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function that returns a coroutine as a coroutine function, for mocks and frameworks that ask."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


def by_name(*names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method that took the keyword-only arguments `names` by position, in this order, after its own.

    They are still taken so, with a `FutureWarning` at the line of the caller, unless `to` is certain to be refused. A
    keyword that the method does not have is refused with the nearest one.
    """

    def decorated(method: Callable[P, T]) -> Callable[P, T]:
        parameters = inspect.signature(method).parameters.values()
        own = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
        known = tuple(each.name for each in parameters if each.kind is not each.VAR_KEYWORD)[1:]
        samples = any(each.kind is each.VAR_KEYWORD for each in parameters)

        @wraps(method)
        def called(*args: Any, **options: Any) -> T:
            for name in options.keys() - {*known, *(Sampling.model_fields if samples else ())}:
                verb = f"{getattr(args[0], 'name', 'game')}.{method.__name__}"
                raise _no_argument(verb, name, known, samples)
            late = args[own:]
            if 0 < len(late) <= len(names):
                named = dict(zip(names, late, strict=False))
                if not _can_address(args[0], named.get("to")):
                    return cast(Callable[..., T], method)(*args[:own], **named, **options)
                listed = ", ".join(f"{name}=…" for name in named)
                warn_caller(
                    f"{method.__qualname__}() takes {' and '.join(f'`{name}`' for name in named)} by name: give "
                    f"{listed}. Positional values are accepted until agentcho 0.6",
                    FutureWarning,
                )
                return cast(Callable[..., T], method)(*args[:own], **named, **options)
            return cast(Callable[..., T], method)(*args, **options)

        return cast(Callable[P, T], called)

    return decorated


def _no_argument(called: str, name: str, known: Sequence[str], samples: bool) -> AgentchoError:
    """Return the error for a keyword that a method does not have. `samples`: it takes the options of `Sampling` too."""
    told = f"{called}() takes no argument {name!r}"
    if name == "audience":
        remedy = "give the audience as to=…"
    elif like := nearest(name, (*known, *(Sampling.model_fields if samples else ()))):
        remedy = like
    else:
        remedy = f"give {', '.join(known)}{', or options of Sampling' if samples else ''}"
    return RequestError(f"{told}; {remedy}", "sampling") if samples else ArgumentError(f"{told}; {remedy}")


def _can_address(speaker: Any, to: object) -> bool:
    """Return whether an audience can be one in the game of an agent, or in a game."""
    cast = getattr(getattr(speaker, "_game", speaker), "agents", ())
    return not isinstance(to, str) or to == EVERYBODY or to in cast


class ToolWish(NamedTuple):
    """The tools that an agent may call before it speaks: see `Agent.say`."""

    tools: tuple[Tool | Toolset, ...]
    choice: str = "auto"
    most: int = 8


class _NoNames(tuple[str, ...]):
    """No names, as an object of its own."""


_UNADDRESSED = _NoNames()
"""The audience of a choice or an answer for which none was given."""


class Utterance(NamedTuple):
    """The request of a verb to its game for one sampled message.

    Attributes:
        to: The audience.
        prompt: A private user message that precedes the message. None for none.
        header: The beginning of the message.
        view: What the agent reads.
        sampling: Options of `Sampling` by name.
        on_token: Called with each piece of the text.
        on_begin: Called, before the first piece, with a function by which a task notes that it looks at the text.
        labels: Names of the choices, in their order, for a person who plays the agent.
        form: The pydantic model of the JSON, for a person who plays the agent.
        release: See `Agent.say`.
        tools: Tools that the agent may call first. None for none.
        unaddressed: Whether it is a choice or an answer for which no audience was given.
    """

    to: Names
    prompt: str | None
    header: str
    view: ViewLike
    sampling: SamplingOptions
    on_token: Callable[[str], None] | None = None
    on_begin: Callable[[Callable[[], None]], None] | None = None
    labels: tuple[str, ...] = ()
    form: type[BaseModel] | None = None
    release: bool = False
    tools: ToolWish | None = None
    unaddressed: bool = False


class GamePort(Protocol):
    """What an agent needs of the game that it is cast in. Each method receives the agent that asks."""

    def name_of(self, agent: Agent) -> str | None:
        """Return the name under which the agent was cast, or None if it was not cast here."""

    def system_prompt(self, agent: Agent) -> str | None:
        """Return the message id of the agent's system prompt, or None if it has none."""

    def retokenized(self, text: str, id: str) -> str:
        """Return a text as the tokenizer of the model that generated message `id` encodes and decodes it."""
        ...

    def refused(self, agent: Agent, error: Exception) -> None:
        """Note that the playing code gets this error about what the agent has said."""

    async def speak(self, agent: Agent, asked: Utterance) -> Message:
        """Generate one message."""
        ...

    async def tell(
        self, agent: Agent, text: str, to: Names, role: str, view: ViewLike = None, *, release: bool = False
    ) -> str:
        """Put a message of known text into the game, and return its id."""
        ...

    async def release(self, agent: Agent, message: Message, to: Names, view: ViewLike) -> str:
        """Put the tokens of the agent's own message before another audience, and return the id of the new message."""
        ...


class Agent:
    """One participant of a game.

    Subclass it and set its attributes in the class, or pass them by name. `Game.cast` or `agentcho.run` casts an agent.
    It speaks through its verbs, which are coroutines and may run side by side. `stream` is an async context manager.
    A verb takes by position what it is about (a text, choices, a model, a message) and the prompt, if it has both.
    Everything else is given by name, above all `to`, the audience.

    Every verb that generates text takes `prompt`, `header`, `view` and the options of `Sampling` by name. All verbs
    raise:

    - `AgentchoError` before the agent is cast.
    - `LeakageError` if the view names a message that the agent may not read. Under `leakage="audit"` the read is
      recorded instead.
    - `ContextOverflow` if what the agent reads does not fit the model's context.
    - `AudienceError` for a name that no agent or message has.
    - `RequestError` or `ArgumentError` for an argument that they do not have.
    - `LimitReached` if the agent or the game reaches one of its `Limits`.

    Args:
        name: The agent's name, unless it is cast under another one: a lower-case letter, then lower-case letters,
            digits, "-" and "_".
        **attributes: Attributes of this one agent, by name. The class must declare them.

    Attributes:
        role: Shown in transcripts.
        system: The system prompt. Only the agent may read it. If None, the agent reads the default system prompt of its
            model's chat template, if there is one, which is open to everyone and encoded once.
        open_system: Whether the system prompt is public. The scenario then puts it into the game for everyone, once for
            all such agents with the same prompt, so that it is encoded once. Views of agents with other system prompts
            do not show it.
        audience: Who may read what the agent says if a verb does not name `to`: "everyone" or exact names. By default
            only the agent itself. `think` is always private.
        model: The model that the agent speaks through: the name of one of the run's models, or a function that returns
            one, called with the number of the agent's turn, from 0. None and "default" mean the run's own model.
        shares_thoughts: Whether the readers of a message may also read what the model thought before it. None means
            what the run says (`--thoughts`).
        tools: Tools that the agent may call before it speaks by `say`: functions decorated with `agentcho.tool`, or an
            `MCPServer`.
        priority: Calls of agents with a higher priority go first if not all waiting calls fit into a step. 0 by
            default.

    Raises:
        ArgumentError: The class declares no attribute of that name.

    Example::

        class Guide(agentcho.Agent):
            "Greets newcomers."

            system = "You are a friendly guide."
            audience = "everyone"

            async def run(self):
                await self.say(prompt="Greet the newcomer.")

        agentcho.run(Guide("ann"))
    """

    role: str = "agent"
    system: str | None = None
    open_system: bool = False
    audience: Names = _UNADDRESSED
    priority: int = 0
    tools: Sequence[Tool | Toolset] = ()
    model: str | Callable[[int], str | None] | None = None
    shares_thoughts: bool | None = None
    _name: str = ""
    _game: GamePort | None = None

    def __init_subclass__(cls, **more: Any) -> None:
        """Let a `name` in the body of a class be what `agentcho ls` lists it as, not the name of each of its agents."""
        super().__init_subclass__(**more)
        is_field = "name" in getattr(cls, "__annotations__", ())  # of a dataclass
        if isinstance(vars(cls).get("name"), str) and not is_field:
            del cls.name

    def __init__(self, name: str, **attributes: Any) -> None:
        self._name = name
        for attribute, value in attributes.items():
            self._check_declared(attribute)
            setattr(self, attribute, value)

    def _check_declared(self, attribute: str) -> None:
        """Raise `ArgumentError` if the class declares no attribute of this name, because nothing would ever read it."""
        bases = type(self).__mro__
        declared = {name for base in bases for name in (*vars(base), *getattr(base, "__annotations__", ()))}
        public = {name for name in declared if not name.startswith("_")}
        if attribute not in public:
            like = nearest(attribute, public)
            remedy = f"{like} If not, declare it in the class" if like else "declare it in the class"
            raise ArgumentError(f"{type(self).__name__} has no attribute {attribute!r}; {remedy}")

    @property
    def name(self) -> str:
        """The agent's name. It cannot be set once the agent is cast.

        Raises:
            ScenarioError: The name is set after the agent was cast.
        """
        return (self._game and self._game.name_of(self)) or self._name

    @name.setter
    def name(self, name: str) -> None:
        """Set the name. Raises `ScenarioError` if the agent is cast."""
        if self._game is not None and (joined := self._game.name_of(self)) is not None:
            raise ScenarioError(
                f"cannot rename {joined} to {name!r}: an agent's name is fixed once it is cast. Cast another "
                "agent under that name"
            )
        self._name = name

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle gets: everything but the game."""
        return self.__dict__ | {"_game": None}

    @property
    def brief(self) -> str | None:
        """The message id of the agent's system prompt, or of its model's default one, for use in views.

        None if there is no system prompt, or the agent is not cast yet.
        """
        return None if self._game is None else self._game.system_prompt(self)

    def view(self, readable: Sequence[Metadata]) -> View:
        """Return what the agent reads at a call. Override it to leave out, reorder or place messages.

        By default the agent reads its system prompt, then all other messages in order.

        Args:
            readable: The metadata of all messages that the agent may read, in the order in which they were said. It has
                no text.

        Returns:
            The messages to read, in prompt order.
        """
        own = [m for m in readable if m.id == self.brief or (m.role == "system" and m.author == self.name)]
        return View.of([*own, *(m for m in readable if m not in own)])

    async def run(self) -> None:
        """Play the agent in a game without a scenario, as `agentcho.run(agent, ...)` starts it. Override it.

        `agentcho.run` refuses agents without a `run` of their own.
        """

    @verb
    @by_name()
    async def think(
        self, prompt: str | None = None, *, header: str = "", view: ViewLike = None, **options: Unpack[SamplingOptions]
    ) -> Message:
        """Generate a message that only the agent itself may read.

        Args:
            prompt: A private user message that precedes the message. None for none.
            header: The beginning of the message. It is not part of its text.
            view: What the agent reads: a `View`, or a function from readable metadata to one. None means `Agent.view`.
            **options: Options of `Sampling` by name. The run's own are the defaults.

        Returns:
            The finished message.

        Raises:
            RequestError: An option is out of its bounds.

        Example::

            plan = await ann.think("Plan your next move.", max_tokens=64)
        """
        return await self._speak((), prompt, header, view, **options)

    @verb
    @by_name("to", "prompt")
    async def say(
        self,
        *,
        to: Names | None = None,
        prompt: str | None = None,
        header: str = "",
        view: ViewLike = None,
        tools: Sequence[Tool | Toolset] | None = None,
        tool_choice: str = "auto",
        max_calls: int = 8,
        release: bool = False,
        **options: Unpack[SamplingOptions],
    ) -> Message:
        """Generate a message for an audience. The agent itself may always read it.

        If the agent has tools, it may call some of them first. Only the agent reads the calls. It alone reads their
        results too, unless the tool declares more readers. A call that fails is not an error here: the model gets the
        error as the result of the call.

        Args:
            to: Who may read the message: "everyone", a name, several names, or an `Audience`. None means the agent's
                `audience`.
            prompt: A private user message that precedes the message. None for none.
            header: The beginning of the message. It is not part of its text.
            view: What the agent reads: a `View`, or a function from readable metadata to one. None means `Agent.view`.
            tools: Tools that the agent may call first. None means the agent's `tools`.
            tool_choice: "auto", "required" for at least one call, or the name of the tool to call first.
            max_calls: Maximum number of tool calls before the message, from 1 to 1024.
            release: Whether tool calls may run whatever their arguments were made from, and the message may pass a rule
                for words (`words=` of `RunConfig`) whatever the agent has read. Audits list it.
            **options: Options of `Sampling` by name. The run's own are the defaults.

        Returns:
            The finished message. `Message.thoughts` has what a reasoning model thought first.

        Raises:
            LeakageError: The view names what the agent may not read, a tool call would tell what those who learn of it
                may not know, or the run's rule for words refuses the message.
            ToolFailed: A tool's server cannot be reached, or is gone.
            RequestError: An option is out of its bounds, or `tool_choice` names none of the tools.

        Example::

            message = await ann.say(to="everyone", prompt="Greet the newcomer.", max_tokens=40)
            print(message.text)
        """
        told, may = checked_bool(release, "release"), self.tools if tools is None else tools
        wish = ToolWish(tuple(checked_list(may, "tools")), tool_choice, max_calls) if may else None
        if wish is None and tool_choice != "auto":
            raise RequestError(
                f"tool_choice is {shown(tool_choice)}, and {self.name} has no tools; give tools=[...], or leave it out"
            )
        asked = Utterance(
            to=self._audience(to), prompt=prompt, header=header, view=view, sampling=options, release=told, tools=wish
        )
        return await self._current_game.speak(self, asked)

    @verb
    @by_name("to", "opening", "closing")
    async def choose(
        self,
        choices: Iterable[str],
        prompt: str | None = None,
        *,
        to: Names | None = None,
        opening: str = "",
        closing: str = "",
        header: str = "",
        view: ViewLike = None,
        **options: Unpack[Unconstrained],
    ) -> str:
        """Generate exactly one of several texts, and return it. Sampling is constrained, so nothing else can be said.

        Args:
            choices: The texts, each with at least one character; at most 65,536.
            prompt: A private user message that precedes the choice. None for none.
            to: Who may read the choice. None means the agent's `audience`.
            opening: Text before the choice, part of the message.
            closing: Text after the choice, part of the message.
            header: The beginning of the message. It is not part of its text.
            view: What the agent reads: a `View`, or a function from readable metadata to one. None means `Agent.view`.
            **options: Options of `Sampling` by name, but for `choices` and `json_schema`.

        Returns:
            The choice, without `opening` and `closing`.

        Raises:
            RequestError: There are no choices, or one of them is empty or not text.
            AnswerInvalid: Forced text is none of the choices, or the tokenizer does not reproduce the characters of a
                choice.

        Warns:
            AudienceWarning: The agent has an `audience` and `to` is not given. The choice goes to that audience; before
                0.5 it was private. Pass `to=()` to keep it private.

        Example::

            vote = await ann.choose(["yes", "no"], "Do you agree?", to="everyone")
        """
        given = checked_list(choices, "the choices", most=1 << 16)
        said: dict[str, str] = {f"{opening}{checked_text(choice, 'a choice')}{closing}": choice for choice in given}
        labels = tuple(said.values())
        audience = self._choice_audience(to, "choose")
        message = await self._speak(audience, prompt, header, view, labels=labels, choices=tuple(said), **options)
        if message.text in said:
            return said[message.text]
        game, id = self._current_game, message.id
        alike = (choice for whole, choice in said.items() if game.retokenized(whole, id) == message.text)
        if (found := next(alike, None)) is None:
            raise self._invalid(
                f"{self.name} was forced to say something that is not one of its choices; force one of the "
                "choices, or force nothing"
            )
        return found

    @verb
    @by_name("to", "opening", "closing")
    async def ask(
        self,
        prompt: str,
        choices: Iterable[str],
        *,
        to: Names | None = None,
        opening: str = "",
        closing: str = "",
        header: str = "",
        view: ViewLike = None,
        **options: Unpack[Unconstrained],
    ) -> str:
        """Ask the agent a private question, and return one of several answers: `choose` with the prompt first.

        Args:
            prompt: The question, a private user message.
            choices: The possible answers, each with at least one character; at most 65,536.
            to: Who may read the answer. None means the agent's `audience`.
            opening: Text before the answer, part of the message.
            closing: Text after the answer, part of the message.
            header: The beginning of the message. It is not part of its text.
            view: What the agent reads: a `View`, or a function from readable metadata to one. None means `Agent.view`.
            **options: Options of `Sampling` by name, but for `choices` and `json_schema`.

        Returns:
            The answer, without `opening` and `closing`.

        Raises:
            RequestError: As for `choose`.
            AnswerInvalid: As for `choose`.

        Warns:
            AudienceWarning: As for `choose`.

        Example::

            suspect = await ann.ask("Whom do you suspect?", ["ben", "cat"], to=())
        """
        audience = self._choice_audience(to, "ask")
        return await self.choose(
            choices, prompt, to=audience, opening=opening, closing=closing, header=header, view=view, **options
        )

    @verb
    @by_name("to")
    async def answer(
        self,
        model: type[M],
        prompt: str | None = None,
        *,
        to: Names | None = None,
        header: str = "",
        view: ViewLike = None,
        **options: Unpack[Unconstrained],
    ) -> M:
        """Generate JSON of a pydantic model, and return it as an instance of the model.

        Sampling is constrained to the model's JSON schema. Keys that the model does not have cannot be said, unless it
        allows them (`extra="allow"`). An item that is said twice in a set counts once, as in pydantic.

        Args:
            model: The pydantic model.
            prompt: A private user message that precedes the answer. None for none.
            to: Who may read the answer. None means the agent's `audience`.
            header: The beginning of the message. It is not part of its text.
            view: What the agent reads: a `View`, or a function from readable metadata to one. None means `Agent.view`.
            **options: Options of `Sampling` by name, but for `choices` and `json_schema`.

        Returns:
            The instance.

        Raises:
            RequestError: `model` is not a pydantic model, or has no JSON schema.
            AnswerInvalid: `max_tokens` ended the JSON before it was complete, or the model's own validators refuse it.

        Warns:
            AudienceWarning: The agent has an `audience` and `to` is not given. The answer goes to that audience; before
                0.5 it was private. Pass `to=()` to keep it private.

        Example::

            class Bid(BaseModel):
                price: int

            bid = await ann.answer(Bid, "What do you offer?", to=())
        """
        schema = _schema(model)
        message = await self._speak(
            self._choice_audience(to, "answer"), prompt, header, view, form=model, json_schema=schema, **options
        )
        said = message.text if message.kind == "decode" else message.text.removeprefix(header)
        try:
            return model.model_validate_json(said)
        except ValidationError as error:
            if message.stopped == "max_tokens" and error.errors()[0]["type"] == "json_invalid":
                raise self._invalid(
                    f"max_tokens ended the answer of {self.name} before its JSON was whole; raise max_tokens"
                ) from None
            declared = set(_declared(schema))
            fields = [_field(e["loc"], declared) or "(whole)" for e in error.errors()]
            raise self._invalid(
                f"the answer of {self.name} fits the JSON schema of {model.__name__} but fails the model's "
                f"own validators at: {', '.join(fields)}. Express the rule in the schema (enum, ge, le, "
                "pattern), or ask again"
            ) from None
        except Exception as error:  # raised by a validator of the user, about words that may be private
            self._current_game.refused(self, error)
            raise

    def _invalid(self, why: str) -> AnswerInvalid:
        """Return the error of an answer that the agent has given and that is refused; the code learns from it."""
        error = AnswerInvalid(why)
        self._current_game.refused(self, error)
        return error

    @by_name("to", "prompt")
    @asynccontextmanager
    async def stream(
        self,
        *,
        to: Names | None = None,
        prompt: str | None = None,
        header: str = "",
        view: ViewLike = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncIterator[Pieces]:
        """Generate a message, and read its text piece by piece while it is sampled.

        Leaving the context waits for the end of the message. An error in the body drops the message: nobody can read
        it, and the record keeps what was sampled of it.

        Args:
            to: Who may read the message: "everyone", a name, several names, or an `Audience`. None means the agent's
                `audience`.
            prompt: A private user message that precedes the message. None for none.
            header: The beginning of the message. It is not part of its text.
            view: What the agent reads: a `View`, or a function from readable metadata to one. None means `Agent.view`.
            **options: Options of `Sampling` by name. The run's own are the defaults.

        Yields:
            An async iterator of pieces of text. After the context its `message` is the finished message.

        Raises:
            RequestError: An option is out of its bounds.

        Example::

            async with ann.stream(to="everyone") as pieces:
                async for text in pieces:
                    print(text, end="")
            print(pieces.message.text)
        """
        send, receive = anyio.create_memory_object_stream[str](inf)
        pieces, site = Pieces(receive), calling()

        async def speak() -> None:
            with send, called_at(site):
                try:
                    hear: dict[str, Any] = {"on_token": send.send_nowait, "on_begin": pieces._begin}
                    pieces._message = await self._speak(self._audience(to), prompt, header, view, **hear, **options)
                except Exception as error:
                    pieces._error = error

        with receive:
            async with anyio.create_task_group() as group:
                group.start_soon(speak)
                try:
                    yield pieces
                except Exception as error:  # raised by the body: re-raised as it is, not in an exception group
                    pieces._error = error
                    group.cancel_scope.cancel()
        if pieces._error is not None:
            raise pieces._error

    @verb
    @by_name("to", "role", "view")
    async def tell(
        self,
        text: str,
        *,
        to: Names | None = None,
        role: str = "assistant",
        view: ViewLike = None,
        release: bool = False,
    ) -> str:
        """Put a message of known text into the game as the agent's own. Nothing is sampled.

        The text is encoded when it is first read, or before if there is room in a step.

        Args:
            text: The text.
            to: Who may read the message. None means the agent's `audience`.
            role: Role of the message for models: "assistant", "user", "system" or "tool".
            view: What the message is encoded over: a `View`, or a function from readable metadata to one. None means
                `Agent.view`.
            release: Whether the rules of the game tell the message, whatever the code had looked at: see
                `Game.announce`.

        Returns:
            The id of the message.

        Raises:
            RequestError: `text` is not text, or there is no such role.
            ContextOverflow: The text does not fit the model's context.

        Example::

            id = await ann.tell("I pass.", to="everyone")
        """
        return await self._current_game.tell(self, text, self._audience(to), role, view, release=release)

    @verb
    @by_name("to", "view")
    async def release(self, message: Message, *, to: Names | None = None, view: ViewLike = None) -> str:
        """Put the tokens of one of the agent's own messages before another audience, as a new message.

        Audits list it as a release.

        Args:
            message: A finished message of this agent.
            to: Who may read the new message. None means the agent's `audience`.
            view: What the new message is encoded over: a `View`, or a function from readable metadata to one. None
                means `Agent.view`.

        Returns:
            The id of the new message.

        Raises:
            AudienceError: `message` is not a finished message of this agent.
            RequestError: `message` is not a `Message`.

        Example::

            plan = await ann.think("Plan your move.")
            await ann.release(plan, to="everyone")
        """
        return await self._current_game.release(self, message, self._audience(to), view)

    def _audience(self, to: Names | None) -> Names:
        """Return who may read a message: whom `to` names, or else the agent's audience."""
        found = self.audience if to is None else to
        return () if found is _UNADDRESSED else found

    def _choice_audience(self, to: Names | None, called: str) -> Names:
        """Return who may read a choice or an answer: as for any message, but if no audience was ever given, the audit
        is told."""
        if to is None and self.audience:
            warn_caller(
                f"{type(self).__name__}.{called}() without `to` goes to the agent's audience: pass to=() to keep it "
                f"private as it was before agentcho 0.5, or {_same_audience(self.audience)} to share it without this "
                "warning",
                AudienceWarning,
            )
        return self.audience if to is None else to

    async def _speak(
        self,
        to: Names,
        prompt: str | None,
        header: str,
        view: ViewLike,
        on_token: Callable[[str], None] | None = None,
        on_begin: Callable[[Callable[[], None]], None] | None = None,
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
            on_begin=on_begin,
            labels=labels,
            form=form,
            unaddressed=to is _UNADDRESSED,
        )
        return await self._current_game.speak(self, asked)

    @property
    def _current_game(self) -> GamePort:
        """The game that the agent was cast in. Raises `AgentchoError` if there is none."""
        if self._game is None:
            raise AgentchoError(f"{self.name} is not in a game yet: cast it with game.cast(...) or agentcho.run(...)")
        return self._game


def require_run(agents: Iterable[object], called: str = "agentcho.run") -> None:
    """Raise `ScenarioError` if one of these is no agent, or has no `run` of its own, because it would do nothing.

    `called` is the function that they were given to.
    """
    for agent in agents:
        if not isinstance(agent, Agent):
            several = isinstance(agent, Iterable) and not isinstance(agent, str)
            one_by_one = f", one by one, as in {called}(*agents)" if several else ""
            raise ScenarioError(f"{_kind(agent)} is not an agent; give agents that game.cast has returned{one_by_one}")
        if getattr(type(agent), "run", None) is Agent.run and "run" not in vars(agent):
            raise ScenarioError(
                f"agent {agent.name!r} cannot play on its own: {type(agent).__name__} defines no `run`. "
                "Define `async def run(self)` in its class, or let a scenario call its verbs"
            )


def _same_audience(names: Names) -> str:
    """Return how to give an agent's audience as an argument. No name of an agent, as each text is warned of once."""
    if names in (EVERYBODY, EVERYONE):
        return f'to="{EVERYBODY}"'
    return "the agent's `audience` (to=self.audience in its own class, to=ann.audience for an agent `ann` elsewhere)"


def _kind(value: object) -> str:
    """Return what was given in place of an agent."""
    if value is None or isinstance(value, str):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else f"an argument of type {type(value).__name__}"


def own_runs(agents: Sequence[Agent], called: str) -> list[Coroutine[Any, Any, Any]]:
    """Return the coroutines of the agents' own `run`.

    Raises `ScenarioError` as `require_run`, or if a `run` is not a coroutine function.
    """
    require_run(agents, called)
    runs = list[Coroutine[Any, Any, Any]]()
    try:
        for agent in agents:
            run: object = agent.run()
            if not isinstance(run, Coroutine):
                raise ScenarioError(f"`run` of {type(agent).__name__} is not a coroutine; write `async def run(self)`")
            runs.append(run)
    except BaseException:
        for other in runs:
            other.close()
        raise
    return runs


class Pieces:
    """The text of a message, piece by piece, as an async iterator.

    Attributes:
        message: The finished message, once the context of `Agent.stream` has ended. None before.
        error: The error that ended the message or the body. None if there was none.
    """

    def __init__(self, receive: anyio.abc.ObjectReceiveStream[str]) -> None:
        self._receive = receive
        self._looks = list[Callable[[], None]]()
        self._message: Message | None = None
        self._error: Exception | None = None

    @property
    def message(self) -> Message | None:
        """The finished message."""
        self._look()
        return self._message

    @property
    def error(self) -> Exception | None:
        """The error that ended the message or the body."""
        self._look()
        return self._error

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> str:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None
        finally:
            self._look()

    def _begin(self, look: Callable[[], None]) -> None:
        """Note that a message begins. `look` notes that the running task looks at its words."""
        self._looks.append(look)

    def _look(self) -> None:
        """Note that the running task, which may not be the one that asked for the message, looks at its words."""
        for look in self._looks:
            look()


def _declared(schema: Any) -> Iterator[str]:
    """Yield the names of all fields in a JSON schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _declared(each)


def _field(place: Sequence[str | int], declared: Container[str]) -> str:
    """Return where in an answer a validator failed, without keys that the model made up: those are its words."""
    parts = (each if isinstance(each, str) and each in declared else "[…]" for each in place)
    return ".".join(parts).replace(".[…]", "[…]")


def _schema(model: Any) -> dict[str, Any]:
    """Return the JSON schema of a pydantic model. Raises `RequestError` if `model` is none, or has none."""
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise RequestError(f"the model of an answer is {type_name(model)}; give a pydantic model class", "sampling")
    try:
        return of_model(model)
    except PydanticUserError as error:
        raise RequestError(
            f"{model.__name__} has no JSON schema ({error.code}); use field types that JSON can express", "sampling"
        ) from error
