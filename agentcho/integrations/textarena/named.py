"""Makes the scenario of a TextArena environment from its name."""

from __future__ import annotations

from typing import Any

from pydantic import Field, create_model

from agentcho.integrations.textarena.environment import Environment
from agentcho.integrations.textarena.names import OPEN_HANDS, PREFIX, check_refused, family
from agentcho.integrations.textarena.package import PlayedEnvironment, kind_of
from agentcho.integrations.textarena.scenario import Arena


def scenario_of(name: str) -> type[Arena]:
    """Return the scenario of an environment (named with `PREFIX`). Its options are those of `Arena` and those of the
    environment. `ScenarioNotFound`, `ScenarioError`: it does not exist or cannot be played. `ExtraMissing`: TextArena
    is not installed."""
    check_refused(name)
    kind = kind_of(name)
    default = {each.name: each.default for each in kind.parameters}
    fields: dict[str, Any] = {
        each.name: (each.annotation, Field(each.default, description=f"of {kind.id} itself"))
        for each in kind.parameters
        if each.name not in Arena.Options.model_fields
    }

    class TextArena(Arena):
        __doc__ = Arena.__doc__
        name = f"{PREFIX}{kind.id}"
        note = OPEN_HANDS.get(family(kind.id))
        Options = create_model("Options", __base__=Arena.Options, **fields)

        def environment(self) -> Environment:
            own = self.options.model_dump(include=set(fields))
            return PlayedEnvironment(kind, {option: own[option] for option in fields if own[option] != default[option]})

    TextArena.__module__ = kind.cls.__module__  # its file is compared on resuming and named in errors
    return TextArena
