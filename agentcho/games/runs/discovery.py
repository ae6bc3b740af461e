"""Finds scenarios and agents by name: as a path, in the working folder, in entry points, then among the shipped ones.

It reads source files and executes nothing, so that listing is safe and quick. `library` imports the classes.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Literal, NamedTuple

from agentcho.errors import ScenarioError, ScenarioNotFound, asking
from agentcho.message import called

Section = Literal["scenarios", "agents"]
Origin = Literal["path", "here", "entry point", "shipped"]
ROOTS: dict[Section, str] = {"scenarios": "Scenario", "agents": "Agent"}
"""The name of the class that all scenarios, or all agents, are subclasses of."""
MINE = Path("mine")
"""Where copies and new files go in a clone, whose own folders hold the shipped ones."""


class Found(NamedTuple):
    """A class in a source file. `summary` is its docstring's first line, `module` its import name, if it has one."""

    section: Section
    name: str
    cls: str
    summary: str
    path: Path
    origin: Origin
    module: str | None = None


class Unreadable(NamedTuple):
    """A source file that does not parse, for `agentcho ls`."""

    path: Path
    error: ScenarioError


def shipped(section: Section) -> Path:
    """Return the folder that is shipped with the package: inside it in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[2]
    inside = package / "_library" / section
    return inside if inside.is_dir() else package.parent / section


def listing(section: Section) -> Iterator[Found | Unreadable]:
    """Return all scenarios or agents, in search order, each file once. Executes nothing."""
    seen = set()
    for path, origin, module in _files(section):
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        try:
            yield from read(section, path, origin, module)
        except ScenarioError as error:
            yield Unreadable(path, error)


def _files(section: Section) -> Iterator[tuple[Path, Origin, str | None]]:
    for path in _sources(Path(section)):
        yield path, "here", None
    for entry in _entries(section, tuple((place, _changed(place)) for place in sys.path)):
        if path_of := _module_file(entry.module):
            yield path_of, "entry point", entry.module
    for path in _sources(shipped(section)):
        yield path, "shipped", None


@lru_cache(maxsize=8)
def _entries(section: Section, places: tuple[tuple[str, int], ...]) -> list[EntryPoint]:
    """Return the entry points of packages installed in `places`; each place comes with the time of its last change.

    This is slow, so it is cached until something is installed or removed.
    """
    return sorted(entry_points(group=f"agentcho.{section}"), key=lambda entry: entry.name)


def _changed(place: str) -> int:
    """Return the time of the last addition or removal in a place. 0 if it does not exist."""
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:
        return 0


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))


def _module_file(module: str) -> Path | None:
    """Return the file of a module, without importing its parents."""
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


def broken(path: Path, line: int | None, what: str) -> ScenarioError:
    """Return the error for a scenario's file that does not parse, does not import, or defines no scenario."""
    return ScenarioError(f"{path}:{line}: {what}" if line else f"{path}: {what}")


@lru_cache(maxsize=256)
def parsed(source: bytes) -> ast.Module:
    """Return the syntax tree of a source file. The tree is cached by the bytes, and must not be changed.

    Raises `SyntaxError` or `ValueError` if it cannot be parsed.
    """
    return ast.parse(source)


def read(section: Section, path: Path, origin: Origin = "path", module: str | None = None) -> list[Found]:
    """Return the scenarios or agents that a file defines, by its source.

    These are its public classes with a base that is named `Scenario` or `Agent`, that the file imports as another name,
    or that is such a class of the file. Raises `ScenarioError` if it does not parse.
    """
    tree = _tree(path)
    return [
        _found(section, tree, node, path, origin=origin, module=module) for node in _subclasses(tree, ROOTS[section])
    ]


def _tree(path: Path) -> ast.Module:
    try:
        return parsed(path.read_bytes())
    except SyntaxError as error:
        raise broken(path, error.lineno, f"is not valid Python: {error.msg}") from None
    except (ValueError, OSError) as error:
        raise broken(path, None, f"cannot be read: {error}") from None


def _found(
    section: Section,
    tree: ast.Module,
    node: ast.ClassDef,
    path: Path,
    origin: Origin = "path",
    module: str | None = None,
) -> Found:
    return Found(
        section=section,
        name=_name(node),
        cls=node.name,
        summary=_first(ast.get_docstring(node) or ast.get_docstring(tree) or ""),
        path=path,
        origin=origin,
        module=module,
    )


def _subclasses(tree: ast.Module, root: str) -> list[ast.ClassDef]:
    imports = (alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)
    known, found = {root, *(alias.asname or root for alias in imports if alias.name == root)}, []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and known & _bases(node):
            known.add(node.name)
            found.append(node)
    return found


def _unclear(tree: ast.Module) -> list[ast.ClassDef]:
    """Return the classes whose bases come from elsewhere, so that only an import tells whether they are scenarios or
    agents."""
    clear = {node.name for root in ROOTS.values() for node in _subclasses(tree, root)}
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name not in clear)
    return [node for node in classes if node.bases and not node.name.startswith("_")]


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).split("[")[0].rsplit(".", 1)[-1] for base in node.bases}


def _name(node: ast.ClassDef) -> str:
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name("name")], value=ast.Constant(str(name))):
                return name
            case ast.AnnAssign(target=ast.Name("name"), value=ast.Constant(str(name))):
                return name
    return called(node.name)


def _first(docstring: str) -> str:
    return docstring.strip().split("\n", 1)[0]


def find(section: Section, name: str) -> Found:
    """Return the first class of that name, or the class in a path; `file.py:Class` if the file defines several, or if
    the base of the class is defined in another file.

    Raises `ScenarioNotFound`, or `ScenarioError` if the file cannot be read.
    """
    path, cls = _path(name)
    if path.suffix == ".py":
        return _in_file(section, path, cls)
    known = []
    for item in listing(section):
        if isinstance(item, Unreadable):
            if item.path.stem.replace("_", "-") == name:
                raise item.error
        elif item.name == name:
            return item
        else:
            known.append(item.name)
    raise ScenarioNotFound(name, known, same_name(name))


def same_name(name: str) -> Path | None:
    """Return the file in the working folder that a name without its ending may mean, or None."""
    there = (Path(f"{stem}.py") for stem in (name, name.replace("-", "_")) if stem.isprintable())
    with suppress(OSError):  # too long for the name of a file
        return next((path for path in there if len(path.parts) == 1 and path.is_file()), None)
    return None


def named_in(path: Path, name: str) -> str | None:
    """Return a scenario's class in a file as FILE.py:Class, or the file alone if it defines no other. None: not there.

    `name` is the scenario's.
    """
    tree = _tree(path)
    clear, unclear = _subclasses(tree, ROOTS["scenarios"]), _unclear(tree)
    found = [node.name for node in (*clear, *unclear) if _name(node) == name]
    if not found and not clear and len(unclear) == 1:  # its name may come from its base
        found = [unclear[0].name]
    if not found:
        return None
    return str(path) if len(clear) == 1 and clear[0].name == found[0] else f"{path}:{found[0]}"


def section_of(name: str) -> Section:
    """Return "agents" if a path names an agent, or a file that defines agents only, by its source; else "scenarios"."""
    path, cls = _path(name)
    agents, scenarios = ([item.cls for item in read(which, path)] for which in ("agents", "scenarios"))
    return "agents" if (cls in agents if cls else agents and not scenarios) else "scenarios"


def from_anywhere(name: str) -> str:
    """Return a name with the same meaning in every working folder: a path is made absolute."""
    path, cls = _path(name)
    if path.suffix != ".py" or not path.is_file():
        return name
    return f"{path.resolve()}:{cls}" if cls else str(path.resolve())


def path_of(name: str) -> Path | None:
    """Return the file that a name is the path of, whether it exists or not. None for a library name."""
    path, _ = _path(name)
    return path if path.suffix == ".py" else None


def _path(name: str) -> tuple[Path, str]:
    """Return a name read as a path, and the class in its file, if one is named."""
    file, _, cls = name.partition(".py:")
    return (Path(f"{file}.py"), cls) if cls else (Path(name), "")


def _in_file(section: Section, path: Path, cls: str) -> Found:
    if not path.is_file():
        known = [item.name for item in listing(section) if isinstance(item, Found)]
        raise ScenarioNotFound(str(path), known)
    found, tree = [item for item in read(section, path) if cls in ("", item.cls)], _tree(path)
    if not found and cls:
        found = [_found(section, tree, node, path) for node in _unclear(tree) if node.name == cls]
    if not found:
        raise broken(path, None, _not_there(section, tree, path, cls))
    if len(found) > 1:
        raise broken(path, None, f"defines several classes; choose one, such as {path}:{found[0].cls}")
    return found[0]


def _not_there(section: Section, tree: ast.Module, path: Path, cls: str) -> str:
    """Return what is wrong with a file that does not define a class, or no scenario or agent, and what to do."""
    kind = section.removesuffix("s")
    one = f"{'an' if section == 'agents' else 'a'} {kind}"
    unclear = [node.name for node in _unclear(tree)]
    agents = [node.name for node in _subclasses(tree, ROOTS["agents"])]
    play = f"to play agents, call agentcho.run({agents[0]}('ann')) in it, and run `python {path}`" if agents else ""
    if cls:
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        if cls not in classes:
            return f"defines no class {cls}{asking(cls, classes)}"
        return f"{cls} is not a subclass of agentcho.{ROOTS[section]}{f'; {play}' if cls in agents else ''}"
    told = f"defines no {kind}{f', but agents; {play}' if play else ''}"
    if not unclear:
        return told
    return (
        f"{told}. By its source, {one} has a base that is named {ROOTS[section]} or is in the same file. Other classes "
        f"with bases: {', '.join(unclear)}. If the base of {one} is in another file, name it: {path}:{unclear[0]}"
    )


def place(found: Found) -> Path:
    """Return the default folder of a copy: the one that is searched first.

    In a clone, that is the folder of the shipped ones themselves, so `MINE` is used instead.
    """
    return MINE if in_clone(found.section) else Path(found.section)


def in_clone(section: Section) -> bool:
    """Whether the current folder's own section is the shipped one, as in the root of a clone."""
    return Path(section).resolve() == shipped(section).resolve()


def copy(found: Found, folder: Path) -> Path:
    """Copy the file of a scenario or agent into `folder`, which is created if missing.

    Raises `ScenarioError` instead of overwriting a file.
    """
    target = folder / found.path.name
    if target.exists():
        raise ScenarioError(f"{target} already exists; move it away, or copy to another folder")
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(found.path.read_bytes())
    return target


class Setting(NamedTuple):
    """The name, default and description of one option, as written in its source."""

    name: str
    default: str
    description: str


def details(found: Found) -> tuple[str, list[Setting]]:
    """Return the whole docstring of a class, and its options (`class Options`). Executes nothing."""
    tree = parsed(found.path.read_bytes())
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == found.cls)
    nested = [n for n in node.body if isinstance(n, ast.ClassDef) and n.name == "Options"]
    lines = [line for options in nested for line in options.body if isinstance(line, ast.AnnAssign)]
    return ast.get_docstring(node) or "", [_setting(line) for line in lines]


def _setting(line: ast.AnnAssign) -> Setting:
    default, description = line.value, ""
    if isinstance(default, ast.Call):
        words = {keyword.arg: keyword.value for keyword in default.keywords}
        told = words.get("description")
        description = str(told.value) if isinstance(told, ast.Constant) else ""
        default = default.args[0] if default.args else words.get("default")
    return Setting(ast.unparse(line.target), ast.unparse(default) if default else "(needed)", description)
