"""Names of TextArena's environments: how they are written here, and which of them cannot be played, and why.

Does not know: TextArena itself, which is not imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from agentcho.errors import ScenarioError, ScenarioNotFound

PREFIX = "textarena:"
RAW = "-raw"
"""What the id of an environment ends with that tells each player what it is told and nothing twice."""
VERSION = "-v0"
NEAR = 6
"""So many names like the one that was given are told."""
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
"""Families of environments for several players that do not run, as `textarena` 0.7.4 has them."""
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
"""The same of those for one player."""
OPEN_HANDS: Mapping[str, str] = MappingProxyType(
    {"Stratego": "it tells both players where each one's pieces are, with their ranks, so nothing is hidden in it"}
)
"""Families that tell in the open what their rules keep secret: an audit of one says nothing of hidden information."""


def is_arena(name: str) -> bool:
    """Whether a scenario's name is that of an environment of TextArena."""
    return name.startswith(PREFIX)


def family(environment: str) -> str:
    """What comes before the version in an environment's id."""
    return environment.split("-v", 1)[0]


def check_refused(name: str) -> None:
    """`ScenarioError`: an environment of this name cannot be played, and why."""
    kind = family(name.removeprefix(PREFIX))
    if (why := refused(kind)) is not None:
        raise ScenarioError(
            f"{PREFIX}{kind} cannot be played: {why}. Choose another environment: docs/how-to/textarena.md lists them"
        )


def refused(kind: str) -> str | None:
    """Why a family cannot be played here; None: it can."""
    why = REFUSED.get(kind) or REFUSED_ALONE.get(kind)
    return None if why == NEWER and sys.version_info >= (3, 12) else why


def environment_id(name: str, known: Collection[str]) -> str:
    """The id that a name stands for: with its version or without, never with a wrapper. `ScenarioNotFound` names those
    that are most like it."""
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
