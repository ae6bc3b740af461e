"""A tool that an agent may call: a typed function, the schema of its arguments, and its declarations.

Anything that is not declared is not trusted: the whole world learns the arguments, the call changes something there,
and its result may say anything. Independent of how a call runs.
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

from agentcho.errors import ArgumentError, RequestError, nearest, shown
from agentcho.message import EVERYONE, Audience, audience
from agentcho.protocol import tools, value_checks
from agentcho.protocol.json_schema import closed

NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
WORLD, NOBODY = "world", "nobody"
SECONDS = 60.0
"""Maximum duration of a call, unless its tool declares another one."""
MOST, LARGEST = 1 << 15, 1 << 24
"""Maximum size of a result in bytes, unless its tool declares another one, and the largest that it may declare."""
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
    """The declarations of a tool.

    Attributes:
        audience: Who learns the arguments. `EVERYONE` is the whole world outside the game. An empty audience is nobody.
        effect: Whether a call changes something outside, or lets somebody see that it was made.
        trusted: Whether a result never tries to make the model do something.
        results: Who may read a result beside the agent that called. None for nobody.
        idempotent: Whether calling twice does no more than calling once. A call whose completion is unknown is then
            repeated.
        timeout: Maximum duration of a call, in seconds. None leaves only the limits of the game.
        isolate: Whether a call runs in a process of its own.
        most: Maximum size of a result, in bytes.
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
    idempotent: bool | None = None,
    timeout: float | None = SECONDS,
    isolate: bool = False,
    most: int = MOST,
    **unknown: Any,
) -> Declared:
    """Check declarations as users write them: see `tool`.

    Raises `RequestError` or `AudienceError` for invalid ones, and `ArgumentError` for `unknown` ones.
    """
    for name in unknown:
        like = nearest(name, Declared._fields)
        remedy = like or f"the declarations are {', '.join(Declared._fields)}"
        raise ArgumentError(f"a tool has no declaration {name!r}; {remedy}")
    told = _told(audience)
    changes = told != Audience(frozenset()) if effect is None else value_checks.checked_bool(effect, "effect of a tool")
    again = effect is False if idempotent is None else value_checks.checked_bool(idempotent, "idempotent of a tool")
    return Declared(
        audience=told,
        effect=changes,
        trusted=value_checks.checked_bool(trusted, "trusted of a tool"),
        results=None if results is None else _told(results),
        idempotent=again,
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
    """Raised when another process, or a thread, reports an error of a call. The model reads its text."""


class Tool:
    """A function that agents may call, in `tools=[...]` of an agent or of `say`. Calling the tool calls the function.

    `agentcho.tool` makes one from a typed function.

    Args:
        name: Name of the tool: 1 to 64 letters, digits, "_", "." or "-".
        description: What the model is told about it.
        schema: JSON schema of its arguments.
        function: The function.
        declared: Its declarations.
        model: A pydantic model that validates the arguments. None checks only that they are a JSON object.
        source: What the tool belongs to, such as an MCP server. None for nothing.
        client: Name of the connection that calls go over. Agents that share a connection can tell each other anything
            through it. None for none.

    Raises:
        RequestError: The name, the description or the schema cannot be one.
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
        """The definition that a model is told, with name, description and schema."""
        return tools.ToolDefinition(self.name, self.description, self.schema)

    def validate(self, arguments: str) -> dict[str, Any]:
        """Return the arguments of a call from the JSON that the model wrote.

        Args:
            arguments: The JSON.

        Returns:
            The arguments, by the names of the parameters.

        Raises:
            RequestError: The arguments do not fit, and the tool must not run. The message helps the model to correct
                them.
        """
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
        """A context in which the server is connected for an agent, entered and left in one task. Errors are
        `ToolFailed`."""

    @property
    def shared(self) -> bool:
        """Whether all agents of a game share one connection."""


class _Object(BaseModel):
    """Arguments whose schema is checked elsewhere."""

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
    idempotent: bool | None = None,
    timeout: float | None = SECONDS,
    isolate: bool = False,
    most: int = MOST,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, *, name: str | None = None, **declaring: Any) -> Any:
    """Turn a typed function into a tool that agents may call.

    Its parameters are the arguments of a call, its docstring is the description that the model sees, and what it
    returns is the result: text, or a value that becomes JSON. A coroutine function runs beside the other agents of the
    game, any other function in a thread. If the result can be awaited, it is awaited. A callable object is a tool under
    the name of its class, and so is a `functools.partial`, without the parameters that it gives by name.

    Declare what is known of the tool. Anything that is not declared is not trusted.

    Args:
        function: The function, if the decorator is used without arguments.
        name: Name of the tool: 1 to 64 letters, digits, "_", "." or "-". None means the function's own.
        audience: Who learns the arguments: "world", "nobody", or names of agents.
        effect: Whether a call changes something outside, or lets somebody see that it was made. None means that it
            does, unless nobody learns the arguments.
        trusted: Whether nobody outside can have written anything in a result.
        results: Who may read a result beside the agent that called. None for nobody.
        idempotent: Whether calling twice does no more than calling once. None means that it is so if `effect=False` is
            given. It matters for resuming: see docs/how-to/tools.md.
        timeout: Maximum duration of a call, in seconds; 60 by default. None leaves only the limits of the game.
        isolate: Whether each call runs in a process of its own, which is killed at its timeout. A thread cannot be
            killed.
        most: Maximum size of a result, in bytes; 32,768 by default.

    Returns:
        The tool, or a decorator that makes it.

    Raises:
        RequestError: `function` cannot be a tool, a parameter has no JSON schema, no call can fit the schema, or a
            declaration is wrong.
        AudienceError: A name in `audience` or `results` cannot name an agent.
        ArgumentError: There is no such declaration.

    Example::

        @agentcho.tool(audience="nobody")
        def add(a: int, b: int) -> int:
            "The sum of two numbers."
            return a + b
    """
    given = declared(**declaring)
    if function is None:
        return lambda found: _made(found, name, given)
    return _made(function, name, given)


def _made(function: Callable[..., Any], name: str | None, given: Declared) -> Tool:
    if isclass(function) or not callable(function):
        raise RequestError(f"a tool cannot be made of {value_checks.type_name(function)}; give a function")
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
    """Raise `RequestError` if no call can fit this schema of arguments, or none can be constrained to it."""
    from agentcho.runner.sampling.grammar import fault

    if (found := fault(schema, lenient=True)) is not None:
        raise RequestError(f"the tool {called} can never be called: its schema is not usable {found}; fix the schema")


def _is_plain(schema: Any) -> bool:
    """Return whether a schema has only keywords that some value always fits, so that it need not be compiled."""
    if not isinstance(schema, Mapping):
        return schema is not False
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items", True)]
    others = schema.get("additionalProperties", True)  # False is fine: it only excludes further properties
    return schema.keys() <= PLAIN and all(map(_is_plain, inside)) and (others is False or _is_plain(others))


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling a function gives something to await, as far as the function tells."""
    return iscoroutinefunction(unwrap(_plain(function)))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a call runs: that of a partial, or the `__call__` of an object."""
    while isinstance(function, partial):
        function = function.func
    named = isroutine(function) or hasattr(function, "__wrapped__")
    return function if named else type(function).__call__


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _documented(function: Callable[..., Any]) -> str:
    """Return the docstring of a function, or for an object that of its `__call__`, or else of its class."""
    while isinstance(function, partial):
        function = function.func
    method = _plain(function)
    return (getdoc(method) if method.__doc__ else None) or getdoc(function) or ""


def _not_importable(function: Callable[..., Any]) -> str:
    """Return why another process cannot find a function, or an empty text if it can."""
    qualified, code = getattr(function, "__qualname__", ""), getattr(unwrap(function), "__code__", None)
    if code is None or not qualified or "<" in qualified:
        return "it is defined inside another function, or is not a plain function"
    return "" if not code.co_filename.startswith("<") else "it was not read from a file"


def checked_name(name: object) -> str:
    """Return the name if a tool can have it. Raises `RequestError` otherwise."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestError(f"{shown(name)} cannot name a tool; use 1 to 64 letters, digits, '_', '.' or '-'")
    return str.__str__(name)


def _model(called: str, function: Callable[..., Any]) -> type[BaseModel]:
    """Return a model whose fields are the parameters of a function.

    Raises `RequestError` if the type of one cannot be expressed in JSON.
    """
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
    """Return the parameters of a function that a call can give, without those that a partial gives by name."""
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
    """Return a schema without the title that pydantic derived from a name."""
    return {key: value for key, value in schema.items() if key != "title"}


def _unfit(called: str, error: Exception) -> RequestError:
    why = str(error).partition("\n")[0]
    return RequestError(f"the tool {called}: a parameter has a type that JSON cannot express ({why}); use another type")


def _faults(error: ValidationError) -> str:
    """Return the first faults of arguments, with their locations and without values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[:4]
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'they'}: {each['msg']}" for each in found)
