"""Finds chat templates in folders, wheels and source distributions of packages. Files are read, never run.

A template is a file whose name ends in `.jinja`, the value of `chat_template` in a JSON file, or a string in a Python
file that is assigned to a name containing `template`. Independent of tokenizers, and of whether a template works.
"""

from __future__ import annotations

import ast
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tools.templates.vocabularies import located

CARRIERS = ("axolotl", "trl")
"""Packages whose templates are tried if no place is given."""
MARKS = ("{%", "messages")
"""Strings that every chat template contains."""
LARGEST = 4_000_000
"""Files larger than this, in bytes, hold no templates."""


class Template(NamedTuple):
    """A template: its name, its file, and its source."""

    name: str
    file: str
    source: str


def found(places: list[Path]) -> list[Template]:
    """The templates of these places, by name. Of those with the same source only the first is kept.

    Args:
        places: Folders, files, wheels (`.whl`), and source distributions (`.tar.gz`).

    Raises:
        SystemExit: One of them does not exist.
    """
    kept = dict[str, Template]()
    for place in places:
        if not place.exists():
            raise SystemExit(f"there is no {place} to take templates from")
        for file, read in _files(place):
            for each in _templates(file, read):
                kept.setdefault(each.source.strip(), each)
    return sorted(kept.values(), key=lambda each: (each.name.lower(), each.file))


def carried() -> list[Path]:
    """The folders of installed packages that carry templates."""
    return [folder for package in CARRIERS if (folder := located(package)) is not None]


def _files(place: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The files that may hold templates, with their content."""
    if place.suffix == ".whl":
        with zipfile.ZipFile(place) as archive:
            for info in archive.infolist():
                if info.file_size <= LARGEST and _may_hold(name := PurePosixPath(info.filename)):
                    yield name, archive.read(info)
    elif place.name.endswith(".tar.gz"):
        with tarfile.open(place) as packed:
            for member in packed:
                if member.isfile() and member.size <= LARGEST and _may_hold(name := PurePosixPath(member.name)):
                    content = packed.extractfile(member)
                    yield name, content.read() if content else b""
    else:
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and _may_hold(PurePosixPath(file)) and file.stat().st_size <= LARGEST:
                yield PurePosixPath(file.relative_to(place.parent)), file.read_bytes()


def _may_hold(file: PurePosixPath) -> bool:
    return file.suffix in (".jinja", ".jinja2", ".json") or (file.suffix == ".py" and "template" in file.stem)


def _templates(file: PurePosixPath, content: bytes) -> Iterator[Template]:
    text = content.decode(errors="replace")
    if file.suffix == ".json":
        named = _of_json(file, text)
    elif file.suffix == ".py":
        named = _of_python(file, text)
    else:
        named = iter([(file.stem, text)])
    for name, source in named:
        if all(mark in source for mark in MARKS):
            yield Template(name, str(file), source)


def _of_json(file: PurePosixPath, text: str) -> Iterator[tuple[str, str]]:
    """The values of `chat_template`, each with the name of the object that holds it."""
    if "chat_template" not in text:
        return
    try:
        held = [json.loads(text)]
    except ValueError:
        return
    while held:
        value = held.pop()
        if isinstance(value, dict) and isinstance(given := value.get("chat_template"), str):
            yield str(value.get("model_name") or file.parent.name or file.stem), given
        inner: list[Any] = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        held += [each for each in inner if isinstance(each, dict | list)]


def _of_python(file: PurePosixPath, text: str) -> Iterator[tuple[str, str]]:
    """The strings that are assigned to names of templates."""
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return
    for statement in statements:
        if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Name):
            continue
        if "template" in target.id.lower():
            try:
                value = ast.literal_eval(statement.value)
            except ValueError:
                continue
            if isinstance(value, str):
                yield f"{file.parent.name}-{target.id.lower().removesuffix('_template')}", value
