"""Docstrings in the reference match the code: they list exactly the parameters, fields or attributes."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, get_overloads

import pytest
from pydantic import BaseModel

import agentcho.lab.compare.comparison
import agentcho.lab.sweep.result
import agentcho.provenance
import agentcho.testing
from agentcho import errors
from agentcho.errors import AgentchoError

PAGES = sorted((Path(__file__).parents[1] / "docs" / "reference").glob("*.md"))
DIRECTIVE = re.compile(r"\.\. auto(class|method|function):: ([\w.]+)|   :(members):(.*)")
SECTION = re.compile(r"(Args|Attributes|Raises|Warns|Returns|Yields):")
ENTRY = re.compile(r"    (\*{0,2}[\w.]+): \S")
MADE_BY_LOAD = {"agentcho.Engine"}
"""Classes whose constructor is not public."""


def documented() -> dict[str, Any]:
    """Every class, method and function of the reference, by its full name."""
    found, cls = dict[str, Any](), ""
    for page in PAGES:
        for kind, name, members, listed in DIRECTIVE.findall(page.read_text()):
            if kind == "class":
                cls = name
                found[name] = resolved(name)
            elif kind:
                name = f"{cls}.{name}" if kind == "method" else name
                found[name] = resolved(name)
            elif members:
                names = listed.replace(" ", "").split(",") if listed.strip() else own_methods(found[cls])
                found |= {f"{cls}.{each}": resolved(f"{cls}.{each}") for each in names}
    return found


def resolved(name: str) -> Any:
    """The object of a full name: a method's function, or a property itself."""
    _, *path = name.split(".")
    found: Any = agentcho
    for part in path:
        found = inspect.getattr_static(found, part) if isinstance(found, type) else getattr(found, part)
    return found.__func__ if isinstance(found, classmethod | staticmethod) else found


def own_methods(cls: type) -> list[str]:
    return [name for name, each in vars(cls).items() if inspect.isfunction(each) and not name.startswith("_")]


def sections(documented: Any) -> dict[str, list[str]]:
    """The names that each section of a docstring lists, in order."""
    found, section = dict[str, list[str]](), None
    for line in inspect.cleandoc(documented.__doc__ or "").splitlines():
        if heading := SECTION.fullmatch(line):
            section = found.setdefault(heading[1], [])
        elif line and not line.startswith(" "):
            section = None
        elif section is not None and (entry := ENTRY.match(line)):
            section.append(entry[1].lstrip("*"))
    return found


def examples(documented: Any) -> list[str]:
    """The code of a docstring's examples."""
    blocks = inspect.cleandoc(documented.__doc__ or "").split("\nExample::\n")[1:]
    return [dedent(re.split(r"\n(?=\S)", block)[0]) for block in blocks]


def parameters(function: Callable[..., Any]) -> set[str]:
    """The parameters of a function in all its overloads, without `self` and `cls`."""
    forms = [getattr(form, "__func__", form) for form in get_overloads(inspect.unwrap(function)) or [function]]
    return {name for form in forms for name in inspect.signature(form).parameters} - {"self", "cls"}


def made_of(cls: type) -> set[str]:
    """The constructor's public parameters; for pydantic models, the fields without a description."""
    if issubclass(cls, BaseModel):
        return {name for name, field in cls.model_fields.items() if not field.description}
    given = inspect.signature(cls).parameters if cls.__init__ is not object.__init__ or issubclass(cls, tuple) else {}
    return {name for name in given if not name.startswith("_")}


def set_by(cls: type) -> Iterator[str]:
    """The public attributes that a class's own constructor sets."""
    if "__init__" in vars(cls):
        for node in ast.walk(ast.parse(dedent(inspect.getsource(vars(cls)["__init__"])))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not node.attr.startswith("_"):
                yield node.attr


DOCUMENTED = documented()
CLASSES = sorted(name for name, each in DOCUMENTED.items() if inspect.isclass(each))
FUNCTIONS = sorted(name for name, each in DOCUMENTED.items() if inspect.isfunction(each))
ERRORS = sorted(name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, Exception))


def test_all_that_is_exported_is_in_the_reference() -> None:
    found = {name.rpartition(".")[2] for name in DOCUMENTED}
    assert {name for name in agentcho.__all__ if callable(getattr(agentcho, name))} - {*ERRORS} <= found
    assert len(CLASSES) > 30
    assert len(FUNCTIONS) > 70


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_a_docstring_begins_with_a_sentence(name: str) -> None:
    first = inspect.cleandoc(DOCUMENTED[name].__doc__).partition("\n\n")[0]
    assert re.match(r"[A-Z`(\"].*[.:]$", first, re.DOTALL), first


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_tells_of_its_parameters_and_of_what_it_returns(name: str) -> None:
    function = DOCUMENTED[name]
    told, takes = sections(function), parameters(function)
    assert {*told.get("Args", ())} == takes
    results = re.findall(r"^(?:Returns|Yields):\n    (.*)", inspect.cleandoc(function.__doc__ or ""), re.MULTILINE)
    assert not any(": " in result for result in results), "Sphinx reads what stands before a colon as a type"
    if takes and inspect.signature(inspect.unwrap(function)).return_annotation not in (None, "None"):
        assert told.keys() & {"Returns", "Yields"}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_tells_of_what_it_is_made_of(name: str) -> None:
    told, made = sections(DOCUMENTED[name]), made_of(DOCUMENTED[name])
    if name in MADE_BY_LOAD:
        assert not told.get("Args")
    else:
        assert {*told.get("Args", told.get("Attributes", ()))} == made


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_tells_of_its_attributes(name: str) -> None:
    cls = getattr(errors, name)
    told = {*sections(cls).get("Attributes", ())}
    assert {*set_by(cls)} - {*AgentchoError.__annotations__} <= told
    assert all(each in {*set_by(cls), *vars(cls)} for each in told)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_errors_that_are_named_exist(name: str) -> None:
    told = sections(DOCUMENTED[name])
    known = {*dir(builtins), *ERRORS, "pydantic.ValidationError"}
    assert {*told.get("Raises", ()), *told.get("Warns", ())} <= known


@pytest.mark.parametrize("name", sorted(name for name in DOCUMENTED if examples(DOCUMENTED[name])))
def test_an_example_is_python(name: str) -> None:
    for code in examples(DOCUMENTED[name]):
        assert compile(code, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
