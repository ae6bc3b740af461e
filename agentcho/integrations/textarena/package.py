"""Wraps TextArena's package: which environments it has, how to make one, and what it tells whom. The only module that
imports it.

TextArena's environments use the global `random`, print, and do not record the recipients of observations. So its
modules get replacements for `random` and `print`, which serve the environment that is being called in the current
thread and otherwise behave as usual, and `State.add_observation` notes what passes through it for that environment.
Nothing outside TextArena's modules is changed. Environments that run concurrently do not affect each other, even if one
hangs. Independent of agents and games.
"""

from __future__ import annotations

import inspect
import random
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from agentcho.errors import ScenarioError
from agentcho.extras import require
from agentcho.integrations.textarena.environment import (
    EVERYBODY,
    NOBODY,
    GameEnding,
    MoveResult,
    Observation,
    PlayerTurn,
)
from agentcho.integrations.textarena.names import PREFIX, RAW, environment_id


class _Here(threading.local):
    """The state that TextArena's code uses in the current thread. None: no environment is being called in it."""

    random: random.Random | None = None
    told: list[Observation] | None = None


HERE = _Here()


class _Random:
    """The module `random` as TextArena's modules see it."""

    def __getattr__(self, name: str) -> Any:
        own = HERE.random
        return getattr(random if own is None or not hasattr(own, name) else own, name)


def _print(*words: Any, **how: Any) -> None:
    if HERE.told is None:
        print(*words, **how)


class Parameter(NamedTuple):
    """An option of an environment. `default` is that of the named variant."""

    name: str
    annotation: Any
    default: Any


class EnvironmentKind(NamedTuple):
    """An environment that can be made: its id without wrappers, its class, its options."""

    id: str
    cls: type
    parameters: tuple[Parameter, ...]


@cache
def _library() -> Any:
    """The package, with `add_observation` replaced. `ExtraMissing`: it is not installed."""
    require("to play TextArena's environments", "textarena")
    import textarena

    plain = textarena.State.add_observation

    def add_observation(self: Any, message: Any, observation_type: Any, from_id: int = -1, to_id: int = -1) -> None:
        plain(self, message, observation_type, from_id, to_id)
        if HERE.told is not None:
            HERE.told.append(_observed(from_id, to_id, self.logs[-1][1], observation_type))

    textarena.State.add_observation = add_observation
    return textarena


def _adopt() -> None:
    """Put the replacements of `random` and `print` into all modules of TextArena that are imported so far."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "textarena":
            names = vars(module)
            if names.get("random") is random:
                names["random"] = _Random()
            names.setdefault("print", _print)


def kind_of(name: str) -> EnvironmentKind:
    """The environment of a name. `ScenarioNotFound`: there is none. `ScenarioError`: its code cannot be imported."""
    library = _library()
    registry = library.envs.registration.ENV_REGISTRY
    id = environment_id(name, registry.keys())
    spec = registry[id + RAW]
    try:
        module, _, cls = spec.entry_point.partition(":")
        found = getattr(__import__(module, fromlist=[cls]), cls)
    except Exception as error:
        raise ScenarioError(
            f"{PREFIX}{id} cannot be played: its code cannot be imported ({type(error).__name__})"
        ) from error
    _adopt()
    return EnvironmentKind(id, found, tuple(_parameters(found, spec.kwargs)))


def _parameters(cls: type, given: Mapping[str, Any]) -> list[Parameter]:
    """The options of an environment that have a default that can be written down, with the defaults of its variant."""
    made: Any = cls
    try:
        hints = get_type_hints(made.__init__)
    except Exception:
        hints = {}
    found = []
    for name, parameter in inspect.signature(made).parameters.items():
        default = given.get(name, parameter.default)
        if default is not parameter.empty and not isinstance(default, type):
            found.append(Parameter(name, hints.get(name, Any), default))
    return found


def _observed(author: Any, to: int, text: Any, kind: Any) -> Observation:
    """Convert an observation. Some environments use something other than a number for the game's own voice."""
    return Observation(author if type(author) is int else NOBODY, to, getattr(kind, "name", str(kind)), str(text))


class PlayedEnvironment:
    """One game of an environment; see `environment.Environment`. `options` are those that differ from the variant's."""

    def __init__(self, kind: EnvironmentKind, options: Mapping[str, Any]) -> None:
        self._kind, self._options = kind, options
        self._random = random.Random(0)
        self._told: list[Observation] = []
        self._unseen: dict[int, list[Observation]] = {}
        self._environment: Any = None

    def reset(self, players: int, seed: int) -> list[Observation]:
        """Make the environment and start the game."""
        self._random.seed(seed)
        self._unseen = {player: [] for player in range(players)}
        with self._called():
            self._environment = _library().make(self._kind.id + RAW, **self._options)
            _adopt()
            self._environment.reset(num_players=players, seed=seed)
        self._check(players)
        return self._take()

    def _check(self, players: int) -> None:
        """ValueError: the class of its state is for another number of players, although `reset` accepted it."""
        library = _library()
        only = {library.SinglePlayerState: 1, library.TwoPlayerState: 2}
        for kind, many in only.items():
            if isinstance(self._environment.state, kind) and players != many:
                raise ValueError(f"its state is for {many} players")

    def turn(self) -> PlayerTurn:
        """Return the player to move. What that player sees now and nobody was told before is told to that player
        alone."""
        with self._called():
            player, seen = self._environment.get_observation()
        told, before = self._take(), self._unseen.get(player, [])
        for author, text, kind in seen:
            each = _observed(author, player, text, kind)
            alike = next((one for one in before if one._replace(to=player) == each), None)
            if alike is None:
                told.append(each)
            else:
                before.remove(alike)
        before.clear()
        return PlayerTurn(int(player), told)

    def step(self, text: str) -> MoveResult:
        """Make a move."""
        with self._called():
            over, _ = self._environment.step(text)
        return MoveResult(bool(over), self._take())

    def close(self) -> GameEnding:
        """How it ended."""
        with self._called():
            rewards, players = self._environment.close()
        return GameEnding(rewards, players or {})

    @contextmanager
    def _called(self) -> Iterator[None]:
        """A context in which the environment's code runs."""
        HERE.random, HERE.told = self._random, self._told
        try:
            yield
        finally:
            HERE.random = HERE.told = None

    def _take(self) -> list[Observation]:
        """The observations since the last call."""
        told = list(self._told)
        self._told.clear()
        for each in told:
            for player in self._unseen if each.to == EVERYBODY else (each.to,):
                self._unseen.setdefault(player, []).append(each)
        return told
