"""A question to a person as a form: one field for words or a choice, or one field per value of a JSON object.

Independent of how a field is shown or typed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentcho.games.play.people import PersonPrompt, schema_fault

BOUNDS = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
LENGTHS = {"minLength": "at least {} letters", "maxLength": "at most {} letters", "pattern": "like {}"}
ITEMS = {"minItems": "at least {} lines", "maxItems": "at most {} lines"}
DEEPEST = 4
"""The nesting depth up to which values of nested objects have their own fields; deeper ones are typed as JSON."""
LEFT_OUT = object()


class Option(NamedTuple):
    """One of the values that a field can have, and its label."""

    label: str
    words: str


@dataclass(frozen=True)
class Field:
    """One value to type. `path`: its place in the JSON (empty: the whole answer); `options`: the only possible values,
    if they are listed; `schema`: the schema of its value, None for plain words; `needed`: it cannot be left empty."""

    path: tuple[str, ...] = ()
    help: str = ""
    options: tuple[Option, ...] = ()
    schema: Mapping[str, Any] | None = None
    kind: str = "words"
    needed: bool = True
    empty: Any = LEFT_OUT

    @property
    def name(self) -> str:
        """Its name."""
        return ".".join(self.path)

    def value(self, typed: str) -> Any:
        """Return the value of typed text, or `LEFT_OUT` if there is none. Raises ValueError for an invalid one."""
        if not typed and not self.needed:
            return self.empty
        match self.kind:
            case "text":
                return typed
            case "lines":
                return typed.splitlines()
            case "number":
                return _number(typed)
            case _:
                return _json(typed)

    def fault(self, typed: str) -> str | None:
        """Return the fault of typed text, as far as this field alone shows it, or None."""
        if self.schema is None:
            return None
        try:
            value = self.value(typed)
        except ValueError as error:
            return str(error)
        return None if value is LEFT_OUT else schema_fault(self.schema, json.dumps(value, ensure_ascii=False))


@dataclass
class Form:
    """The fields of a question, and the text typed in each so far; `place` is the index of the current field."""

    asked: PersonPrompt
    fields: tuple[Field, ...]
    typed: list[str] = field(default_factory=list)
    place: int = 0

    def __post_init__(self) -> None:
        self.typed = [""] * len(self.fields)

    @property
    def current(self) -> Field:
        """The field that is being filled in."""
        return self.fields[self.place]

    @property
    def is_json(self) -> bool:
        """Whether its fields are values of JSON."""
        return self.asked.schema is not None

    def back(self) -> None:
        """Go back one field."""
        self.place = max(0, self.place - 1)

    def words(self, typed: str) -> str:
        """Return the answer if this was typed in the current field and the other fields stay as they are."""
        if not self.is_json:
            return typed
        values = [*self.typed[: self.place], typed, *self.typed[self.place + 1 :]]
        if not self.fields[0].path:
            return values[0]
        return json.dumps(_whole(self.fields, values), ensure_ascii=False)

    def enter(self, typed: str) -> tuple[str | None, str | None]:
        """Take the text of the current field, and go to the next. Returns the whole answer after the last field, else
        None; and the fault, if there is one, of the field that is then current."""
        if fault := self.current.fault(typed):
            return None, fault
        self.typed[self.place] = typed
        if self.place + 1 < len(self.fields):
            self.place += 1
            return None, None
        try:
            words = self.words(typed)
        except ValueError as error:
            return None, str(error)
        if fault := self.asked.fault(words):
            self.place = self._of(fault)
            return None, fault
        return words, None

    def _of(self, fault: str) -> int:
        """Return the index of the field that a fault of the whole answer names, or else the current one."""
        named = [place for place, each in enumerate(self.fields) if each.path and f"{each.name}:" in fault]
        return named[0] if named else self.place


def form_of(asked: PersonPrompt) -> Form:
    """Return the form of a question."""
    if asked.choices:
        names = asked.labels or asked.choices
        return Form(asked, (Field(options=tuple(map(Option, names, asked.choices))),))
    if asked.schema is None:
        return Form(asked, (Field(),))
    root = _resolved(asked.schema, asked.schema)
    fields = tuple(_fields(root, asked.schema)) if "properties" in root else ()
    return Form(
        asked, fields or (Field(path=(), help=_hint(root), options=_options(root), schema=asked.schema, kind="json"),)
    )


def _fields(schema: Mapping[str, Any], root: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[Field]:
    """Yield a field for each value of an object, and for the values of required objects in it."""
    for name, each in schema["properties"].items():
        needed, own = name in schema.get("required", ()), _resolved(each, root)
        if needed and own.get("properties") and len(path) + 1 < DEEPEST:
            yield from _fields(own, root, (*path, name))
        else:
            yield _field((*path, name), each, root, needed)


def _field(path: tuple[str, ...], schema: Mapping[str, Any], root: Mapping[str, Any], needed: bool) -> Field:
    own, nullable = _without_null(_resolved(schema, root), root)
    options, shape = _options(own), own.get("type")
    kind = {"string": "text", "integer": "number", "number": "number"}.get(str(shape), "json")
    if shape == "array" and _resolved(own.get("items", {}), root).get("type") == "string":
        kind = "lines"
    empty = None if nullable else LEFT_OUT
    whole = {**schema, **{name: root[name] for name in ("$defs", "definitions") if name in root}}
    if options:
        kind = "json"
        options = options if needed and not nullable else (Option(_default(schema), ""), *options)
    told = _hint({**own, **{name: schema[name] for name in ("description", "title") if name in schema}}, kind)
    return Field(
        path=path,
        help=told,
        options=options,
        schema=whole,
        kind=kind,
        needed=needed and not nullable,
        empty=empty if needed else LEFT_OUT,
    )


def _default(schema: Mapping[str, Any]) -> str:
    """Return the label of the option that leaves a field out."""
    return f"({schema['default']} if left out)" if schema.get("default") is not None else "(nothing)"


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its `$ref` replaced by the target, if that is in the same document."""
    seen = 0
    while isinstance(schema, dict) and str(schema.get("$ref", "")).startswith("#/") and (seen := seen + 1) < DEEPEST:
        found: Any = root
        for part in schema["$ref"][2:].split("/"):
            found = found.get(part, {}) if isinstance(found, dict) else {}
        schema = {**found, **{name: value for name, value in schema.items() if name != "$ref"}}
    return schema if isinstance(schema, dict) else {}


def _without_null(schema: dict[str, Any], root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a nullable schema without its null, and whether it was nullable."""
    several = [_resolved(each, root) for each in schema.get("anyOf", ())]
    others = [each for each in several if each.get("type") != "null"]
    if len(several) == len(others) + 1 and len(others) == 1:
        return {**schema, **others[0]}, True
    return schema, False


def _options(schema: Mapping[str, Any]) -> tuple[Option, ...]:
    """Return the possible values, if the schema lists them."""
    if schema.get("type") == "boolean":
        return Option("yes", "true"), Option("no", "false")
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return tuple(Option(str(value), json.dumps(value, ensure_ascii=False)) for value in values)


def _hint(schema: Mapping[str, Any], kind: str = "json") -> str:
    """Return the help of a field: its description and its constraints."""
    shape = str(schema.get("type", ""))
    names = {"integer": "a whole number", "number": "a number", "string": "", "boolean": ""}
    names["array"] = "one a line" if kind == "lines" else "a list, such as [1, 2]"
    parts = [str(schema.get("description", "")), "" if "enum" in schema else names.get(shape, "JSON")]
    parts += [f"{words} {schema[key]:g}" for key, words in BOUNDS.items() if isinstance(schema.get(key), int | float)]
    parts += [words.format(schema[key]) for key, words in {**LENGTHS, **ITEMS}.items() if key in schema]
    return ", ".join(filter(None, parts))


def _number(typed: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(typed.strip())
        except ValueError:
            continue
    raise ValueError(f"{typed.strip()[:20] or 'nothing'} is not a number")


def _json(typed: str) -> Any:
    try:
        return json.loads(typed)
    except (ValueError, RecursionError):
        raise ValueError("this is not JSON: write text in double quotes, and lists as [1, 2]") from None


def _whole(fields: Sequence[Field], typed: Sequence[str]) -> dict[str, Any]:
    """Return the JSON object of all fields. The objects in it are required, so they are there even if empty."""
    whole: dict[str, Any] = {}
    for each, words in zip(fields, typed, strict=True):
        inner = whole
        for name in each.path[:-1]:
            inner = inner.setdefault(name, {})
        value = each.value(words)
        if value is not LEFT_OUT:
            inner[each.path[-1]] = value
    return whole
