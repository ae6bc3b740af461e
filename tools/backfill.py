"""Adds digests of code to results without any, from the commits that they name: `python -m tools.backfill
docs/results`.

A result from before these digests gets those of the whole package, the scenarios and the agents at its commit, and of
what else it measures. Digests of bytes, which results used to hold, become digests of syntax trees of the same code if
the commit has exactly that code. Both are marked `"trees_from": "commit"`: the run did not write them. If the working
tree was changed when it ran ("-dirty"), the digests are those of the commit itself, and the mark says so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from agentcho.lab.paper.found import digest_of
from agentcho.records.digests import file_digest, folder_digest
from agentcho.records.environment import BESIDE, digest_list, digest_unit
from tools.pages.behind import ROOT, place

CLEAN, CHANGED = '"trees_from": "commit"', '"trees_from": "commit, before what was changed in it"'
BYTES = re.compile(r'"modules":(\s*)"(\S+:[0-9a-f]{12}(?: \S+:[0-9a-f]{12})*)"(,\s*)?')
COMMIT = re.compile(r'"commit":(\s*)"([0-9a-f]{40})(-dirty)?"(,\s*)?')


class Code(NamedTuple):
    """The Python files of one commit, by path."""

    files: dict[Path, bytes]

    def units(self, *below: str) -> Iterator[tuple[str, str]]:
        """The digests of all code below these files and folders, by name."""
        found = dict[str, list[str]]()
        for path, content in self.files.items():
            if any(path.is_relative_to(each) for each in below):
                found.setdefault(digest_unit(path), []).append(file_digest(content))
        for name in sorted(found):
            yield name, found[name][0] if name.endswith(".py") else folder_digest(found[name])

    def by_bytes(self, name: str) -> str:
        """The digest of bytes, as results used to hold it, of a file or folder."""
        whole = sha256()
        for path in sorted(self.files):
            if name in (path.as_posix(), path.parent.as_posix()):
                content = self.files[path]
                whole.update(f"{path.name}\0{len(content)}\0".encode() + content)
        return whole.hexdigest()[:12]


def at(commit: str, root: Path = ROOT) -> Code:
    """The code of a commit of the repository around `root`."""
    git = ["git", "-C", str(root)]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "-z", commit, "--", "agentcho", *BESIDE, "tests"], capture_output=True, check=True
    )
    entries = [each.split(b"\t") for each in listed.stdout.split(b"\0") if each.endswith(b".py")]
    blobs = [(head.split()[2], Path(path.decode())) for head, path in entries]
    asked = b"".join(blob + b"\n" for blob, _ in blobs)
    told = subprocess.run([*git, "cat-file", "--batch"], input=asked, capture_output=True, check=True).stdout
    files, start = dict[Path, bytes](), 0
    for _, path in blobs:
        end = told.index(b"\n", start)
        size = int(told[start:end].split()[2])
        files[path] = told[end + 1 : end + 1 + size]
        start = end + size + 2
    return Code(files)


def filled(name: str, text: str, code: Code) -> str:
    """The text of a result file with digests of the code at its commit.

    Args:
        name: The name of the file, which tells what else it measures.
        text: Its content.
        code: The code of the commit that it names.

    Raises:
        ValueError: It holds digests of other code than that commit has.
    """
    if held := BYTES.search(text):
        names = [each.rsplit(":", 1) for each in held[2].split()]
        if other := [each for each, digest in names if code.by_bytes(each) != digest]:
            raise ValueError(f"{name} holds digests of other code than its commit has: {', '.join(other)}")
        found = dict[str, str]()
        for each, _ in names:
            own = (path for path in code.files if each in (path.as_posix(), path.parent.as_posix()))
            found |= dict(code.units(*(path.as_posix() for path in own)))
        between = held[3] or ", "
        new = f'"trees":{held[1]}"{digest_list(sorted(found.items()))}"{between}{CLEAN}{held[3] or ""}'
        return text[: held.start()] + new + text[held.end() :]
    at_commit = COMMIT.search(text)
    assert at_commit is not None, name
    digests = digest_list(code.units("agentcho", "scenarios", "agents", *place(name).code))
    mark, between = CHANGED if at_commit[3] else CLEAN, at_commit[4] or ", "
    new = f'{between}"trees":{at_commit[1]}"{digests}"{between}{mark}'
    stop = at_commit.end() - len(at_commit[4] or "")
    return text[:stop] + new + text[stop:]


def main() -> None:
    """Fill in all results without digests."""
    parser = argparse.ArgumentParser(description="Digests of code for results that hold none, from their commits.")
    parser.add_argument("results", type=Path)
    codes = dict[str, Code]()
    for file in sorted(parser.parse_args().results.glob("*.json")):
        text = file.read_text()
        if '"trees":' in text:
            continue
        named = COMMIT.search(text)
        if named is None:
            raise SystemExit(f"{file} names no commit")
        commit = named[2]
        codes[commit] = codes.get(commit) or at(commit)
        file.write_text(_sealed(text, filled(file.name, text, codes[commit])))
        print(f"{file.name}: as at {commit[:10]}")


def _sealed(old: str, new: str) -> str:
    """Update the digest of the content, in the one format that has such a digest, if it was right before."""
    before = json.loads(old)
    if before.get("digest") != digest_of(before):
        return new
    return new.replace(before["digest"], digest_of(json.loads(new)))


if __name__ == "__main__":
    main()
