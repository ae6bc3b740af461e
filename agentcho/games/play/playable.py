"""A scenario as a game sees it, and its outcome and score as a record can hold them.

Both come from user code, so they are checked before they reach a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from math import isfinite
from typing import Any, Protocol

from pydantic import BaseModel

from agentcho.errors import ScenarioError, shown
from agentcho.protocol import value_checks


class Playable(Protocol):
    """A scenario as a game sees it; see `scenario.Scenario`. `play` gets the game."""

    async def play(self, game: Any) -> Any: ...
    def score(self, outcome: Any) -> dict[str, float]: ...


def scored(scenario: Playable, outcome: Any, behind: Callable[[], Mapping[str, Set[str]]]) -> dict[str, float]:
    """Return a scenario's score of its outcome, and that of its `provenance` if it has one.

    Raises `ScenarioError` for an invalid score.
    """
    found = points(scenario.score(outcome), "score", scenario)
    traced = getattr(type(scenario), "provenance", None)
    if traced is None or not getattr(scenario, "has_provenance", True):
        return found
    return found | points(traced(scenario, outcome, behind()), "provenance", scenario)


def called(scenario: Playable) -> str:
    """Return the name of a scenario, or else of its class."""
    return getattr(scenario, "name", type(scenario).__name__)


def no_outcome(returned: object) -> str:
    """Return the words of an error about the value that `play` returned."""
    what = "None" if returned is None else f"a {type(returned).__name__}"
    return (
        f"returned {what}; return an Outcome instead, as in `return self.Outcome(...)`, with the "
        "results as fields of a nested `class Outcome(agentcho.Scenario.Outcome)`"
    )


def too_few(count: int, left: int, drawn: int) -> str:
    """Return the words of an error about a scenario that draws more tasks than are `left` of its game."""
    if not left and not drawn:
        return (
            'the scenario draws a task, but has none; give it a task set, as in `tasks = "arithmetic"` in its class '
            "or --tasks, and return the number of tasks per game from its `draws` if that is not 1"
        )
    there = f"{left or 'none'} {'is' if left == 1 else 'are'} left"
    return (
        f"the scenario draws {count} more, but of the {left + drawn} of this game {there}; return the number of tasks "
        "per game from its `draws`"
    )


def as_json(values: BaseModel, what: str, scenario: Playable) -> dict[str, Any]:
    """Return the outcome or the options (`what`) of a scenario as a record can hold them.

    Raises `ScenarioError`, which names the field, for a value that JSON has no form for.
    """
    try:
        return values.model_dump(mode="json")
    except ValueError as error:
        for name, value in values:
            try:
                values.model_dump(mode="json", include={name})
            except ValueError:
                what = f"field {name!r} of the {what} of {called(scenario)} is {value_checks.type_name(value)}"
                raise ScenarioError(
                    f"{what} and cannot be written as JSON; use text, numbers, booleans and None, or lists, dicts and "
                    "pydantic models of these"
                ) from error
        raise


def points(score: Any, method: str, of: Playable) -> dict[str, float]:
    """Return a score whose values can be recorded and compared.

    Raises `ScenarioError`, which names the scenario and its `method` that returned the score, for any other.
    """
    if not isinstance(score, Mapping):
        raise ScenarioError(
            f"`{method}` of {called(of)} returned {value_checks.type_name(score)}; return a dict of numbers, such as "
            "{'points': 1.0}"
        )
    return {_key(name, method, of): _number(value, name, method, of) for name, value in score.items()}


def _key(name: object, method: str, of: Playable) -> str:
    if not isinstance(name, str):
        raise ScenarioError(
            f"`{method}` of {called(of)} returned a key that is {value_checks.type_name(name)}; return a dict of "
            "numbers with texts as keys, such as {'points': 1.0}"
        )
    return value_checks.checked_text(name, "the name of a score")


def _number(value: Any, name: str, method: str, of: Playable) -> float:
    """Return a score as a number that is neither infinite nor NaN, which have no mean or interval."""
    try:
        if isinstance(value, str | bytes | bytearray):
            raise TypeError("text is no number, even if it spells one")
        number: float = value if type(value) in (int, float) else float(value)
        if isfinite(number):
            return number
    except (TypeError, ValueError, OverflowError):
        returned = f"`{method}` of {called(of)} returned {value_checks.type_name(value)} as {shown(name)}"
        raise ScenarioError(f"{returned}; return a number, or leave the key out where there is none") from None
    raise ScenarioError(
        f"`{method}` of {called(of)} returned {value_checks.type_name(value)} as {shown(name)} that is {number}; "
        "return a finite number, or leave the key out where there is none"
    )
