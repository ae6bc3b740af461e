"""Reads the YAML file of a sweep: the options of the command line as keys. Errors name the line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import yaml

from agentcho.errors import ConfigError

OWN = ("scenario", "grid", "models", "set", "filter", "games", "out", "at_once", "retries")
ENDINGS = (".yaml", ".yml")


class SweepFile(NamedTuple):
    """The content of a file: `own` by the keys of a sweep, `run` by options of the run; `lines` of all keys, by
    path."""

    path: Path
    own: Mapping[str, Any]
    run: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int]

    def fault(self, what: str, *key: str) -> ConfigError:
        """An error at a key."""
        return ConfigError(f"{self.path}:{self.lines.get(key, 1)}: {what}")


def is_file(scenario: object) -> TypeGuard[str]:
    """Whether a scenario argument is the file of a sweep."""
    return isinstance(scenario, str) and scenario.endswith(ENDINGS)


def read_sweep(path: Path, options: Iterable[str]) -> SweepFile:
    """Read a file. `options`: the run options that it may have. `ConfigError` has the line of the fault."""
    lines = dict[tuple[str, ...], int]()
    found = _mapping(path, lines)
    known = {*OWN, *options}
    run = {name.replace("-", "_"): value for name, value in found.items() if name.replace("-", "_") not in OWN}
    file = SweepFile(path, {n.replace("-", "_"): v for n, v in found.items() if n.replace("-", "_") in OWN}, run, lines)
    for name in found:
        if name.replace("-", "_") not in known:
            raise file.fault(f"unknown key {name!r}; give one of {', '.join(sorted(known))}", name)
    _check_kinds(file)
    return file


def _check_kinds(file: SweepFile) -> None:
    """`ConfigError`: a key of a sweep has a value of the wrong type."""
    own = file.own
    if not isinstance(own.get("scenario"), str):
        raise file.fault("scenario is missing; give scenario: NAME, or a .py file", "scenario")
    for name in ("grid", "set"):
        if not isinstance(own.get(name, {}), dict):
            raise file.fault(f"{name} must be a table with one option per line", name)
    for name, values in own.get("grid", {}).items():
        if not isinstance(values, list) or any(isinstance(value, dict | list) for value in values):
            raise file.fault(f"grid {name} must be a list of values, such as [A, B]", "grid", name)
    for name in ("models", "filter"):
        if not isinstance(own.get(name, []), list):
            raise file.fault(f"{name} must be a list", name)
    for name in ("games", "at_once", "retries"):
        value = own.get(name, 1)
        if type(value) is not int or value < (name != "retries"):
            raise file.fault(f"{name} must be a whole number of {int(name != 'retries')} or more", name)
    if not isinstance(own.get("out", ""), str):
        raise file.fault("out must be the path of a folder", "out")


def _mapping(path: Path, lines: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """The file as a mapping; the lines of its keys are stored in `lines`."""
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path}:1: not a table; write one KEY: VALUE per line, beginning with scenario")
        _note(path, node, (), lines)
        found: dict[str, Any] = loader.construct_document(node)
    except ConfigError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {reason}; give the YAML file of a sweep, or a scenario") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(f"{path}:{mark.line + 1 if mark else 1}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    return found


def _note(path: Path, node: yaml.MappingNode, above: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> None:
    """Store the lines of the keys of this table and of nested ones. `ConfigError`: a key is repeated, or not a
    string."""
    for key, value in node.value:
        where = f"{path}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise ConfigError(f"{where}: a key must be a string; put it in quotes")
        at = (*above, key.value)
        if at in lines:
            raise ConfigError(f"{where}: {key.value} is given twice, first in line {lines[at]}; leave one out")
        lines[at] = key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode) and len(at) < 2:
            _note(path, value, at, lines)
