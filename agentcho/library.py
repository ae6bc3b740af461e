"""Finds scenarios and agents by name: a path, the working folder, entry points, the shipped ones, in that order.

Listing reads source files and executes nothing; only `load` imports, and only the file that was asked for.
Does not know: how a scenario is played, the terminal.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

from agentcho.agent import Agent
from agentcho.errors import AlreadyThere, ScenarioBroken, ScenarioNotFound
from agentcho.scenario import Scenario

Shelf = Literal["scenarios", "agents"]
Origin = Literal["path", "here", "entry point", "shipped"]


class Found(NamedTuple):
    """A class in a source file. `summary` is its docstring's first line; `module` its import name, if it has one."""

    shelf: Shelf
    name: str
    cls: str
    summary: str
    path: Path
    origin: Origin
    module: str | None = None


class Unreadable(NamedTuple):
    """A source file that does not parse, as `agentcho ls` shows it."""

    path: Path
    error: ScenarioBroken


def shipped(shelf: Shelf) -> Path:
    """The folder that came with the package: inside it in a wheel, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "_library" / shelf
    return inside if inside.is_dir() else package.parent / shelf


def listing(shelf: Shelf) -> Iterator[Found | Unreadable]:
    """Everything that can be named, in the order of the search, each file once. Executes nothing."""
    seen = set()
    for path, origin, module in _files(shelf):
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        try:
            yield from read(shelf, path, origin, module)
        except ScenarioBroken as error:
            yield Unreadable(path, error)


def _files(shelf: Shelf) -> Iterator[tuple[Path, Origin, str | None]]:
    for path in _sources(Path(shelf)):
        yield path, "here", None
    for entry in sorted(entry_points(group=f"agentcho.{shelf}"), key=lambda e: e.name):
        if path_of := _module_file(entry.module):
            yield path_of, "entry point", entry.module
    for path in _sources(shipped(shelf)):
        yield path, "shipped", None


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))


def _module_file(module: str) -> Path | None:
    """The file of a module, without importing its parents."""
    first, *rest = module.split(".")
    spec = importlib.util.find_spec(first)
    if spec is None or not rest:
        return Path(spec.origin) if spec and spec.origin else None
    for root in spec.submodule_search_locations or ():
        base = Path(root, *rest)
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


def read(shelf: Shelf, path: Path, origin: Origin = "path", module: str | None = None) -> list[Found]:
    """The scenarios or agents that a file defines, by its source alone. `ScenarioBroken` if it does not parse."""
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise ScenarioBroken(path, error.lineno, f"does not parse: {error.msg}") from None
    except (ValueError, OSError) as error:
        raise ScenarioBroken(path, None, f"cannot be read: {error}") from None
    root = "Scenario" if shelf == "scenarios" else "Agent"
    head = ast.get_docstring(tree) or ""
    return [
        Found(shelf, _name(node), node.name, _first(ast.get_docstring(node) or head), path, origin, module)
        for node in _subclasses(tree, root)
    ]


def _subclasses(tree: ast.Module, root: str) -> list[ast.ClassDef]:
    known, found = {root}, []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and known & _bases(node):
            known.add(node.name)
            found.append(node)
    return found


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).split("[")[0].rsplit(".", 1)[-1] for base in node.bases}


def _name(node: ast.ClassDef) -> str:
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name("name")], value=ast.Constant(str(name))):
                return name
            case ast.AnnAssign(target=ast.Name("name"), value=ast.Constant(str(name))):
                return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", node.name).lower()


def _first(docstring: str) -> str:
    return docstring.strip().split("\n", 1)[0]


def find(shelf: Shelf, name: str) -> Found:
    """The first of that name, or what a path gives; `file.py:Class` where a file defines several.

    Raises `ScenarioNotFound`, or `ScenarioBroken` where the file that was meant cannot be read.
    """
    file, _, cls = name.partition(".py:")
    path = Path(f"{file}.py") if cls else Path(name)
    if path.suffix == ".py":
        return _in_file(shelf, path, cls)
    known = []
    for item in listing(shelf):
        if isinstance(item, Unreadable):
            if item.path.stem.replace("_", "-") == name:
                raise item.error
        elif item.name == name:
            return item
        else:
            known.append(item.name)
    raise ScenarioNotFound(name, known)


def _in_file(shelf: Shelf, path: Path, cls: str) -> Found:
    if not path.is_file():
        raise ScenarioNotFound(str(path), [])
    found = [item for item in read(shelf, path) if not cls or item.cls == cls]
    if not found:
        raise ScenarioBroken(path, None, f"defines no {'class ' + cls if cls else shelf.removesuffix('s')}")
    if len(found) > 1:
        raise ScenarioBroken(path, None, f"defines several: name one as {path}:{found[0].cls}")
    return found[0]


def scenario(name: str) -> type[Scenario]:
    """Find and import a scenario."""
    found = find("scenarios", name)
    cls = load(found)
    if not issubclass(cls, Scenario):
        raise ScenarioBroken(found.path, None, f"{found.cls} is no agentcho.Scenario")
    return cls


def agent(name: str) -> type[Agent]:
    """Find and import an agent's class."""
    found = find("agents", name)
    cls = load(found)
    if not issubclass(cls, Agent):
        raise ScenarioBroken(found.path, None, f"{found.cls} is no agentcho.Agent")
    return cls


def load(found: Found) -> type:
    """Import the file and return the class. `ScenarioBroken` names the line where importing failed."""
    try:
        module = importlib.import_module(found.module) if found.module else _import(found.path)
        cls = getattr(module, found.cls)
    except (Exception, SystemExit) as error:
        what = f"does not import: {type(error).__name__}: {error}"
        raise ScenarioBroken(found.path, _line(error, found.path), what) from error
    if not isinstance(cls, type):
        raise ScenarioBroken(found.path, None, f"{found.cls} is no class once imported")
    return cls


def _import(path: Path) -> ModuleType:
    """Import one file, once as long as it does not change."""
    stamp = f"{path.resolve()}\0{path.stat().st_mtime_ns}"
    name = f"agentcho_file_{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _line(error: BaseException, path: Path) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return lines[-1] if lines else None


def copy(found: Found, folder: Path) -> Path:
    """Copy the file of a scenario or agent into `folder`, made when missing. `AlreadyThere`: never overwrites."""
    target = folder / found.path.name
    if target.exists():
        raise AlreadyThere(target)
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(found.path.read_bytes())
    return target


def casts(scenario: type[Scenario]) -> list[str]:
    """The agents that a scenario's source casts by a literal name, so that a broken one fails early."""
    file = inspect.getsourcefile(scenario)
    tree = ast.parse(Path(file).read_bytes()) if file else ast.Module([], [])
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = [call.args[0] for call in calls if getattr(call.func, "attr", None) == "cast"]
    return sorted({arg.value for arg in named if isinstance(arg, ast.Constant) and isinstance(arg.value, str)})
