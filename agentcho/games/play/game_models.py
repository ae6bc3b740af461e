"""The models of a run, by the names that agents use, and the state that one game has of each.

A game has state only for models that an agent has spoken through. Independent of how a model is loaded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from agentcho.choreography.choreographer import Choreographer
from agentcho.config import DEFAULT_MODEL, RunConfig
from agentcho.errors import RequestError, shown
from agentcho.games.play.adapter_engine import engine_and_adapter
from agentcho.games.play.journal import Journal
from agentcho.integrations.endpoints.text_engine import TextEngine
from agentcho.message import Audience, Metadata
from agentcho.protocol.call import ChatMessage, EnginePort, FramePort
from agentcho.protocol.text_calls import TextPort
from agentcho.protocol.value_checks import type_name
from agentcho.provenance.drafts import Draft, ModelTokenization, PartialEncoding
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.returned_values import CodeText
from agentcho.provenance.views import Act, Charge, ReadSet, ToolUse

Engines = Mapping[str, EnginePort]
"""Models of a run other than its own, by name. Names may share an engine. A model behind an API is a `TextEngine`."""


class LoadedEngines(NamedTuple):
    """The engines of a run: that of its own model, and those of its other models by name."""

    engine: EnginePort
    others: Engines = MappingProxyType({})


class RunModel(NamedTuple):
    """A model of a run.

    Attributes:
        choreographer: The choreographer of its engine.
        name: The first name that it has. None for the run's own.
        adapter: Its adapter there. None for the engine's own weights.
    """

    choreographer: Choreographer
    name: str | None
    adapter: str | None = None


class RunModels(NamedTuple):
    """The models of a run: its `own`, under the choreographer of its engine, and `others` by name.

    If the run's own model is an adapter on an engine that others share, it is among `others` by its own name.
    """

    own: Choreographer
    others: Mapping[str, RunModel] = MappingProxyType({})

    @property
    def choreographers(self) -> tuple[Choreographer, ...]:
        """The choreographers of all engines, the run's own first."""
        return tuple(dict.fromkeys((self.own, *(each.choreographer for each in self.others.values()))))

    @property
    def steps(self) -> int:
        """The number of steps of all engines together."""
        return sum(each.steps for each in self.choreographers)

    @property
    def moment(self) -> int:
        """A number that grows with each step of an engine, and whenever all engines and tasks wait."""
        return self.steps + self.own.rests

    @property
    def ports(self) -> dict[str | None, TextPort]:
        """The models behind APIs, by the names of their choreographers. None is the run's own."""
        engines = ((each.name, each.frames) for each in self.choreographers)
        return {name: engine.port for name, engine in engines if isinstance(engine, TextEngine)}

    @property
    def spelling(self) -> ModelTokenization | None:
        """How the run's own model writes messages. None if there is no other model."""
        own = self.others.get(DEFAULT_MODEL)
        adapter = None if own is None else own.adapter
        return ModelTokenization(None, None, self.own.frames, None, adapter) if self.others else None

    def spelling_of(self, voice: RunModel) -> ModelTokenization:
        """Return how another model writes messages."""
        other = voice.choreographer
        same = other is self.own or (other.tokenizer is not None and other.tokenizer == self.own.tokenizer)
        tokenizer = None if same else other.tokenizer or f"that of {other.name}"
        return ModelTokenization(voice.name, tokenizer, other.frames, other.name, voice.adapter)


@asynccontextmanager
async def open_models(loaded: LoadedEngines, config: RunConfig, quiet_after: float = 60.0) -> AsyncIterator[RunModels]:
    """A context in which all engines of a run step by one clock, in a single thread.

    `quiet_after` is as in `Choreographer`. Raises `EngineBusy` if one of the engines has another owner.
    """
    open_one = partial(Choreographer, reuse=config.policy, prefill_budget=config.prefill_budget)
    base, adapter = engine_and_adapter(loaded.engine)
    own = open_one(base, quiet_after=quiet_after)
    found, voices = {id(base): own}, {(id(base), adapter): RunModel(own, None, adapter)}
    named = {} if adapter is None else {DEFAULT_MODEL: voices[id(base), adapter]}
    async with AsyncExitStack() as stack:
        for name, other in loaded.others.items():
            base, adapter = engine_and_adapter(other)
            if id(base) not in found:
                found[id(base)] = open_one(base, name=name, place=len(found), beside=own)
            named[name] = voices.setdefault((id(base), adapter), RunModel(found[id(base)], name, adapter))
        for each in [*found.values()][:0:-1]:
            await stack.enter_async_context(each)
        await stack.enter_async_context(own)
        yield RunModels(own, named)


class GameModel(NamedTuple):
    """A model in one game. It is loaded here, or behind an API, where its resolver has nothing to make."""

    choreographer: Choreographer
    resolver: Resolver

    @property
    def encodes(self) -> bool:
        """Whether it is loaded here."""
        return not isinstance(self.frames, TextEngine)

    @property
    def frames(self) -> FramePort:
        """The part of its engine that never changes."""
        return self.choreographer.frames

    def draft(self, metadata: Metadata, text: str, name: str | None, reads: ReadSet, act: Act | None = None) -> Draft:
        """Return the draft of a message for this model."""
        how = self.resolver.spelling
        engine, tokenizer = (None, None) if how is None else (how.name, how.tokenizer)
        return Draft(metadata, text, name, reads, act=act or Act(), engine=engine, tokenizer=tokenizer)


class KnownTextMessage(NamedTuple):
    """A message of known text that is about to be said.

    Attributes:
        author: The agent that says it, or the scenario.
        role: Its role.
        to: Its audience.
        text: Its text.
        reads: What it is encoded over.
        model: The model that it is written for.
        ids: Content ids, which override the text. None encodes the text.
        id: Its id, if that is not the author's next one.
        released: The message whose words these are. None if there is none.
        begun: The part of it that is already encoded.
        charge: What it can tell of secrets.
        called: For a result, the call, its tool, and whether it was released.
        first: Whether it is a system prompt that comes before everything else.
        said: See `Draft`.
        by_rules: Whether the code declares that the rules of the game tell it, whatever the code had looked at.
        written: What the code wrote of it. None means all of it, or nothing if it repeats a message or is a result.
    """

    author: str
    role: str
    to: Audience
    text: str
    reads: ReadSet
    model: GameModel
    ids: tuple[int, ...] | None = None
    released: str | None = None
    begun: PartialEncoding | None = None
    charge: Charge | None = None
    id: str | None = None
    called: tuple[str | None, ToolUse | None, bool] = (None, None, False)
    first: bool = False
    said: ChatMessage | None = None
    by_rules: bool = False
    written: CodeText | None = None

    @property
    def code_text(self) -> CodeText:
        """What the code wrote of it."""
        if self.written is not None:
            return self.written
        return CodeText() if self.released is not None else CodeText((self.text,))


class GameModels:
    """The models of one game: its `own`, and the others once agents speak through them."""

    def __init__(self, models: RunModels, journal: Journal) -> None:
        self._models, self._journal = models, journal
        self.own = GameModel(models.own, journal.resolver)
        self._here: dict[str | None, GameModel] = {None: self.own}

    def __iter__(self) -> Iterator[GameModel]:
        """Iterate over the models that an agent has spoken through, and the run's own."""
        return iter(self._here.values())

    def at_first(self, who: str, wish: object) -> GameModel:
        """Return the model that an agent's system prompt is written for: the run's own if a function chooses.

        Raises `RequestError` if the run has no such model, or `wish` is neither a name nor a function.
        """
        if isinstance(wish, str):
            return self.named(who, wish)
        if not callable(wish):
            raise RequestError(
                f"the model of {who} is {type_name(wish)}; give a model's name, or a function that takes the turn"
            )
        return self.own

    def chosen(self, who: str, wish: object, turn: int) -> GameModel:
        """Return the model of an agent's own turn of that number, from 0: see `Agent.model`."""
        name = wish(turn) if callable(wish) else wish
        if name is not None and not isinstance(name, str):
            raise RequestError(
                f"the model function of {who} returned {type_name(name)}; return a model's name, or None"
            )
        return self.own if name is None else self.named(who, name)

    def named(self, who: str, name: str) -> GameModel:
        """Return the model of that name. Raises `RequestError` if the run has none."""
        if name == DEFAULT_MODEL:
            return self.own
        model = self._models.others.get(str.__str__(name))
        if model is None:
            there = ", ".join(dict.fromkeys((DEFAULT_MODEL, *self._models.others)))
            raise RequestError(
                f"{who} names the model {shown(name)}, but the run's models are {there}; add it to them "
                "(--models FILE), or give one of them"
            )
        return self.of(model.name)

    def of(self, engine: str | None) -> GameModel:
        """Return the model whose first name this is: see `RunModel.name`."""
        if engine not in self._here:
            voice = next(each for each in self._models.others.values() if each.name == engine)
            on = voice.choreographer
            kin = next((each.resolver for each in self._here.values() if each.choreographer is on), None)
            self._here[engine] = GameModel(on, self._journal.beside(self._models.spelling_of(voice), kin))
        return self._here[engine]
