"""Scenarios: a cast, rules of play, typed options, an outcome and a score.

Does not know: engines, records, the terminal. A scenario casts agents and awaits their verbs; it is the only
one that sets audiences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from agentcho.errors import ConfigError
from agentcho.message import Metadata
from agentcho.names import called
from agentcho.tasks import Problem, Task

if TYPE_CHECKING:
    from agentcho.games.game import Game


class Judged(NamedTuple):
    """What a judge may compare across ways of playing: a text, and the task that it was written for."""

    task: str
    text: str


class Scenario:
    """Subclass it: set `name`, nest `Options` and `Outcome`, write `play` and `score`.

    The first line of the docstring is what `agentcho ls` shows. `tasks` is the set that its games draw from where the
    run names none (see `agentcho.task_set`; None: it needs no tasks), `kind` what they are.
    """

    name: ClassVar[str]
    tasks: ClassVar[str | None] = None
    kind: ClassVar[type[Task]] = Problem

    class Options(BaseModel):
        """Typed options, set with `--set key=value`."""

        model_config = ConfigDict(frozen=True, extra="forbid")

    class Outcome(BaseModel):
        """What came of a game."""

        model_config = ConfigDict(frozen=True, extra="forbid")

    def __init_subclass__(cls, **more: Any) -> None:
        """One that says no name is called after its class, as `agentcho ls` lists it."""
        super().__init_subclass__(**more)
        if not hasattr(cls, "name"):
            cls.name = called(cls.__name__)

    def __init__(self, **options: Any) -> None:
        try:
            self.options = self.Options(**options)
        except ValidationError as error:
            raise ConfigError(f"{self.name}: {_what(error)}. Its options: {', '.join(self._choices())}") from error

    async def play(self, game: Game) -> Outcome:
        """Cast the agents, let them act, and say what came of it."""
        raise NotImplementedError

    def draws(self) -> int:
        """How many tasks a game draws."""
        return 1

    def paired(self, message: Metadata) -> bool:
        """Whether a comparison forces the words of this message to be the same in all columns."""
        return False

    def judged(self, outcome: Any) -> Judged | None:
        """What of a game a judge compares with the same game of another column; None: nothing."""
        return None

    def score(self, outcome: Any) -> dict[str, float]:
        """Numbers to compare games by."""
        return {}

    def _choices(self) -> list[str]:
        return [f"{name} (default {field.get_default()!r})" for name, field in self.Options.model_fields.items()]


def _what(error: ValidationError) -> str:
    parts = (f"{'.'.join(map(str, e['loc'])) or 'options'}: {e['msg']}" for e in error.errors(include_url=False))
    return "; ".join(parts)
