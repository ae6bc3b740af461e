"""Scenarios: a cast, rules of play, typed options, an outcome and a score.

Does not know: engines, records, the terminal. A scenario casts agents and awaits their verbs; it is the only
one that sets audiences.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from agentcho.errors import ConfigError, ScenarioError, asking
from agentcho.message import Metadata, called
from agentcho.tasks import Problem, Task


class Judged(NamedTuple):
    """What a judge compares across ways of playing: the text, and the task that it was written for."""

    task: str
    text: str


class Scenario:
    """A game's rules. Subclass it: set `name`, nest `Options` and `Outcome`, write `play` and `score`.

    The first line of the docstring is what `agentcho ls` shows. `tasks` names the task set that games draw from where
    the run names none (see `task_set`; None: the scenario needs no tasks), and `kind` is the class of these tasks,
    `Problem`, `Concepts`, `Vault` or `Vignette`. `options` has the values of `Options`.

    Raises `ConfigError` for options that the model does not have, or that its validators refuse, and `ScenarioError`
    for a class without a `play` of its own.
    """

    name: ClassVar[str]
    tasks: ClassVar[str | None] = None
    kind: ClassVar[type[Task]] = Problem

    class Options(BaseModel):
        """Typed options, a pydantic model; on the command line `--set key=value` sets one."""

        model_config = ConfigDict(frozen=True, extra="forbid")

    class Outcome(BaseModel):
        """What came of a game, a pydantic model: recorded as JSON, and shown by `agentcho show`."""

        model_config = ConfigDict(frozen=True, extra="forbid")

    def __init_subclass__(cls, **more: Any) -> None:
        """One that says no name is called after its class, as `agentcho ls` lists it."""
        super().__init_subclass__(**more)
        if not hasattr(cls, "name"):
            cls.name = called(cls.__name__)

    def __init__(self, **options: Any) -> None:
        if type(self).play is Scenario.play:
            raise ScenarioError(
                f"scenario {type(self).__name__} cannot be played: it defines no `play`. Define `async def "
                "play(self, game)` in the class"
            )
        try:
            self.options = self.Options(**options)
        except ValidationError as error:
            there = f"Its options: {', '.join(self._choices())}{_asking(error, self.Options)}"
            raise ConfigError(f"{self.name}: {_what(error)}. {there}") from error

    async def play(self, game: Any) -> Outcome:
        """Play one game: cast the agents, let them act, and return the outcome. An error raised here ends this game
        alone.

        `game` is an `agentcho.Game`: say so where you override this, `async def play(self, game: Game) -> Outcome`.
        The type is left open here because scenarios stand below games.
        """
        raise NotImplementedError

    def casts(self) -> tuple[str, ...]:
        """Names of agents that it casts, beside those that its source casts by a literal name: those that an option
        says. What is wrong with one is told before anything is played."""
        return ()

    def draws(self) -> int:
        """How many tasks a game draws. Override it where that is not one."""
        return 1

    def paired(self, message: Metadata) -> bool:
        """Whether `agentcho compare` forces this message to have the same words in all columns, those of the first.
        By default none."""
        return False

    def judged(self, outcome: Any) -> Judged | None:
        """The text that `agentcho compare --judge` compares with that of the same game in another column. None: there
        is nothing to judge."""
        return None

    def score(self, outcome: Any) -> dict[str, float]:
        """Numbers to compare games by, by name. Those that are always 0 or 1 are treated as shares."""
        return {}

    @property
    def has_provenance(self) -> bool:
        """Whether it has a `provenance` of its own."""
        return type(self).provenance is not Scenario.provenance

    def provenance(self, outcome: Any, behind: Mapping[str, Set[str]]) -> dict[str, float]:
        """More numbers, of what could have reached whom through keys and values. `behind` has of each message that was
        generated here the ids of all messages that could have influenced it, from what was really attended to: audits
        find the same; those of models behind APIs, which show nothing of that, are left out. It is asked when the game
        is over, so that no agent can act on it."""
        return {}

    def _choices(self) -> list[str]:
        return [f"{name} (default {field.get_default()!r})" for name, field in self.Options.model_fields.items()]


def _asking(error: ValidationError, options: type[BaseModel]) -> str:
    """The option that is meant by the first that there is not."""
    faults = error.errors(include_url=False, include_input=False)
    unknown = (str(e["loc"][0]) for e in faults if e["type"] == "extra_forbidden" and len(e["loc"]) == 1)
    return asking(next(unknown, ""), options.model_fields)


def _what(error: ValidationError) -> str:
    parts = (f"{'.'.join(map(str, e['loc'])) or 'options'}: {e['msg']}" for e in error.errors(include_url=False))
    return "; ".join(parts)
