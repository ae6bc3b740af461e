"""Imports the scenario or agent that was asked for, and names the line if importing fails.

Only that one file is imported, so that a broken neighbour does no harm. `discovery` finds the file.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import textwrap
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from pydantic import ValidationError

from agentcho.agent import Agent
from agentcho.errors import AgentchoError, ConfigError, ScenarioError, ScenarioNotFound
from agentcho.games.play.game_faults import FILE, words
from agentcho.games.runs.discovery import Found, broken, find, parsed
from agentcho.integrations.textarena.names import is_arena
from agentcho.protocol.call_site import shown_path
from agentcho.scenario import Scenario, given_options, is_masked, secret_options


def scenario(name: str) -> type[Scenario]:
    """Find and import a scenario, or make the scenario of a TextArena environment."""
    if is_arena(name):
        from agentcho.integrations.textarena.named import scenario_of

        return scenario_of(name)
    found = find("scenarios", name)
    cls = load(found)
    if not issubclass(cls, Scenario):
        raise broken(found.path, None, f"{found.cls} is not a subclass of agentcho.Scenario")
    return cls


def agent(name: str) -> type[Agent]:
    """Find and import an agent's class."""
    found = find("agents", name)
    cls = load(found)
    if not issubclass(cls, Agent):
        raise broken(found.path, None, f"{found.cls} is not a subclass of agentcho.Agent")
    return cls


def chosen(name: str, given: Mapping[str, Any], recorded: Mapping[str, Any] = MappingProxyType({})) -> Scenario:
    """Return the scenario of that name with its options, once all agents that it casts by name are found.

    Options that are not given are the `recorded` ones. Raises `ConfigError` for a recorded secret that is not given
    again, because records do not contain it.
    """
    cls = scenario(name)
    before = given_options(cls.Options, recorded)
    try:
        found = configured(cls, {**before, **given})
    except ConfigError:
        _check_secrets((option for option, value in before.items() if is_masked(value)), given)
        raise
    _check_secrets(before.keys() & set(secret_options(found)), given)
    for each in casts(found):
        try:
            agent(each)
        except ScenarioNotFound as error:
            located = _not_cast(found, each, error)
            if located is None:
                raise
            raise located from error
    return found


def _check_secrets(recorded: Iterable[str], given: Container[str]) -> None:
    for option in sorted(recorded):
        if option not in given:
            raise ConfigError(
                f"{option} is or has a secret, which records do not contain; give it again with --set {option}=..."
            )


def _not_cast(scenario: Scenario, name: str, error: ScenarioNotFound) -> ScenarioError | None:
    """Return the error for an agent that is cast by a name that no agent has, with its line. None if the source does
    not have it."""
    cls, (path, tree) = type(scenario), _tree(scenario)
    line = next((arg.lineno for arg in _literal_casts(tree) if arg.value == name), None)
    if path is None or line is None:
        return None
    value = getattr(sys.modules.get(cls.__module__), name, None)
    own = isinstance(value, type) and issubclass(value, Agent)
    remedy = f". To cast the class {name} of this file, give the class itself: game.cast({name}, ...)" if own else ""
    return broken(Path(shown_path(path)), line, f"{error}{remedy}")


def configured(cls: type[Scenario], given: Mapping[str, Any]) -> Scenario:
    """Return the scenario with its options. A text that is not a valid value itself is read as JSON (`3`, `true`,
    `null`).

    Raises `ConfigError`, which names the option and lists those that exist.
    """
    try:
        return cls(**given)
    except ConfigError as error:
        read = {key: _json(value) if isinstance(value, str) else value for key, value in given.items()}
        if not isinstance(error.__cause__, ValidationError) or read == given:
            raise
        wrong = {str(fault["loc"][0]) for fault in error.__cause__.errors() if fault["loc"]}
        return cls(**{key: read[key] if key in wrong else value for key, value in given.items()})


def _json(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def load(found: Found) -> type:
    """Import the file and return the class. Raises `ScenarioError` with the line where importing failed."""
    try:
        module = importlib.import_module(found.module) if found.module else _import(found.path)
        cls = getattr(module, found.cls)
    except (Exception, SystemExit) as error:
        what = f"does not import: {type(error).__name__}: {words(error)}{_remedy(error, found.path)}"
        raise broken(found.path, _line(error, found.path), what) from error
    if not isinstance(cls, type):
        raise broken(found.path, None, f"{found.cls} is not a class after the import")
    return cls


def _remedy(error: BaseException, path: Path) -> str:
    """Return how to import the module that a file lacks if it lies in the same folder. Empty otherwise."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    folder = path.parent
    there = name and ((folder / f"{name}.py").is_file() or (folder / name).is_dir())
    return f"; to import it from the folder of this file, set PYTHONPATH={folder}" if there else ""


class _Loader(SourceFileLoader):
    """Compiles the source that it has read, without a cached bytecode file, and keeps it."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, str(path))
        self.source = path.read_bytes()

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.source, self.path)


def _import(path: Path) -> ModuleType:
    """Import one file, once as long as it does not change."""
    path = path.resolve()
    stamp = f"{path}\0{path.stat().st_mtime_ns}"
    name = f"{FILE}{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _Loader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _line(error: BaseException, path: Path) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path.resolve()]
    return lines[-1] if lines else None


def sources(scenario: Scenario, find_agent: Callable[[str], type[Agent]] = agent) -> dict[str, str]:
    """Return digests of the sources that a scenario and the agents that it casts by name were imported from, by file.

    Empty if there is no file, as in a notebook.
    """
    found: dict[str, str] = {}
    with suppress(OSError, TypeError, SyntaxError):
        for cls in (type(scenario), *_agents(scenario, find_agent)):
            file = Path(inspect.getsourcefile(cls) or "")
            found[shown_path(file)] = hashlib.sha256(_source(cls, file)).hexdigest()
    return found


def _source(cls: type, file: Path) -> bytes:
    """Return the source that a class was imported from. If it was not imported here, that is its file as it is now."""
    loader = getattr(sys.modules.get(cls.__module__), "__loader__", None)
    return loader.source if isinstance(loader, _Loader) else file.read_bytes()


def _agents(scenario: Scenario, find_agent: Callable[[str], type[Agent]]) -> Iterator[type[Agent]]:
    for name in casts(scenario):
        with suppress(AgentchoError):
            yield find_agent(name)


def casts(scenario: Scenario) -> list[str]:
    """Return the agents that a scenario casts by a literal name in its source, or by its options.

    Importing them first makes a broken one fail early.
    """
    _, tree = _tree(scenario)
    return sorted({*(str(arg.value) for arg in _literal_casts(tree)), *scenario.casts()})


def _tree(scenario: Scenario) -> tuple[Path | None, ast.Module]:
    """Return the source file of a scenario and its syntax tree, which is empty if there is no file."""
    file = inspect.getsourcefile(type(scenario))
    return (Path(file), parsed(_source(type(scenario), Path(file)))) if file else (None, ast.Module([], []))


def _literal_casts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the literal names of agents that calls of `cast` give as their first argument."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    named = (call.args[0] for call in calls if getattr(call.func, "attr", None) == "cast")
    return (arg for arg in named if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def cast_names(scenario: Scenario) -> frozenset[str] | None:
    """Return the names under which a scenario casts agents, if its source shows all of them.

    All of them must be literal, and `play` must not pass the game on. None if they cannot be known.
    """
    cls = type(scenario)
    if cls.__bases__ != (Scenario,):
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return None
    play = next(
        (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef) and node.name == "play"), None
    )
    if play is None or len(play.args.args) != 2:
        return None
    game, nodes = play.args.args[1].arg, list(ast.walk(tree))
    used = sum(isinstance(node, ast.Name) and node.id == game for node in nodes)
    asked = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "cast"]
    names = [_cast_as(call) for call in calls]
    told = used == sum(node.value.id == game for node in asked if isinstance(node.value, ast.Name)) and names
    return frozenset(name for name in names if name) if told and None not in names else None


def _cast_as(call: ast.Call) -> str | None:
    """Return the name that a call of `cast` gives, or None if it cannot be known."""
    given = next(
        (word.value for word in call.keywords if word.arg == "name"), call.args[1] if len(call.args) > 1 else None
    )
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None
