"""Parses request bodies: strict JSON, validated by a pydantic model, with a single error in OpenAI's shape.

Independent of the parameters and their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, FailFast, Strict, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError, from_json

from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api_errors import TOO_LONG, ApiError

PARTS = (b"{", b"[", b'":')
"""The beginnings of objects and lists, and the ends of names in objects."""
NAMED = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
TOLD = {
    "missing": "it is missing; give it",
    "model_type": "Input should be an object",
    "dict_type": "Input should be an object",
    "tuple_type": "Input should be a list",
    "too_short": "it is empty; give at least one",
}
"""Replaces pydantic messages that use the names of Python types."""

Item = TypeVar("Item")
Several = Annotated[tuple[Item, ...], Strict(False), FailFast()]
"""A list, validated up to its first wrong item: only one error is reported, and a million of them would take
gigabytes."""


class OnlyValue(NamedTuple):
    """The only accepted value of a parameter, which has no effect, and the reason why there is no other."""

    value: object
    why: str


class Body(BaseModel):
    """A JSON object of a request. Null counts as absent, and so does an empty list or object under a name that is not a
    field.

    - `ignored` are parameters without effect here; their names are added to the set in the validation context.
    - `only` are parameters with a single accepted value, and why.
    - `refused` are parameters that are not accepted, and why.
    - `within` is put before the names of ignored parameters.
    - `kinds` are the accepted values of its field "type"; any other is reported before everything else.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", populate_by_name=False)

    ignored: ClassVar[frozenset[str]] = frozenset()
    only: ClassVar[Mapping[str, OnlyValue]] = {}
    refused: ClassVar[Mapping[str, str]] = {}
    within: ClassVar[str] = ""
    kinds: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any, info: ValidationInfo) -> Any:
        """Keep the known parameters. An unknown name is an error, and never dropped."""
        if not isinstance(given, dict):
            return given
        if cls.kinds and (kind := given.get("type")) is not None and kind not in cls.kinds:
            raise wrong("type", f"this server does not know this type; give {' or '.join(cls.kinds)}")
        taken, known = {}, _names(cls)
        for name, value in given.items():
            if name in known and value is not None:
                whole = known[name] and isinstance(value, float) and value.is_integer()
                taken[name] = int(value) if whole else value
            elif value is None or value == [] or value == {}:
                continue
            elif name in cls.ignored:
                count(info, cls.within + name)
            else:
                cls._changes_nothing(name, value)
        return taken

    @classmethod
    def _changes_nothing(cls, name: str, value: object) -> None:
        """Raise for a parameter that would change the answer if this server supported it."""
        if name in cls.only:
            wanted, why = cls.only[name]
            if value != wanted or isinstance(value, bool) is not isinstance(wanted, bool):
                raise wrong(name, f"this server accepts only {_json(wanted)} here: {why}; leave it out")
        else:
            raise wrong(name, cls.refused.get(name, "this server does not know this parameter") + "; leave it out")


def count(info: ValidationInfo, name: str) -> None:
    """Add the name of a dropped parameter to those that are counted."""
    cast(set[str], info.context).add(name)


Read = TypeVar("Read", bound=Body)


def read(body: bytes, model: type[Read], ignored: set[str], limits: RequestLimits) -> Read:
    """Parse the body as a `model`. The names of ignored parameters are added to `ignored`. `ApiError`: it is not JSON,
    the model does not accept it, or it has so many parts that parsing it would hold up all other requests."""
    parts = sum(map(body.count, PARTS))
    if parts > limits.parts:
        raise ApiError(400, f"the body has {parts} objects, lists and names; this server takes at most {limits.parts}")
    try:
        given = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise _no_json(error) from None
    if not isinstance(given, dict):
        raise ApiError(400, "the body is not a JSON object; send one")
    for field, most in limits.listed_fields.items():
        if isinstance(listed := given.get(field), list):
            within(len(listed), most, field)
    try:
        return model.model_validate(given, context=ignored)
    except ValidationError as error:
        raise _fault(error) from None


def _no_json(error: ValueError) -> ApiError:
    if "recursion limit" in str(error):
        return ApiError(400, f"the body has too many objects and lists inside each other ({error})")
    return ApiError(400, f"the body is not JSON in UTF-8 ({error}); NaN, Infinity and lone surrogates are not either")


@cache
def _names(model: type[Body]) -> Mapping[str, bool]:
    """The parameters of a model as clients write them, and whether each is a whole number. JSON has only one kind of
    number, and some clients write 8.0."""
    return {field.alias or name: int in _kinds(field.annotation) for name, field in model.model_fields.items()}


def _kinds(annotation: Any) -> set[Any]:
    """The types that an annotation consists of, except for those inside containers."""
    if get_origin(annotation) in (Union, UnionType):
        return set[Any]().union(*map(_kinds, get_args(annotation)))
    return _kinds(get_args(annotation)[0]) if get_origin(annotation) is Annotated else {annotation}


def within(count: int, most: int, param: str, what: str = "items", code: str | None = None) -> None:
    """`ApiError`: there are more than `most`."""
    if count > most:
        raise ApiError(400, f"{param}: it has {count} {what}; this server takes at most {most}", param, code)


def within_letters(count: int, most: int, param: str) -> None:
    """`ApiError`: the messages have more than `most` characters, so that they fit into no context."""
    within(count, most, param, "letters", code=TOO_LONG)


def wrong(field: str, why: str) -> PydanticCustomError:
    """The error of an object validator about one of its fields. The reason is passed in the context because pydantic
    would treat braces in the message as a template."""
    return PydanticCustomError("parameter", "{why}", {"field": field, "why": why})


def _check_text_or_list(given: object) -> None:
    if not isinstance(given, str | list | tuple):
        raise PydanticCustomError("text_or_list", "Input should be a string or a list")


def wrapped(given: object, kind: str, key: str, **more: str) -> object:
    """Convert a text to the list of the single object that it stands for."""
    _check_text_or_list(given)
    return [{"type": kind, key: given, **more}] if isinstance(given, str) else given


def single(given: object) -> object:
    """Convert a text to a list that contains only it."""
    _check_text_or_list(given)
    return [given] if isinstance(given, str) else given


def path(steps: Iterable[str | int]) -> str:
    """The path of a field as clients write it: `messages[3].content[0].type`."""
    told = ""
    for step in steps:
        if isinstance(step, int):
            told += f"[{step}]"
        elif step != "[key]":  # pydantic's step for a name that is itself wrong
            told += ("." if told else "") + (step if NAMED.fullmatch(step) else "?")
    return told


def _fault(error: ValidationError) -> ApiError:
    """Report the first error. Never quotes what was given, nor names that do not look like those of parameters."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = first.get("ctx", {}).get("field")
    param = path([*first["loc"], *([field] if isinstance(field, str) else [])])
    told = TOLD.get(first["type"], first["msg"].removeprefix("Value error, "))
    return ApiError(400, f"{param or 'the body'}: {told}", param or None)


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace("'", '"')
