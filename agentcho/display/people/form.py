"""What a person is asked for as a form: one field for words or a choice, or a field for each value of some JSON.

Does not know: how a field is shown or typed.
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
"""So deep are objects within objects fields of their own; what is deeper is typed as JSON."""
LEFT_OUT = object()


class Option(NamedTuple):
    """One of the values that a field can have, and what it is called."""

    label: str
    words: str


@dataclass(frozen=True)
class Field:
    """One thing to type. `path`: where its value stands in the JSON (empty: it is all there is); `options`: the only
    ones that there are; `schema`: that of its value, None: plain words. `needed`: it cannot be left empty."""

    path: tuple[str, ...] = ()
    help: str = ""
    options: tuple[Option, ...] = ()
    schema: Mapping[str, Any] | None = None
    kind: str = "words"
    needed: bool = True
    empty: Any = LEFT_OUT

    @property
    def name(self) -> str:
        """What it is called."""
        return ".".join(self.path)

    def value(self, typed: str) -> Any:
        """The value of what was typed; `LEFT_OUT`: there is none. ValueError says what is wrong with it."""
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
        """What is wrong with what was typed, as far as this field alone tells it; None: nothing."""
        if self.schema is None:
            return None
        try:
            value = self.value(typed)
        except ValueError as error:
            return str(error)
        return None if value is LEFT_OUT else schema_fault(self.schema, json.dumps(value, ensure_ascii=False))


@dataclass
class Form:
    """The fields of a question, and what was typed in each so far; `place` is the one that is typed now."""

    asked: PersonPrompt
    fields: tuple[Field, ...]
    typed: list[str] = field(default_factory=list)
    place: int = 0

    def __post_init__(self) -> None:
        self.typed = [""] * len(self.fields)

    @property
    def current(self) -> Field:
        """The field that is typed now."""
        return self.fields[self.place]

    @property
    def is_json(self) -> bool:
        """Whether its fields are values of JSON."""
        return self.asked.schema is not None

    def back(self) -> None:
        """One field back."""
        self.place = max(0, self.place - 1)

    def words(self, typed: str) -> str:
        """What would be said if this was typed in the current field, and nothing comes after it."""
        if not self.is_json:
            return typed
        values = [*self.typed[: self.place], typed, *self.typed[self.place + 1 :]]
        if not self.fields[0].path:
            return values[0]
        return json.dumps(_whole(self.fields, values), ensure_ascii=False)

    def enter(self, typed: str) -> tuple[str | None, str | None]:
        """Take what was typed in the current field, and go on to the next: the words of the whole after the last one,
        else None; and what is wrong with it, where the form then stands."""
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
        """The field that a fault of the whole is of, as far as it says so."""
        named = [place for place, each in enumerate(self.fields) if each.path and f"{each.name}:" in fault]
        return named[0] if named else self.place


def form_of(asked: PersonPrompt) -> Form:
    """The form of a question."""
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
    """A field for each value of an object, and of the objects in it that must be there."""
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
    told = _hint({**own, **{name: schema[name] for name in ("description", "title") if name in schema}})
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
    """What it is called to leave a field out."""
    return f"({schema['default']} if left out)" if schema.get("default") is not None else "(nothing)"


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with what it refers to in its place, as far as that stands in the same document."""
    seen = 0
    while isinstance(schema, dict) and str(schema.get("$ref", "")).startswith("#/") and (seen := seen + 1) < DEEPEST:
        found: Any = root
        for part in schema["$ref"][2:].split("/"):
            found = found.get(part, {}) if isinstance(found, dict) else {}
        schema = {**found, **{name: value for name, value in schema.items() if name != "$ref"}}
    return schema if isinstance(schema, dict) else {}


def _without_null(schema: dict[str, Any], root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """A schema of something or nothing as that of something, and whether it was one."""
    several = [_resolved(each, root) for each in schema.get("anyOf", ())]
    others = [each for each in several if each.get("type") != "null"]
    if len(several) == len(others) + 1 and len(others) == 1:
        return {**schema, **others[0]}, True
    return schema, False


def _options(schema: Mapping[str, Any]) -> tuple[Option, ...]:
    """The values that there are, where they are listed."""
    if schema.get("type") == "boolean":
        return Option("yes", "true"), Option("no", "false")
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return tuple(Option(str(value), json.dumps(value, ensure_ascii=False)) for value in values)


def _hint(schema: Mapping[str, Any]) -> str:
    """What a field is for, and what it takes."""
    shape = str(schema.get("type", ""))
    names = {"integer": "a whole number", "number": "a number", "array": "one a line", "string": "", "boolean": ""}
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
    """The JSON of all fields."""
    whole: dict[str, Any] = {}
    for each, words in zip(fields, typed, strict=True):
        value = each.value(words)
        if value is not LEFT_OUT:
            inner = whole
            for name in each.path[:-1]:
                inner = inner.setdefault(name, {})
            inner[each.path[-1]] = value
    return whole
