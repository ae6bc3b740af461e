"""Names of TextArena's environments: how they are written, which cannot be played, and why.

Must not import TextArena.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from agentcho.errors import ScenarioError, ScenarioNotFound

PREFIX = "textarena:"
RAW = "-raw"
"""The suffix of the id of an environment without wrappers, which tells each player its observations, none of them
twice."""
VERSION = "-v0"
NEAR = 6
"""How many similar names an error suggests."""
NEWER = "its source needs Python 3.12 or newer"
WORDS = "it downloads a dictionary of NLTK when it is made"
ANSWERED = "a model behind OpenRouter answers in it, for which it needs a key of its own"
JUDGED = "its judges are models behind OpenRouter, for which it needs a key of its own"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "CharacterConclave": "its own code fails at the first move (add_observation without observation_type)",
        "Checkers": NEWER,
        "Chess": NEWER,
        "Codenames": WORDS,
        "Debate": JUDGED,
        "DontSayIt": WORDS,
        "IteratedStagHunt": NEWER,
        "LetterAuction": WORDS,
        "PublicGoodsGame": "its step never comes back once all players are out",
        "ReverseTicTacToe": NEWER,
        "ScenarioPlanning": JUDGED,
        "ScorableGames": "files that it reads are missing in the package (games_descriptions)",
        "SpellingBee": WORDS,
        "UsedCar": "its code is missing in the package",
        "UsedCarNegotiation": "files that it reads are missing in the package (instructions)",
        "WordChains": WORDS,
    }
)
"""Families of multi-player environments that cannot be played, as of `textarena` 0.7.4, and why."""
REFUSED_ALONE: Mapping[str, str] = MappingProxyType(
    {
        "GuessWho": ANSWERED,
        "Hangman": WORDS,
        "Klondike": NEWER,
        "TwentyQuestions": ANSWERED,
        "UltimateTexasHoldem": NEWER,
        "WordLadder": WORDS,
        "WordSearch": WORDS,
        "Wordle": WORDS,
    }
)
"""The same for single-player environments."""
OPEN_HANDS: Mapping[str, str] = MappingProxyType(
    {"Stratego": "it tells both players where each one's pieces are, with their ranks, so nothing is hidden in it"}
)
"""Families that reveal what their rules keep secret. An audit of them says nothing about hidden information."""


def is_arena(name: str) -> bool:
    """Whether a scenario name is that of a TextArena environment."""
    return name.startswith(PREFIX)


def family(environment: str) -> str:
    """The part of an environment's id before the version."""
    return environment.split("-v", 1)[0]


def check_refused(name: str) -> None:
    """`ScenarioError`: an environment of this name cannot be played; the error says why."""
    kind = family(name.removeprefix(PREFIX))
    if (why := refused(kind)) is not None:
        raise ScenarioError(
            f"{PREFIX}{kind} cannot be played: {why}. Choose another environment: docs/how-to/textarena.md lists them"
        )


def refused(kind: str) -> str | None:
    """Why a family cannot be played here, None if it can."""
    why = REFUSED.get(kind) or REFUSED_ALONE.get(kind)
    return None if why == NEWER and sys.version_info >= (3, 12) else why


def environment_id(name: str, known: Collection[str]) -> str:
    """The id that a name stands for. The version may be left out; wrappers are not accepted. `ScenarioNotFound` names
    the most similar environments."""
    short = name.removeprefix(PREFIX).removesuffix(RAW)
    for each in (short, short + VERSION):
        if each + RAW in known:
            return each
    plain = [id.removesuffix(RAW) for id in known if id.endswith(RAW) and not refused(family(id))]
    folded = {id.casefold(): id for id in plain} | {family(id).casefold(): id for id in reversed(plain)}
    like = get_close_matches(short.casefold(), folded, NEAR, 0.5)
    near = list(dict.fromkeys(folded[each] for each in like)) or sorted({family(id) for id in plain})[:NEAR]
    error = ScenarioNotFound(name, near)
    some = ", ".join(PREFIX + each for each in near)
    error.args = (f"no environment {name!r}; there are, for example: {some}; `agentcho ls textarena` lists all",)
    raise error
