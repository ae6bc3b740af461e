"""The functions that a request offers to the model, and which of them must be called.

Independent of how a model writes a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from agentcho.serve.api import request_fields
from agentcho.serve.api.body import Body, OnlyValue, within
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api.schema_faults import schema_fault
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import ToolDefinition, Tools

FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}\z")]
Calls = Literal["none", "auto", "required"]
CHOICE = "tool_choice"


class Function(Body):
    """A function with the schema of its arguments."""

    within = "tools."
    ignored = frozenset({"strict"})

    name: FunctionName
    description: str = ""
    parameters: dict[str, Any] | None = None


class ChatTool(Body):
    """A function in the form of /v1/chat/completions."""

    kinds = ("function",)

    type: Literal["function"]
    function: Function


class ResponsesTool(Function):
    """A function in the form of /v1/responses."""

    only: ClassVar[Mapping[str, OnlyValue]] = {
        "defer_loading": OnlyValue(False, "all functions are listed for the model"),
        "async": OnlyValue(False, "the client runs functions, and sends their results"),
        "allowed_callers": OnlyValue(["direct"], "the client runs functions, and sends their results"),
    }

    kinds = ("function",)

    type: Literal["function"]
    strict: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """The function in the form in which a client may send it."""
        own = {"type": "function", "name": self.name, "description": self.description or None}
        return own | {"parameters": self.parameters, "strict": self.strict}


class ToolChoice(NamedTuple):
    """What a request says about calls: whether there must be one, of which function, and among which of the listed
    ones."""

    calls: Calls | Literal["named"]
    named: str | None = None
    allowed: frozenset[str] | None = None

    def to_json(self) -> str | dict[str, Any]:
        """The choice in the form of /v1/responses."""
        if self.named is not None:
            return {"type": "function", "name": self.named}
        if self.allowed is None:
            return self.calls
        functions = [{"type": "function", "name": name} for name in sorted(self.allowed)]
        return {"type": "allowed_tools", "mode": self.calls, "tools": functions}


def tools(given: Sequence[Function], choice: Any, limits: RequestLimits, inside: str = "") -> Tools | None:
    """The functions of a request and what must be called. None: there is nothing to call. `inside` is the field of a
    tool that contains its name. `ApiError`: a name occurs twice, a schema cannot be compiled, or the choice names an
    unknown function."""
    within(len(given), limits.tools, "tools")
    what = chosen(choice)
    left, found = limits.schema_bytes, dict[str, ToolDefinition]()
    for number, each in enumerate(given):
        param = f"tools[{number}]{inside}"
        if each.name in found:
            raise ApiError(
                400, f"{param}.name: another function already has this name; give it a different one", f"{param}.name"
            )
        parameters = each.parameters
        if parameters is not None:
            if parameters.get("type", "object") != "object":
                told = f'{param}.parameters.type: arguments are an object; give "object"'
                raise ApiError(400, told, f"{param}.parameters.type")
            parameters = request_fields.schema(parameters, f"{param}.parameters", limits._replace(schema_bytes=left))
            left -= request_fields.size(parameters)
        found[each.name] = ToolDefinition(each.name, each.description, parameters)
    made = _of(what, found)
    odd = apart(made)
    if made is not None and odd and (made.named in odd or len(odd) == len(made.tools)):
        name = made.named or made.tools[0].name
        param = f"tools[{[*found].index(name)}]{inside}.parameters"
        told = f"no call of the function {name} can be held to it, {_fault(found[name])}"
        raise ApiError(400, f"{param}: {told}", param)
    return made


def apart(tools: Tools | None) -> frozenset[str]:
    """The names of functions whose calls cannot be constrained to their schema, if a call is required."""
    if tools is None or tools.choice not in ("required", "named"):
        return frozenset()
    asked = (tool for tool in tools.tools if tools.named in (None, tool.name))
    return frozenset(tool.name for tool in asked if _fault(tool) is not None)


def _fault(tool: ToolDefinition) -> str | None:
    return None if tool.parameters is None else schema_fault(tool.parameters, lenient=True)


def _of(chosen: ToolChoice, found: dict[str, ToolDefinition]) -> Tools | None:
    names = chosen.allowed if chosen.named is None else frozenset({chosen.named})
    if names is not None and not names <= found.keys():
        raise ApiError(400, "tool_choice: it names a function that is not in tools; add it there", CHOICE)
    if not found:
        if chosen.calls == "required":
            raise ApiError(400, "tool_choice: a call is required, but tools is empty; add a function", CHOICE)
        return None
    allowed = (each for each in found.values() if chosen.allowed is None or each.name in chosen.allowed)
    return Tools(tuple(allowed), chosen.calls, chosen.named)


def chosen(given: Any) -> ToolChoice:
    """Parse `tool_choice` in the form of either API. `ApiError`: it is not a known one."""
    match given:
        case None:
            return ToolChoice("auto")
        case "none" | "auto" | "required":
            return ToolChoice(given)
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return ToolChoice("named", name)
        case {"type": "allowed_tools", "allowed_tools": dict(inner)}:
            return _allowed(inner)
        case {"type": "allowed_tools"}:
            return _allowed(given)
    raise _unknown()


def _allowed(given: dict[str, Any]) -> ToolChoice:
    names = list[str]()
    listed = given.get("tools")
    for each in listed if isinstance(listed, list) else []:
        named = chosen(each).named
        if named is None:
            raise _unknown()
        names.append(named)
    mode = given.get("mode")
    if not names or mode not in ("auto", "required"):
        raise _unknown()
    return ToolChoice(mode, None, frozenset(names))


def _unknown() -> ApiError:
    told = (
        'give "none", "auto", "required", {"type": "function", …} with the name of a function, or '
        '{"type": "allowed_tools", …} with a mode and such functions'
    )
    return ApiError(400, f"tool_choice: {told}", CHOICE)
