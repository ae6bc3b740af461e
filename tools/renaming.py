"""Renames modules, classes and functions of the package everywhere: `python -m tools.renaming docs/renamed.json`.

The table has two parts: `modules` maps old dotted names to new ones, and `names` maps old dotted names of what modules
define at their top level to new names. A part `earlier` lists modules that were moved before, for reference. Files are
moved with git. Imports, uses and re-exports follow what each name refers to, not its spelling; dotted names and paths
in strings, comments and documentation follow their text. A second run changes nothing.
"""
# ruff: noqa: N802 -- LibCST calls visitors by the names of its node classes

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import libcst as cst
from libcst.helpers import ModuleNameAndPackage, get_full_name_for_node
from libcst.metadata import FullyQualifiedNameProvider, MetadataWrapper

TEXTS = {".py", ".md", ".toml", ".json", ".jinja", ".js", ".txt", ".yaml", ".yml", ".ipynb", ""}
"""Suffixes of the files that are searched for dotted names and paths."""
KEPT = (
    "docs/results/",
    "tests/fixtures/",
    "docs/renamed.json",
    "CHANGELOG.md",
    "agentcho/moved.py",
    "tests/test_moved.py",
    "tools/renaming.py",
    "tests/test_renaming.py",
)
"""Files that are never changed: results say what they were made with, and the others record old names."""


class TableError(ValueError):
    """The table contradicts itself or the checkout."""


@dataclass(frozen=True)
class Table:
    """Renames: `modules` by old dotted names, and `names` (new names without dots) by old dotted names."""

    modules: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Table:
        """Read a table. `TableError`: a new name is also an old one, so that a second run would change something."""
        found = json.loads(path.read_text())
        table = cls(found.get("modules", {}), found.get("names", {}))
        twice = sorted(set(table.modules) & set(table.modules.values()))
        renamed = {f"{old.rpartition('.')[0]}.{new}" for old, new in table.names.items()}
        twice += sorted(renamed & set(table.names))
        if twice:
            raise TableError(f"both an old and a new name: {', '.join(twice)}")
        return table

    def module(self, dotted: str) -> str:
        """The new name of a module, or of something in it. The longest matching entry decides."""
        head, rest = dotted, ""
        while head:
            if head in self.modules:
                return self.modules[head] + rest
            head, dot, last = head.rpartition(".")
            rest = f"{dot}{last}{rest}"
        return dotted

    def dotted(self, dotted: str) -> str:
        """The new form of a dotted name of a module, of what it defines, or of what that contains."""
        head, rest = dotted, ""
        while head:
            if head in self.names:
                return f"{self.module(head.rpartition('.')[0])}.{self.names[head]}{rest}"
            head, dot, last = head.rpartition(".")
            rest = f"{dot}{last}{rest}"
        return self.module(dotted)

    @cached_property
    def words(self) -> re.Pattern[str]:
        """A word that a file must contain for its code to change."""
        last = {old.rpartition(".")[2] for old in (*self.modules, *self.names)}
        return re.compile(rf"\b({'|'.join(sorted(map(re.escape, last)))})\b") if last else re.compile("(?!)")


def module_of(path: PurePosixPath) -> str:
    """The dotted name of a Python file, by its path in the checkout."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def reexports(files: Mapping[PurePosixPath, str], top: str) -> dict[str, str]:
    """What modules import at their top level from `top` or its parts: the definition's dotted name by the name that it
    gets."""
    found: dict[str, str] = {}
    for path, text in files.items():
        if path.parts[0] != top:
            continue
        name = module_of(path)
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        for statement in _imports(cst.parse_module(text)):
            base = absolute(statement, package)
            if base.split(".")[0] == top and not isinstance(statement.names, cst.ImportStar):
                for alias in statement.names:
                    known = alias.evaluated_alias or alias.evaluated_name
                    found[f"{name}.{known}"] = f"{base}.{alias.evaluated_name}"
    return found


def absolute(statement: cst.ImportFrom, package: str) -> str:
    """The module that an import statement in a file of `package` imports from."""
    base = get_full_name_for_node(statement.module) if statement.module else ""
    if not statement.relative:
        return base or ""
    parents = package.split(".")
    kept = parents[: len(parents) - len(statement.relative) + 1]
    return ".".join([*kept, *([base] if base else [])])


def _imports(module: cst.Module) -> Iterator[cst.ImportFrom]:
    for line in module.body:
        inner = line.body.body if isinstance(line, cst.If) else [line]
        for part in inner:
            if isinstance(part, cst.SimpleStatementLine):
                yield from (each for each in part.body if isinstance(each, cst.ImportFrom))


class Renamer(cst.CSTTransformer):
    """Renames in one file of package `packages[0]`, which will be in `packages[1]`. `changed` has the names spelled
    differently there."""

    METADATA_DEPENDENCIES = (FullyQualifiedNameProvider,)

    def __init__(self, table: Table, seen: Mapping[str, str], packages: tuple[str, str]) -> None:
        super().__init__()
        self.table, self.seen = table, seen
        self.package, self.becomes = packages
        self.changed: dict[str, str] = {}

    def canonical(self, dotted: str) -> str:
        """Where a name is defined, following all re-exports."""
        for _ in range(10):
            head, rest = dotted, ""
            while head and head not in self.seen:
                head, dot, last = head.rpartition(".")
                rest = f"{dot}{last}{rest}"
            if not head:
                break
            dotted = self.seen[head] + rest
        return dotted

    def _renamed(self, node: cst.CSTNode, written: str) -> str:
        """The new last part of what a name or attribute refers to. An alias given by `as` stays."""
        for found in self.get_metadata(FullyQualifiedNameProvider, node, ()):
            name = self.canonical(found.name)
            if name.rpartition(".")[2] != written:
                continue
            if name in self.table.names:
                return self.table.names[name]
            if name in self.table.modules:
                return self.table.modules[name].rpartition(".")[2]
        return written

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        new = self._renamed(original_node, original_node.value)
        if new == original_node.value:
            return updated_node
        self.changed[original_node.value] = new
        return updated_node.with_changes(value=new)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        written = get_full_name_for_node(original_node)
        names = [found.name for found in self.get_metadata(FullyQualifiedNameProvider, original_node, ())]
        if written in names and written in self.table.modules:
            return cst.parse_expression(self.table.modules[written])
        attr = self._renamed(original_node, original_node.attr.value)
        if attr != original_node.attr.value:
            self.changed[original_node.attr.value] = attr
        return updated_node.with_changes(attr=original_node.attr.with_changes(value=attr))

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        names = []
        for alias in original_node.names:
            new = self.table.module(alias.evaluated_name)
            changed = new != alias.evaluated_name
            names.append(alias.with_changes(name=cst.parse_expression(new)) if changed else alias)
        return updated_node.with_changes(names=names)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        first = original_node.body[0]
        if len(original_node.body) != 1 or not isinstance(first, cst.ImportFrom):
            return updated_node
        if isinstance(first.names, cst.ImportStar):
            return updated_node
        groups: dict[str, list[cst.ImportAlias]] = {}
        before = absolute(first, self.package)
        for alias in first.names:
            base, renamed = self._imported(before, alias)
            groups.setdefault(base, []).append(renamed.with_changes(comma=cst.MaybeSentinel.DEFAULT))
        same = set(groups) == {before} and self.package == self.becomes
        if same and all(
            a.deep_equals(b.with_changes(comma=a.comma)) for a, b in zip(first.names, groups[before], strict=True)
        ):
            return updated_node
        lines = [self._statement(first, base, names) for base, names in groups.items()]
        rest = [original_node.with_changes(body=[line], leading_lines=[]) for line in lines[1:]]
        return cst.FlattenSentinel([original_node.with_changes(body=[lines[0]]), *rest])

    def _imported(self, base: str, alias: cst.ImportAlias) -> tuple[str, cst.ImportAlias]:
        """The module that a name is now imported from, and its new form."""
        name = alias.evaluated_name
        full = f"{base}.{name}"
        known = self.canonical(full)
        if full in self.table.modules:
            home, _, new = self.table.modules[full].rpartition(".")
        elif known in self.table.names and known.rpartition(".")[2] == name:
            home, new = self.table.module(base), self.table.names[known]
        else:
            home, new = self.table.module(base), name
        if new == name:
            return home, alias
        if alias.evaluated_alias == name:  # `import Old as Old` re-exports the name
            return home, alias.with_changes(name=cst.Name(new), asname=cst.AsName(cst.Name(new)))
        if alias.asname is None:
            self.changed[name] = new
        return home, alias.with_changes(name=cst.Name(new))

    def _statement(self, first: cst.ImportFrom, base: str, names: Sequence[cst.ImportAlias]) -> cst.ImportFrom:
        dots, rest = 0, base
        if first.relative:
            parts, mine = base.split("."), self.becomes.split(".")
            for up in range(len(first.relative)):
                kept = mine[: len(mine) - up]
                if kept and parts[: len(kept)] == kept:
                    dots, rest = up + 1, ".".join(parts[len(kept) :])
                    break
        return first.with_changes(
            module=cst.parse_expression(rest) if rest else None,
            relative=[cst.Dot() for _ in range(dots)],
            names=names,
            lpar=None,
            rpar=None,
        )


@dataclass(frozen=True)
class Work:
    """A Python file to process."""

    path: PurePosixPath
    text: str
    becomes: PurePosixPath


def renamed_code(work: Work, table: Table, seen: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The new text of a Python file, and the names that are spelled differently in it."""
    moved = work.path != work.becomes
    if not moved and not table.words.search(work.text):
        return work.text, {}
    name = module_of(work.path)
    package = name if work.path.stem == "__init__" else name.rpartition(".")[0]
    new = module_of(work.becomes)
    becomes = new if work.becomes.stem == "__init__" else new.rpartition(".")[0]
    known = ModuleNameAndPackage(name=name, package=package)
    wrapper = MetadataWrapper(cst.parse_module(work.text), cache={FullyQualifiedNameProvider: known})
    renamer = Renamer(table, seen, (package, becomes))
    return wrapper.visit(renamer).code, renamer.changed


def renamed_text(text: str, table: Table, top: str) -> str:
    """Any text with the new dotted names and paths of the package."""
    dotted = re.compile(rf"\b{top}(?:\.\w+)+")
    paths = re.compile(rf"\b{top}(?:/\w+)+(?:\.py\b)?")

    def path(match: re.Match[str]) -> str:
        old = match.group().removesuffix(".py")
        return table.module(old.replace("/", ".")).replace(".", "/") + match.group()[len(old) :]

    return paths.sub(path, dotted.sub(lambda match: table.dotted(match.group()), text))


def fragments(text: str, changed: Mapping[str, Mapping[str, str]]) -> str:
    """A file of mutants with the new names. Its calls quote the source of the file that they name."""

    class Quoting(cst.CSTTransformer):
        def __init__(self) -> None:
            super().__init__()
            self.stack: list[Mapping[str, str]] = []

        def visit_Call(self, node: cst.Call) -> bool:
            self.stack.append({})
            return True

        def visit_Arg(self, node: cst.Arg) -> bool:
            value = node.value.evaluated_value if isinstance(node.value, cst.SimpleString) else None
            if self.stack and isinstance(value, str) and value in changed:
                self.stack[-1] = changed[value]  # the argument before the path is a description
            return True

        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            self.stack.pop()
            return updated_node

        def leave_SimpleString(
            self, original_node: cst.SimpleString, updated_node: cst.SimpleString
        ) -> cst.SimpleString:
            names = self.stack[-1] if self.stack else {}
            value = original_node.value
            if not names or original_node.evaluated_value in changed:
                return updated_node
            words = re.compile(rf"(?<![\w./\"'])({'|'.join(map(re.escape, names))})\b(?!\s*=[^=])")
            return updated_node.with_changes(value=words.sub(lambda match: names[match.group()], value))

    return cst.parse_module(text).visit(Quoting()).code


def rename(root: Path, table: Table, top: str = "agentcho") -> list[str]:
    """Rename in the checkout at `root`; return the changed paths."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    paths = [PurePosixPath(name) for name in tracked.split("\0") if name and not name.startswith(KEPT)]
    paths = [path for path in paths if path.suffix in TEXTS and (root / path).is_file()]
    texts = {path: _read(root / path) for path in paths}
    code = {path: text for path, text in texts.items() if path.suffix == ".py" and text is not None}
    seen = reexports(code, top)
    work = [Work(path, text, _becomes(path, table, top)) for path, text in code.items()]
    with ProcessPoolExecutor() as pool:
        done = list(pool.map(renamed_code, work, [table] * len(work), [seen] * len(work), chunksize=16))
    results: dict[PurePosixPath, str] = {path: text for path, text in texts.items() if text is not None}
    changed: dict[str, Mapping[str, str]] = {}
    for item, (text, names) in zip(work, done, strict=True):
        results[item.path] = text
        if names:
            changed[str(item.path)] = names
    for path, text in results.items():
        if path.parts[:2] == ("tests", "mutants") and path.suffix == ".py":
            text = fragments(text, changed)
        results[path] = renamed_text(text, table, top)
    touched = []
    for path, text in results.items():
        if text != texts[path]:
            (root / path).write_text(text)
            touched.append(str(path))
    return touched + _moved(root, paths, table, top)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None


def _becomes(path: PurePosixPath, table: Table, top: str) -> PurePosixPath:
    """The new path of a file of the package. Other files stay."""
    if path.parts[0] != top:
        return path
    parent = ".".join(path.parts[:-1])
    whole = module_of(path)
    new = table.module(whole)
    if new == whole:
        return path
    if path.stem == "__init__":
        return PurePosixPath(*new.split("."), "__init__.py")
    if whole not in table.modules:
        return PurePosixPath(*table.module(parent).split("."), path.name)
    return PurePosixPath(*new.split(".")).with_suffix(path.suffix)


def _moved(root: Path, paths: Iterable[PurePosixPath], table: Table, top: str) -> list[str]:
    """Move the files of the package whose paths change, including data files in its folders."""
    every = subprocess.run(["git", "ls-files", "-z", top], cwd=root, check=True, capture_output=True, text=True).stdout
    moved = []
    for path in [PurePosixPath(name) for name in every.split("\0") if name]:
        if path.suffix == ".py":
            new = _becomes(path, table, top)
        else:
            new = PurePosixPath(*table.module(".".join(path.parts[:-1])).split("."), path.name)
        if new != path and (root / path).is_file():
            (root / new).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", str(path), str(new)], cwd=root, check=True)
            moved.append(f"{path} -> {new}")
    return moved


def main() -> None:
    """Rename by a table, sort imports and format; print how many files changed."""
    parser = argparse.ArgumentParser(prog="python -m tools.renaming", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, help="a JSON file")
    parser.add_argument("root", type=Path, nargs="?", default=Path.cwd(), help="a checkout; default: this one")
    asked = parser.parse_args()
    touched = rename(asked.root, Table.read(asked.table))
    for command in (["check", "--quiet", "--fix", "--select", "I", "."], ["format", "--quiet", "."]):
        subprocess.run([sys.executable, "-m", "ruff", *command], cwd=asked.root, check=False)
    print("\n".join(touched) if touched else "nothing to rename")


if __name__ == "__main__":
    main()
