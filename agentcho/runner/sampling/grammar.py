"""Compiles JSON schemas into llguidance grammars, and reports which part of a schema a grammar cannot enforce.

A `format` that the compiler does not know does not affect the grammar: in JSON Schema 2020-12 it is an annotation.
Parts of a schema that have only infinite documents are removed. Independent of tokens and tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from llguidance import LLMatcher

from agentcho.errors import RequestError
from agentcho.protocol.json_schema import LISTS, MAPS, ONES

FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"})
"""The formats that a grammar enforces on strings."""
VERSIONS = {
    f"uuid{version}": f"^[0-9a-f]{{8}}-[0-9a-f]{{4}}-{version}[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}$"
    for version in range(1, 9)
}
"""Patterns of UUIDs of one version, by the formats that pydantic gives them."""
_KNOWN = [None, *FORMATS]
LOOKED_AT, LETTERS = 400, 1 << 20
"""The most parts of a schema that are searched for the one at fault, and the most characters compiled for that if each
part is as long as the whole."""
SAID = 240
"""The most characters that are passed on of a compiler message."""
PLACES = ("$defs", "definitions")
Schema = Mapping[str, Any]
_UNMET = re.compile(r"required property '(.*)' is unsatisfiable")


class SchemaFault(NamedTuple):
    """What makes a schema unusable: the JSON pointer of the part at fault, in the form of a reference ("#" for the
    whole), and the reason. `hopeless`: no JSON fits the schema; else a grammar cannot enforce that part."""

    pointer: str
    why: str
    hopeless: bool = False

    def __str__(self) -> str:
        return f"at {self.pointer}: {self.why}"


class UnusableSchema(RequestError):
    """A schema that cannot be made into a grammar."""

    def __init__(self, fault: SchemaFault) -> None:
        remedy = "mend the schema" if fault.hopeless else "leave this out of the schema, and check it in the answer"
        super().__init__(f"json_schema is not usable {fault}; {remedy}", "sampling")
        self.fault = fault


def grammar(schema: Schema, lenient: bool = False) -> str:
    """The grammar of compact JSON that fits a schema. `lenient`: what a grammar cannot enforce is left out of the
    schema. Raises `UnusableSchema` if there is none."""
    try:
        finite = _Finite(schema)
        if not finite(schema):
            raise UnusableSchema(SchemaFault("#", "it allows no finite document", hopeless=True))
        prepared = _prepared(schema, finite, lenient)
        made = _compiled(prepared, lenient)
        why = _complaint(made)
    except (ValueError, RecursionError) as error:
        raise (
            error if isinstance(error, UnusableSchema) else UnusableSchema(SchemaFault("#", _brief(str(error))))
        ) from error
    if why:
        pointer, why = _located(prepared, why, lenient)
        raise UnusableSchema(SchemaFault(pointer, _brief(why), hopeless="Unsatisfiable" in why))
    return made


def fault(schema: Schema, lenient: bool = False) -> SchemaFault | None:
    """What makes a schema unusable, or None."""
    return _fault(json.dumps(schema), lenient)


@lru_cache(256)
def _fault(schema: str, lenient: bool) -> SchemaFault | None:
    try:
        grammar(json.loads(schema), lenient)
    except UnusableSchema as error:
        return error.fault
    return None


def _compiled(schema: Schema, lenient: bool) -> str:
    overrides: Any = {"whitespace_flexible": False, "lenient": lenient}
    return str(LLMatcher.grammar_from_json_schema(dict(schema), None, overrides))


def _complaint(grammar: str) -> str:
    """The compiler's error for a grammar, or an empty string."""
    is_error, told = LLMatcher.validate_grammar_with_warnings(grammar)
    return told[0] if is_error else ""


def _brief(told: str) -> str:
    """A compiler message in one line."""
    found = " ".join(
        _bare(told).replace("Unimplemented keys:", "a grammar cannot hold an answer to the keywords").split()
    )
    return found if len(found) <= SAID else found[:SAID] + "…"


def _bare(told: str) -> str:
    """A compiler message without the reference that it followed."""
    return told.partition("while processing")[0].strip()


def _prepared(schema: Schema, finite: _Finite, lenient: bool) -> dict[str, Any]:
    """A schema in the form given to the compiler."""
    made = dict(schema)
    if (named := made.get("format")) not in _KNOWN:
        del made["format"]
        if isinstance(named, str) and named in VERSIONS:
            made.setdefault("pattern", VERSIONS[named])
    if lenient:
        if isinstance(pattern := made.get("pattern"), str) and not _compiles(pattern):
            del made["pattern"]
        if isinstance(to := made.get("$ref"), str) and not to.startswith("#"):
            del made["$ref"]

    def inner(each: Any) -> Any:
        if not isinstance(each, dict):
            return each
        return _prepared(each, finite, lenient) if finite(each) else False

    for key in MAPS:
        if isinstance(named := made.get(key), dict):
            made[key] = {name: inner(each) for name, each in named.items()}
    for key in LISTS:
        if isinstance(several := made.get(key), list):
            made[key] = [inner(each) for each in several]
    return made | {key: inner(made[key]) for key in ONES if key in made}


@lru_cache(256)
def _compiles(pattern: str) -> bool:
    why = _complaint(_compiled({"type": "string", "pattern": pattern}, lenient=False))
    return not why or "Unsatisfiable" in why


class _Finite:
    """Tells of the parts of a schema whether they have a finite document, judging by references and required parts."""

    def __init__(self, schema: Schema) -> None:
        self._named: dict[str, Any] = {"#": schema}
        for place in PLACES:
            if isinstance(found := schema.get(place), dict):
                self._named |= {f"#/{place}/{name}": each for name, each in found.items()}
        self._endless = set(self._named)
        while ending := {name for name in self._endless if self(self._named[name])}:
            self._endless -= ending

    def __call__(self, schema: Any) -> bool:
        """Whether a part has a finite document."""
        if not isinstance(schema, dict):
            return schema is not False
        if schema.get("$ref") in self._endless:
            return False
        if "const" in schema or "enum" in schema:
            return True
        for key in ("anyOf", "oneOf"):
            if isinstance(several := schema.get(key), list) and several and not any(map(self, several)):
                return False
        if isinstance(several := schema.get("allOf"), list) and not all(map(self, several)):
            return False
        return all(map(self, _needed(schema)))


def _needed(schema: Schema) -> Iterator[Any]:
    """The schemas that every document of a schema contains an instance of."""
    fields, needed = schema.get("properties"), schema.get("required")
    if schema.get("type") == "object" and isinstance(fields, dict) and isinstance(needed, list):
        yield from (fields[name] for name in needed if isinstance(name, str) and name in fields)
    least = schema.get("minItems")
    if schema.get("type") == "array" and isinstance(least, int):
        first = schema.get("prefixItems")
        first = first if isinstance(first, list) else []
        yield from first[:least]
        if least > len(first):
            yield schema.get("items")


def _located(schema: Schema, why: str, lenient: bool) -> tuple[str, str]:
    """The smallest part of a schema for which the compiler reports the same as for the whole ("#" for the whole), and
    what it reports for that part."""
    named = {place: schema[place] for place in PLACES if place in schema}

    def told(part: Schema) -> str:
        try:
            return _bare(_complaint(_compiled({**named, **part}, lenient)))
        except (ValueError, RecursionError):
            return ""

    found, part, why = "#", schema, _bare(why)
    parts = dict(islice(_parts(schema, "#"), min(LOOKED_AT, LETTERS // len(json.dumps(schema)))))
    for pointer, each in parts.items():
        said = told(each) if pointer.startswith(found) else ""
        required = _UNMET.search(why)
        inside = required is not None and pointer == f"{found}/properties/{_escaped(required[1])}"
        if said == why or (said and inside):
            found, part, why = pointer, each, said
    if (to := part.get("$ref")) in parts and told(parts[to]) == why:
        found, part = to, parts[to]
    keys = [key for key in part if key not in named and told(_without(part, key)) != why]
    return (f"{found}/{_escaped(keys[0])}" if len(keys) == 1 else found), why


def _without(schema: Schema, key: str) -> Schema:
    return {name: value for name, value in schema.items() if name != key}


def _parts(schema: Schema, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The subschemas of a schema with their pointers, outer ones first."""
    for key in (*MAPS, *LISTS, *ONES):
        value = schema.get(key)
        inside: list[tuple[str, Any]] = []
        if key in MAPS and isinstance(value, dict):
            inside = [(f"{key}/{_escaped(name)}", each) for name, each in value.items()]
        elif key in LISTS and isinstance(value, list):
            inside = [(f"{key}/{place}", each) for place, each in enumerate(value)]
        elif key in ONES:
            inside = [(key, value)]
        for place, each in inside:
            if isinstance(each, dict):
                yield f"{pointer}/{place}", each
                yield from _parts(each, f"{pointer}/{place}")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
