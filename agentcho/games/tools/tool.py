"""A tool that an agent may call: a typed function, the schema of its arguments, and what is declared of it.

What is not declared is not trusted: who learns of the arguments is the whole world, the call changes something there,
and its result may say anything. Does not know: how a call runs, agents, games.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from inspect import Parameter, getdoc, isclass, iscoroutinefunction, isroutine, signature, unwrap
from math import isfinite
from typing import Annotated, Any, NamedTuple, Protocol, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import PydanticJsonSchemaWarning
from pydantic_core import SchemaError

from agentcho.errors import RequestError, shown
from agentcho.message import EVERYONE, Audience, audience
from agentcho.protocol import tools, value_checks
from agentcho.protocol.json_schema import closed

NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
WORLD, NOBODY = "world", "nobody"
SECONDS = 60.0
"""A call may take so long, where its tool declares nothing else."""
MOST, LARGEST = 1 << 15, 1 << 24
"""A result may have so many bytes, where its tool declares nothing else, and at most."""
PLACED = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY)
PLAIN = frozenset(
    {
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "description",
        "enum",
        "examples",
        "format",
        "items",
        "properties",
        "required",
        "title",
        "type",
    }
)
Names = Audience | Iterable[str] | str


class Declared(NamedTuple):
    """What is declared of a tool.

    - `audience`: who learns of the arguments. `EVERYONE` is the whole world outside of the game, no name is nobody.
    - `effect`: a call changes something outside, or lets somebody see that it was made.
    - `trusted`: what a result says is no attempt to make the model do something.
    - `results`: who may read a result beside the agent that called; None: that agent alone.
    - `idempotent`: to call twice does no more than to call once, so that a call of which nobody knows whether it was
      made is made again.
    - `timeout` in seconds (None: only the limits of the game), `most` bytes of a result.
    - `isolate`: a call runs in a process of its own.
    """

    audience: Audience = EVERYONE
    effect: bool = True
    trusted: bool = False
    results: Audience | None = None
    idempotent: bool = False
    timeout: float | None = SECONDS
    isolate: bool = False
    most: int = MOST


def declared(
    audience: Names = WORLD,
    effect: bool | None = None,
    trusted: bool = False,
    results: Names | None = None,
    idempotent: bool = False,
    timeout: float | None = SECONDS,
    isolate: bool = False,
    most: int = MOST,
) -> Declared:
    """Declarations as users write them, checked: see `tool`. `RequestError`, `AudienceError`: they cannot be."""
    told = _told(audience)
    changes = told != Audience(frozenset()) if effect is None else value_checks.checked_bool(effect, "effect of a tool")
    return Declared(
        audience=told,
        effect=changes,
        trusted=value_checks.checked_bool(trusted, "trusted of a tool"),
        results=None if results is None else _told(results),
        idempotent=value_checks.checked_bool(idempotent, "idempotent of a tool"),
        timeout=None if timeout is None else _seconds(timeout),
        isolate=value_checks.checked_bool(isolate, "isolate of a tool"),
        most=value_checks.checked_int(most, "most of a tool", 1, LARGEST),
    )


def _told(names: Names) -> Audience:
    if isinstance(names, str) and names in (WORLD, NOBODY):
        return EVERYONE if names == WORLD else Audience(frozenset())
    return audience(names)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise RequestError(f"the timeout of a tool is {shown(value)}; give a number of seconds above 0, or None")
    return float(value)


class ToolRaised(Exception):
    """What another process says is wrong with a call: it is told to the model."""


class Tool:
    """A function that agents may call: `tools=[...]` of `say`, or of an agent. Called itself, it is the function.

    `schema` is the JSON schema of its arguments, `declared` what is said of it; `source` names what it is one of
    several tools of, such as an MCP server. `client` names the connection that calls go over: who has one in common can
    tell each other anything by it.
    """

    def __init__(
        self,
        name: str,
        description: str,
        schema: dict[str, Any],
        function: Callable[..., Any],
        declared: Declared = Declared(),  # noqa: B008 (immutable)
        model: type[BaseModel] | None = None,
        source: str | None = None,
        client: str | None = None,
    ) -> None:
        self.name, self.description = (
            checked_name(name),
            value_checks.checked_text(description, f"the description of {name}"),
        )
        self.schema = value_checks.checked_schema(schema, f"the schema of the tool {name}")
        self.function = function
        self.declared = declared
        self.source = source
        self.client = client
        self._model = model

    @property
    def form(self) -> tools.ToolDefinition:
        """What a model is told of it."""
        return tools.ToolDefinition(self.name, self.description, self.schema)

    def validate(self, arguments: str) -> dict[str, Any]:
        """The arguments of a call, by the names of parameters, from JSON as the model wrote it. `RequestError`, in
        words that help the model: they do not fit, and the tool is not to be run."""
        try:
            if self._model is None:
                return dict(_Object.model_validate_json(arguments))
            given = self._model.model_validate_json(arguments)
        except ValidationError as error:
            raise RequestError(f"the arguments of {self.name} do not fit: {_faults(error)}") from None
        return {field.alias or name: getattr(given, name) for name, field in type(given).model_fields.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


class Toolset(Protocol):
    """Several tools of one server."""

    def connected(self, agent: str) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """A context in which the server is there for an agent. It is entered and left in one task. Errors of it are
        `ToolFailed`."""

    @property
    def shared(self) -> bool:
        """Whether all agents of a game have one connection in common."""


class _Object(BaseModel):
    """Arguments of which the schema is checked elsewhere."""

    model_config = ConfigDict(extra="allow")


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    audience: Names = WORLD,
    effect: bool | None = None,
    trusted: bool = False,
    results: Names | None = None,
    idempotent: bool = False,
    timeout: float | None = SECONDS,
    isolate: bool = False,
    most: int = MOST,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, *, name: str | None = None, **declaring: Any) -> Any:
    """Make a typed function a tool that agents may call: its parameters are what a call says, its docstring is what the
    model is told of it, and what it returns is the result: a text, or a value that becomes JSON::

        @agentcho.tool(audience="nobody")
        def add(a: int, b: int) -> int:
            "The sum of two numbers."
            return a + b

    A coroutine function runs beside the other agents of the game, any other in a thread, and with `isolate` in a
    process of its own, which is killed where the call takes longer than its `timeout`; a thread cannot be. Whatever can
    be awaited of what is returned is awaited. An object that can be called is a tool too, under the name of its class,
    and so is a `functools.partial`, without the parameters that it gives by name.

    What is not declared is not trusted:

    - `audience` is who learns of the arguments: "world" (the default), "nobody", or names of agents.
    - `effect`: a call changes something outside. By default it does, unless nobody learns of it.
    - `trusted`: a result says nothing that somebody from outside may have written.
    - `results`: who may read a result beside the agent that called. By default nobody.
    - `idempotent`: to call twice does no more than to call once. See docs/how-to/tools.md on resuming.
    - `timeout` in seconds, 60 by default, None for none; `most` bytes of a result, 32,768 by default.

    Raises `RequestError` at the definition for parameters that have no JSON schema, for a schema that no call can fit,
    and for what cannot be a tool.
    """
    if function is None:
        return lambda found: _made(found, name, declared(**declaring))
    return _made(function, name, declared(**declaring))


def _made(function: Callable[..., Any], name: str | None, given: Declared) -> Tool:
    if isclass(function) or not callable(function):
        raise RequestError(f"a tool was made of {value_checks.type_name(function)}; give a function")
    called = checked_name(_name(function) if name is None else name)
    if given.isolate and (why := _not_importable(function)):
        raise RequestError(
            f"the tool {called} cannot run in a process of its own: {why}; define it as a function of a module"
        )
    model = _model(called, function)
    schema = _schema(called, model)
    if not _is_plain(schema):
        check_callable(called, schema)
    return Tool(
        name=called, description=_documented(function), schema=schema, function=function, declared=given, model=model
    )


def check_callable(called: str, schema: Mapping[str, Any]) -> None:
    """`RequestError`: no call can fit this schema of arguments, or none can be held to it."""
    from agentcho.runner.sampling.grammar import fault

    if (found := fault(schema, lenient=True)) is not None:
        raise RequestError(f"the tool {called} can never be called: its schema is not usable {found}; fix the schema")


def _is_plain(schema: Any) -> bool:
    """Whether a schema has only keywords with which something fits it, so that nothing needs to be compiled."""
    if not isinstance(schema, Mapping):
        return schema is not False
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items", True)]
    others = schema.get("additionalProperties", True)  # False leaves the object without others
    return schema.keys() <= PLAIN and all(map(_is_plain, inside)) and (others is False or _is_plain(others))


def is_async(function: Callable[..., Any]) -> bool:
    """Whether to call a function gives what must be awaited, as far as what it is made of tells."""
    return iscoroutinefunction(unwrap(_plain(function)))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is run where this is called: what a partial is made of, the method of an object."""
    while isinstance(function, partial):
        function = function.func
    named = isroutine(function) or hasattr(function, "__wrapped__")
    return function if named else type(function).__call__


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _documented(function: Callable[..., Any]) -> str:
    """The docstring of a function; of an object, that of its method, or else of its class."""
    while isinstance(function, partial):
        function = function.func
    method = _plain(function)
    return (getdoc(method) if method.__doc__ else None) or getdoc(function) or ""


def _not_importable(function: Callable[..., Any]) -> str:
    """Why another process cannot find a function; empty: it can."""
    qualified, code = getattr(function, "__qualname__", ""), getattr(unwrap(function), "__code__", None)
    if code is None or not qualified or "<" in qualified:
        return "it is defined inside another function, or is not a plain function"
    return "" if not code.co_filename.startswith("<") else "it was not read from a file"


def checked_name(name: object) -> str:
    """A name that a tool can have. `RequestError`: it is none."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestError(f"{shown(name)} cannot name a tool; use 1 to 64 letters, digits, '_', '.' or '-'")
    return str.__str__(name)


def _model(called: str, function: Callable[..., Any]) -> type[BaseModel]:
    """A model whose fields are the parameters of a function. `RequestError`: one has no type that JSON has."""
    try:
        hints, given = get_type_hints(_plain(function), include_extras=True), _parameters(function)
    except (NameError, TypeError, ValueError) as error:
        raise RequestError(f"the tool {called}: its signature cannot be read ({error})") from error
    fields: dict[str, Any] = {}
    for place, (name, parameter) in enumerate(given.items()):
        if parameter.kind in PLACED:
            raise RequestError(f"the tool {called}: {parameter} cannot be passed by name; use parameters that can")
        if name not in hints:
            raise RequestError(f"the tool {called}: its parameter {name} has no type; annotate it, as in `{name}: str`")
        default = ... if parameter.default is Parameter.empty else parameter.default
        fields[f"p{place}"] = (Annotated[hints[name], Field(alias=name)], default)
    try:
        return create_model(called, __config__=ConfigDict(extra="forbid"), **fields)
    except (PydanticUserError, SchemaError) as error:
        raise _unfit(called, error) from error


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function that a call gives: not those that a partial gives by name."""
    found = dict(signature(function).parameters)
    while isinstance(function, partial):
        found = {name: each for name, each in found.items() if name not in function.keywords}
        function = function.func
    return found


def _schema(called: str, model: type[BaseModel]) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PydanticJsonSchemaWarning)
            found = closed(model.model_json_schema())
    except (PydanticUserError, PydanticJsonSchemaWarning, ValueError) as error:
        raise _unfit(called, error) from error
    named = {name: _untitled(each) for name, each in found.get("properties", {}).items()}
    return _untitled(found) | {"properties": named}


def _untitled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without the title that pydantic made of a name."""
    return {key: value for key, value in schema.items() if key != "title"}


def _unfit(called: str, error: Exception) -> RequestError:
    why = str(error).partition("\n")[0]
    return RequestError(f"the tool {called}: a parameter has a type that JSON cannot express ({why}); use another type")


def _faults(error: ValidationError) -> str:
    """The first faults of arguments, with the places where they are and no values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[:4]
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'they'}: {each['msg']}" for each in found)
