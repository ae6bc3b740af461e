"""Ratchets: figures of the package that may only go down, committed in `ratchets.json` and `limits.json`.

A figure in `ratchets.json` is exact; one in `limits.json` is an upper bound, lowered now and then. `exceptions.json`
lists the current violations of rules of the layout. `python -m tests.ratchets` prints all figures. Independent of how
anything is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

FILE = Path(__file__).parent / "ratchets.json"
LIMITS = Path(__file__).parent / "limits.json"
EXCEPTIONS = Path(__file__).parent / "exceptions.json"
Counts = dict[str, int]


def committed(file: Path = FILE) -> Counts:
    """The committed figures by name."""
    found: Counts = json.loads(file.read_bytes())
    return found


def exceptions(kind: str) -> list[str]:
    """Known violations of a rule of the layout. The list of a kind may only shrink."""
    found: dict[str, list[str]] = json.loads(EXCEPTIONS.read_bytes())
    return found[kind]


def excepted(kind: str, found: Iterable[str]) -> str | None:
    """What to do about violations of a rule; None if they are exactly the listed ones."""
    there, known = {*found}, {*exceptions(kind)}
    where = "/".join(EXCEPTIONS.parts[-3:])
    if new := sorted(there - known):
        return f"{kind}: new, and none may be added to {where}:\n" + "\n".join(new)
    if gone := sorted(known - there):
        return f"{kind}: no longer there. Well done: delete from {where}:\n" + "\n".join(gone)
    return None


def beyond(counted: Mapping[str, int], most: Mapping[str, int]) -> list[str]:
    """What to do about figures that exceed their limits."""
    return [
        f"{name}: {number}, and {most.get(name, 0)} is the most that may be (`python -m tests.ratchets --places`)"
        for name, number in counted.items()
        if number > most.get(name, 0)
    ]


def verdict(name: str, counted: int, most: int) -> str | None:
    """What to do about a figure; None if it is the committed one."""
    if counted > most:
        return (
            f"{name}: {counted}, and {most} is the most that may be. Do without what was added (`python -m "
            f"tests.ratchets` lists all that is counted), or write {counted} into {_shown()} and say why in the commit."
        )
    if counted < most:
        return (
            f"{name}: {counted}, no longer {most}. Well done: lower it to {counted} in {_shown()} (`python -m "
            "tests.ratchets --lower` does)."
        )
    return None


def verdicts(counted: Mapping[str, int], most: Mapping[str, int]) -> list[str]:
    """The verdicts on all figures. A figure that is not committed must be 0."""
    found = (verdict(name, number, most.get(name, 0)) for name, number in counted.items())
    return [each for each in found if each is not None]


def lowered(counted: Mapping[str, int], most: Mapping[str, int]) -> Counts:
    """The committed figures, each lowered to the counted one if that is less."""
    return {name: min(number, counted.get(name, number)) for name, number in most.items()}


def write(most: Mapping[str, int], file: Path = FILE) -> None:
    """Write figures to a file to be committed."""
    file.write_text(json.dumps(most, indent=4) + "\n")


def _shown() -> str:
    return "/".join(FILE.parts[-3:])
