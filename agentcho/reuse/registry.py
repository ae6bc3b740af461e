"""The registry of reuse methods, in the order in which help lists them. A new method needs a module here and one line.

Text parsing, error messages, command-line help, the columns of comparisons and the tables of the documentation follow
from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TypeVar

from agentcho.reuse.ape import Ape
from agentcho.reuse.cacheblend import CacheBlend
from agentcho.reuse.ends import Ends
from agentcho.reuse.epic import Epic
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.full import Full
from agentcho.reuse.in_place import InPlace
from agentcho.reuse.kvcomm import KVComm
from agentcho.reuse.method import Method, Reading, Selection, Weighing
from agentcho.reuse.rotate import Rotate
from agentcho.reuse.top_k import TopK

Found = TypeVar("Found", bound=Method)

READINGS: list[type[Reading]] = [Rotate, InPlace, Ape]
"""Ways to read reused keys and values. The first is the default, and the one that repairs require."""
SELECTIONS: list[type[Selection]] = [FirstK, Epic, Ends, TopK, CacheBlend, KVComm, Full]
"""Ways to choose the tokens of a reused message that are recomputed."""
DEFAULT = READINGS[0].name
ALL = "all"
"""Stands for all usual selections and readings in comparisons of reuse methods."""


def parsed_way(text: str) -> Reading:
    """The reading that a text such as `rotate`, `in-place` or `ape:0.9,0.8` names. Raises ValueError if it names
    none."""
    return _parsed(text, READINGS)


def parsed_repair(text: str) -> Selection:
    """The selection that a text such as `first-k:16`, `top-k:0.15` or `full` names. Raises ValueError if it names
    none."""
    return _parsed(text, SELECTIONS)


def selection_of(given: object) -> type[Selection] | None:
    """The registered class of a selection, which may be of a subclass. None if it is not a selection."""
    return next((each for each in type(given).__mro__ if each in SELECTIONS), None)


def weighing_of(given: object) -> type[Weighing] | None:
    """The registered class of a `Weighing` reading, which may be of a subclass. None if it is not one."""
    return next((each for each in type(given).__mro__ if each in READINGS and issubclass(each, Weighing)), None)


def called(methods: Sequence[type[Method]]) -> str:
    """The constructor signatures of methods, for error messages."""
    return ", ".join(f"{each.__name__}({', '.join(inspect.signature(each).parameters)})" for each in methods)


def usual_ways() -> list[str]:
    """The readings of a comparison of all methods."""
    return [each.usual for each in READINGS if each.usual is not None]


def usual_repairs() -> list[str]:
    """The selections of a comparison of all methods."""
    return [each.usual for each in SELECTIONS if each.usual is not None]


def attacked_repairs() -> list[str]:
    """The selections on which attacks are measured by default, published ones first."""
    found = sorted(SELECTIONS, key=lambda each: each.source is None)
    return [each.attacked for each in found if each.attacked is not None]


def compared_repairs() -> list[str]:
    """Each selection once: in its `attacked` form if it has one, else in its `usual` form."""
    return [named for each in SELECTIONS if (named := each.attacked or each.usual) is not None]


def ways_help() -> str:
    """The help of an option that takes a reading."""
    ways = _listed([f"{each.form} ({each.about})" for each in READINGS], "or")
    return f"How reused messages are read: {ways}."


def repairs_help() -> str:
    """The help of an option that takes a selection."""
    return f"Tokens of each reused message to encode again: {_listed([each.form for each in SELECTIONS], 'or')}."


def _parsed(text: str, kinds: Sequence[type[Found]]) -> Found:
    name, colon, value = text.partition(":")
    for kind in kinds:
        if kind.name == name and (found := kind.parsed(value if colon else None)) is not None:
            return found
    limits = "; ".join(dict.fromkeys(kind.limits for kind in kinds if kind.limits))
    bounds = f" ({limits})" if limits else ""
    raise ValueError(f"{text!r} is none of {_listed([kind.form for kind in kinds], 'and')}{bounds}")


def _listed(words: Sequence[str], conjunction: str) -> str:
    *first, last = words
    comma = "," if conjunction == "or" and len(first) > 1 else ""
    return f"{', '.join(first)}{comma} {conjunction} {last}" if first else last
