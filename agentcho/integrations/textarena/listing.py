"""Lists the environments of TextArena's package and their options by parsing its source, without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from agentcho.errors import ScenarioError
from agentcho.extras import require
from agentcho.integrations.textarena.names import PREFIX, environment_id, family, refused


class ListedEnvironment(NamedTuple):
    """A registered environment: its id, the file and class of its code, and the values that it fixes, as written in the
    source."""

    id: str
    file: Path
    cls: str
    fixed: dict[str, str]


class EnvironmentFamily(NamedTuple):
    """A family of environments: its name, its variants, and why it cannot be played (None: it can)."""

    name: str
    variants: tuple[str, ...]
    refused: str | None


def families() -> list[EnvironmentFamily]:
    """All families, sorted by name. `ExtraMissing`: the package is not installed."""
    found: dict[str, list[str]] = {}
    for each in _listed():
        found.setdefault(family(each.id), []).append(each.id)
    return [EnvironmentFamily(name, tuple(ids), refused(name)) for name, ids in sorted(found.items())]


def settings(name: str) -> list[tuple[str, str]]:
    """The options of an environment (named with `PREFIX`) with their defaults, as written in the source."""
    known = {each.id: each for each in _listed()}
    one = known[environment_id(name, [f"{id}-raw" for id in known])]
    return [(option, one.fixed.get(option, default)) for option, default in _parameters(one)]


def _parameters(one: ListedEnvironment) -> Iterator[tuple[str, str]]:
    """The parameters of the environment's class with defaults; none if its source needs another version of Python."""
    try:
        tree = ast.parse(one.file.read_bytes())
    except (OSError, SyntaxError):
        return
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == one.cls)
    for method in (node for cls in classes for node in cls.body if isinstance(node, ast.FunctionDef)):
        if method.name == "__init__":
            names, defaults = method.args.args[1:], method.args.defaults
            for place, argument in enumerate(names, start=len(defaults) - len(names)):
                yield argument.arg, "(needed)" if place < 0 else ast.unparse(defaults[place])


def _listed() -> Iterator[ListedEnvironment]:
    require("to play TextArena's environments", "textarena")
    spec = find_spec("textarena")
    root = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    try:
        tree = ast.parse((root / "envs" / "__init__.py").read_bytes())
    except (OSError, SyntaxError) as error:
        raise ScenarioError(f"{PREFIX}: its list of environments cannot be read ({type(error).__name__})") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "register_with_versions":
            words = {each.arg: each.value for each in node.keywords if each.arg is not None}
            id, entry = (ast.literal_eval(words.pop(each)) for each in ("id", "entry_point"))
            module, _, cls = entry.partition(":")
            file = root.joinpath(*module.split(".")[1:]).with_suffix(".py")
            yield ListedEnvironment(id, file, cls, {option: ast.unparse(value) for option, value in words.items()})
