"""The kept files: one file of lines per game, in one folder per part, and a log of why they were changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from pathlib import Path

HERE = Path(__file__).parent
README = "README.md"
SHOWN, WIDTH = 12, 400


def path(folder: Path, part: str, name: str) -> Path:
    """The file with the lines of a game."""
    return folder / "kept" / part / f"{name}.jsonl"


def read(folder: Path, part: str, name: str) -> list[str]:
    """The lines of a game; empty if none are kept."""
    file = path(folder, part, name)
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def names(folder: Path, part: str) -> set[str]:
    """The games kept in a part."""
    return {file.stem for file in (folder / "kept" / part).glob("*.jsonl")}


def difference(kept: Iterable[str], now: Iterable[str]) -> str:
    """The first differing lines, kept ones with a minus; empty if there is no difference."""
    lines = [line for line in unified_diff([*kept], [*now], n=0, lineterm="") if not line.startswith(("---", "+++"))]
    more = [f"… and {len(lines) - SHOWN} lines more"] if len(lines) > SHOWN else []
    return "\n".join([*(line[:WIDTH] for line in lines[:SHOWN]), *more])


def write(folder: Path, part: str, now: Mapping[str, list[str]], why: str) -> None:
    """Replace all lines of a part, and log the reason in the README."""
    (folder / "kept" / part).mkdir(parents=True, exist_ok=True)
    for name in names(folder, part) - now.keys():
        path(folder, part, name).unlink()
    for name, lines in now.items():
        path(folder, part, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with (folder / README).open("a", encoding="utf-8") as readme:
        readme.write(f"- `{digest(folder)}` {part}: {' '.join(why.split())}\n")


def digest(folder: Path) -> str:
    """The digest of all kept files."""
    hasher = hashlib.blake2b(digest_size=8)
    for file in sorted((folder / "kept").rglob("*.jsonl")):
        hasher.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return hasher.hexdigest()


def last(folder: Path) -> str | None:
    """The digest in the README's last log line."""
    found: list[str] = re.findall(r"^- `([0-9a-f]{16})` \w+: \S", (folder / README).read_text(), re.MULTILINE)
    return found[-1] if found else None
