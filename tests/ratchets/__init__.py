"""Ratchets: numbers of the package that may only go down, and are said in `ratchets.json` and `limits.json`.

A number of `ratchets.json` is the exact one; one of `limits.json` is the most that may be, and is lowered now and then.
`exceptions.json` lists what breaks a rule of the layout today. `python -m tests.ratchets` prints what is counted. Does
not know: how anything is counted.
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
    """What may be counted at most, by what is counted."""
    found: Counts = json.loads(file.read_bytes())
    return found


def exceptions(kind: str) -> list[str]:
    """What is known to break a rule of the layout. The list of a kind may only shrink."""
    found: dict[str, list[str]] = json.loads(EXCEPTIONS.read_bytes())
    return found[kind]


def excepted(kind: str, found: Iterable[str]) -> str | None:
    """What is to be done about what breaks a rule; None: nothing, it is just what is listed."""
    there, known = {*found}, {*exceptions(kind)}
    where = "/".join(EXCEPTIONS.parts[-3:])
    if new := sorted(there - known):
        return f"{kind}: new, and none may be added to {where}:\n" + "\n".join(new)
    if gone := sorted(known - there):
        return f"{kind}: no longer there. Well done: delete from {where}:\n" + "\n".join(gone)
    return None


def beyond(counted: Mapping[str, int], most: Mapping[str, int]) -> list[str]:
    """What is to be done about numbers that are larger than they may be."""
    return [
        f"{name}: {number}, and {most.get(name, 0)} is the most that may be (`python -m tests.ratchets --places`)"
        for name, number in counted.items()
        if number > most.get(name, 0)
    ]


def verdict(name: str, counted: int, most: int) -> str | None:
    """What is to be done about a number; None: nothing, it is the committed one."""
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
    """The same of all that was counted. A number that nobody committed may be nothing."""
    found = (verdict(name, number, most.get(name, 0)) for name, number in counted.items())
    return [each for each in found if each is not None]


def lowered(counted: Mapping[str, int], most: Mapping[str, int]) -> Counts:
    """What may be at most from now on: nothing is raised."""
    return {name: min(number, counted.get(name, number)) for name, number in most.items()}


def write(most: Mapping[str, int], file: Path = FILE) -> None:
    """Commit them."""
    file.write_text(json.dumps(most, indent=4) + "\n")


def _shown() -> str:
    return "/".join(FILE.parts[-3:])
