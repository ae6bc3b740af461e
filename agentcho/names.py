"""What may name an agent, in a live game, a trace or a record: the one place where names are checked.

Also what a word of a user's is before it decides anything: exactly a `str`, for a subclass can answer one thing
when it is checked and another when it is looked up. Does not know: casts, messages.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

from agentcho.errors import AudienceError

EVERYBODY = "everyone"
SCENARIO = "scenario"
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters, marks and signs of other kinds that nobody sees either."""
CAST = re.compile(r"[a-z][a-z0-9_-]*")


def exact(word: object) -> str:
    """A word as nothing but its characters. `AudienceError`: it is no text."""
    if not isinstance(word, str):
        raise _unfit(word, f"it is of type {type(word).__name__}, and a name is text")
    return str.__str__(word)


def name(word: object) -> str:
    """A name that an agent may have, wherever it comes from. `AudienceError`: it is none."""
    said = exact(word)
    if not said.strip() or said != said.strip():
        raise _unfit(said, "it is empty, or begins or ends with a space")
    if BLANK.search(said) or any(unicodedata.category(char) in UNSEEN for char in said):
        raise _unfit(said, "it has control characters, or others that cannot be seen")
    if unicodedata.normalize("NFKC", said).casefold() in {SCENARIO, EVERYBODY}:
        raise _unfit(said, "that word stands for something else")
    return said


def cast_name(word: object) -> str:
    """A name that an agent may have in a live game: shorter to write, and the beginning of its messages' ids."""
    said = name(word)
    if not CAST.fullmatch(said):
        raise _unfit(said, "it takes a lower-case letter, then lower-case letters, digits, - and _")
    return said


def called(cls: str) -> str:
    """What a scenario or an agent is called that says no name, by that of its class."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls).lower()


AgentName = Annotated[str, AfterValidator(name)]


def _unfit(word: object, why: str) -> AudienceError:
    return AudienceError(f"{word!r} cannot name an agent: {why}")
