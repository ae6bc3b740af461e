"""Scenarios: a cast, rules of play, typed options, an outcome and a score.

A scenario casts agents, awaits their verbs, and chooses the audiences of their messages. Independent of engines,
records and the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from inspect import signature
from typing import Any, ClassVar, NamedTuple, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Secret, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from agentcho.errors import ConfigError, ScenarioError, asking
from agentcho.message import Metadata, called
from agentcho.tasks import Problem, Task

MASK = "**********"
"""What pydantic shows in place of a secret."""


class Judged(NamedTuple):
    """A text that a judge compares across ways of playing.

    Attributes:
        task: The task that the text was written for.
        text: The text.
    """

    task: str
    text: str


class Scenario:
    """The rules of a game.

    Subclass it, nest `Options` and `Outcome`, and write `play` and, for numbers to compare games by, `score`. The first
    line of the docstring is what `agentcho ls` shows.

    Args:
        **options: Values of `Options`, by name.

    Attributes:
        name: The scenario's name. By default the name of its class in lower case, with hyphens between its words.
        tasks: The task set that games draw from if the run names none: see `task_set`. None if the scenario needs no
            tasks.
        kind: The class of its tasks: `Problem` (the default), `Concepts`, `Vault` or `Vignette`.
        options: The instance of `Options`.

    Raises:
        ConfigError: An option does not exist, or its validators refuse the value.
        ScenarioError: The class defines no `play`, or one that does not take the game.

    Example::

        class Greeting(agentcho.Scenario):
            "One agent greets another."

            class Outcome(agentcho.Scenario.Outcome):
                greeting: str

            async def play(self, game: agentcho.Game) -> Outcome:
                ann = game.cast(agentcho.Agent, "ann")
                game.cast(agentcho.Agent, "ben")
                message = await ann.say(to="ben", prompt="Greet Ben.")
                return self.Outcome(greeting=message.text)

        agentcho.run(Greeting())
    """

    name: ClassVar[str]
    tasks: ClassVar[str | None] = None
    kind: ClassVar[type[Task]] = Problem

    class Options(BaseModel):
        """Typed options of the scenario, a frozen pydantic model. On the command line, `--set key=value` sets one."""

        model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    class Outcome(BaseModel):
        """The outcome of a game, a frozen pydantic model. It is recorded as JSON, and `agentcho show` shows it."""

        model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init_subclass__(cls, **more: Any) -> None:
        """Name a scenario after its own class, as `agentcho ls` lists it.

        A name of its own, a computed one, and one from a class that is no scenario are kept.
        """
        super().__init_subclass__(**more)
        named = next((base for base in cls.__mro__ if "name" in vars(base)), Scenario)
        if named is not cls and issubclass(named, Scenario) and isinstance(vars(named).get("name", ""), str):
            cls.name = called(cls.__name__)

    def __init__(self, **options: Any) -> None:
        if type(self).play is Scenario.play:
            raise ScenarioError(
                f"scenario {type(self).__name__} cannot be played: it defines no `play`. Define `async def "
                "play(self, game)` in the class"
            )
        if not _takes_one(self.play):
            raise ScenarioError(
                f"scenario {type(self).__name__} cannot be played: its `play` does not take the game alone. Define "
                "`async def play(self, game)` in the class"
            )
        try:
            self.options = self.Options(**options)
        except ValidationError as error:
            known = ", ".join(self._choices())
            what = f"{self.name}: {_what(error)}{_asking(error, self.Options)}".removesuffix(".")
            there = f"Its options: {known}" if known else "It has no options"
            raise ConfigError(f"{what}{'' if what.endswith('?') else '.'} {there}") from error

    async def play(self, game: Any) -> Outcome:
        """Play one game: cast the agents, await their verbs, and return the outcome.

        An error raised here ends this game alone.

        Args:
            game: The game, an `agentcho.Game`. Annotate it where you override this method: `async def play(self, game:
                Game) -> Outcome`. The type is open here because scenarios are a layer below games.

        Returns:
            The outcome.
        """
        raise NotImplementedError

    def casts(self) -> tuple[str, ...]:
        """Return names of library agents that the options select, beside those that the source casts by a literal name.

        They are checked before anything is played.

        Returns:
            The names. None by default.
        """
        return ()

    def draws(self) -> int:
        """Return how many tasks one game draws. Override it if that is not one.

        Returns:
            The number of tasks.
        """
        return 1

    def paired(self, message: Metadata) -> bool:
        """Return whether `agentcho compare` gives this message the same words in all columns: those of the first
        column.

        Args:
            message: The message, without its text.

        Returns:
            False by default.
        """
        return False

    def judged(self, outcome: Any) -> Judged | None:
        """Return the text that `agentcho compare --judge` compares with that of the same game in another column.

        Args:
            outcome: The outcome of the game.

        Returns:
            The text and its task. None, the default, if there is nothing to judge.
        """
        return None

    def score(self, outcome: Any) -> dict[str, float]:
        """Return numbers to compare games by.

        Args:
            outcome: The outcome of the game.

        Returns:
            Finite numbers by name. Numbers that are 0 or 1 in every game are treated as shares. Leave out what has no
            value in a game.
        """
        return {}

    @property
    def has_provenance(self) -> bool:
        """Whether the scenario defines a `provenance` of its own."""
        return type(self).provenance is not Scenario.provenance

    def provenance(self, outcome: Any, behind: Mapping[str, Set[str]]) -> dict[str, float]:
        """Return more numbers: what could have influenced whom through keys and values.

        It is called when the game is over, so that no agent can act on it.

        Args:
            outcome: The outcome of the game.
            behind: For each message that was generated on an engine here, the ids of all messages that could have
                influenced it, by what was actually attended to. Audits find the same. Models behind APIs do not show
                this, so their messages are missing.

        Returns:
            Numbers by name.
        """
        return {}

    def _choices(self) -> list[str]:
        return [f"{name} ({_default(field)})" for name, field in self.Options.model_fields.items()]


def _takes_one(method: Callable[..., object]) -> bool:
    """Return whether a method can be called with one argument, as far as its signature tells."""
    try:
        signature(method).bind(None)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def json_options(scenario: Scenario) -> dict[str, Any]:
    """The options of a scenario as JSON, with secrets masked. Sets are sorted: their order differs by process."""
    return cast(dict[str, Any], _in_order(dict(scenario.options), scenario.options.model_dump(mode="json")))


def recorded_options(scenario: Scenario) -> dict[str, Any]:
    """The options of a scenario for its record: see `json_options`. Those that are or have a secret and were not given
    are left out, so that a run that is resumed takes them from their defaults again."""
    options = scenario.options
    defaults = {name for name, value in options if name not in options.model_fields_set and _has_secret(value)}
    return {name: value for name, value in json_options(scenario).items() if name not in defaults}


def given_options(options: type[BaseModel], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded options as they are given: under their aliases, and without computed fields."""
    own = {name: value for name, value in recorded.items() if name not in options.model_computed_fields}
    return {_alias(options, name): value for name, value in own.items()}


def _alias(options: type[BaseModel], name: str) -> str:
    """Return the name under which an option is given."""
    field = options.model_fields.get(name)
    alias = None if field is None else field.validation_alias
    names = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return next((each for each in names if isinstance(each, str)), name)


def _in_order(value: Any, shown: Any) -> Any:
    """The JSON form `shown` of a value, with its sets sorted."""
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, set | frozenset):
        return sorted(shown, key=lambda each: (not isinstance(each, int | float), _sortable(each)))
    if isinstance(value, Mapping) and isinstance(shown, dict) and len(value) <= len(shown):  # computed fields come last
        return shown | {name: _in_order(each, shown[name]) for each, name in zip(value.values(), shown, strict=False)}
    if isinstance(value, list | tuple) and isinstance(shown, list) and len(value) == len(shown):
        return [_in_order(each, one) for each, one in zip(value, shown, strict=True)]
    return shown


def _sortable(value: Any) -> Any:
    return value if isinstance(value, int | float) else json.dumps(value)


def is_masked(value: Any) -> bool:
    """Whether recorded JSON contains what pydantic shows in place of a secret."""
    return MASK in json.dumps(value)


def secret_options(scenario: Scenario) -> list[str]:
    """The names under which options are given that are secrets, or contain some."""
    return [_alias(scenario.Options, name) for name, value in scenario.options if _has_secret(value)]


def _has_secret(value: Any) -> bool:
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        return any(map(_has_secret, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_secret, value))
    return isinstance(value, Secret | SecretStr | SecretBytes)


def _default(field: FieldInfo) -> str:
    """Return what an option is if it is not given."""
    if field.is_required():
        return "required"
    if field.default_factory_takes_validated_data:
        return "default made from other options"
    return f"default {field.get_default(call_default_factory=True)!r}"


def _asking(error: ValidationError, options: type[BaseModel]) -> str:
    """Return a suggestion for the first option that does not exist."""
    faults = error.errors(include_url=False, include_input=False)
    unknown = (str(e["loc"][0]) for e in faults if e["type"] == "extra_forbidden" and len(e["loc"]) == 1)
    return asking(next(unknown, ""), options.model_fields)


def _what(error: ValidationError) -> str:
    """Return what is wrong with the options, without their values."""
    return "; ".join(_fault(e["type"], ".".join(map(str, e["loc"])), e["msg"]) for e in error.errors(include_url=False))


def _fault(kind: str, option: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"there is no option {option!r}"
    return f"{option or 'options'}: {message.removeprefix('Value error, ')}"
