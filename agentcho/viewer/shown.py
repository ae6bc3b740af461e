"""What a page shows: a run, or the runs of several columns, game by game and attempt by attempt.

With `eyes` only what one agent may know of it. Does not know: HTML, HTTP, how what reached whom is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.errors import AudienceError, ConfigError, RecordNotFound
from agentcho.records.names import INFO
from agentcho.records.record import Over, SavedRun, find, folders
from agentcho.records.transcript import Entry, by_attempt
from agentcho.viewer.eyes import eyes, readable
from agentcho.viewer.talk import Json, agents_of, talk

FORMAT = "agentcho-view/1"


class Talk(NamedTuple):
    """One attempt at a game: what the list of games says of it, and its data, made when it is asked for."""

    head: Json
    data: Callable[[], Json]


class Shown(NamedTuple):
    """The whole of a page. `head` is what is known before any game is looked at."""

    head: Json
    talks: tuple[Talk, ...]

    def heads(self) -> Json:
        """The head, with those of all games."""
        return self.head | {"talks": [talk.head for talk in self.talks]}


class Chosen(NamedTuple):
    """What of a run is shown: the eyes of an agent (None: everything), and one game (None: all)."""

    eyes: str | None = None
    game: int | None = None


EVERYTHING = Chosen()


def target(named: str, out: Path) -> list[SavedRun]:
    """The run of that path, id, or beginning of an id; or all runs in a folder, as `agentcho compare --out` keeps them,
    in the order of their paths. `RecordNotFound`: there is none."""
    folder = Path(named)
    if folder.is_dir() and not (folder / INFO).is_file():
        inside = [
            path for each in (folder, *sorted(p for p in folder.iterdir() if p.is_dir())) for path in folders(each)
        ]
        if not inside:
            raise RecordNotFound(named, folder)
        return [SavedRun(path) for path in inside]
    return [find(named, out)]


def shown(runs: Iterable[SavedRun], chosen: Chosen = EVERYTHING, live: bool = False) -> Shown:
    """What a page shows of these runs; `live`: more may come. Raises `RecordBroken` where a line is none, `ConfigError`
    where there is no such game, and `AudienceError` where no agent has that name."""
    runs = list(runs)
    if chosen.eyes is not None and not live:
        _check(runs, chosen.eyes)
    found = [talk for run in runs for talk in _talks(run, chosen, _group(run, runs))]
    if not found and chosen.game is not None:
        raise ConfigError(f"no game {chosen.game} in {', '.join(run.info.id for run in runs)}")
    return Shown(_head(runs[0], runs, chosen.eyes), tuple(found))


def _check(runs: Iterable[SavedRun], reader: str) -> None:
    """`AudienceError`: no agent has that name."""
    names = {name for run in runs for name in (*run.info.cast, *agents_of(run.entries()))}
    if reader not in names:
        raise AudienceError(f"no agent named {reader!r}", names)


def _group(run: SavedRun, runs: list[SavedRun]) -> str:
    """What the games of a run are called among those of others: by the folder of its column."""
    if len(runs) == 1:
        return ""
    alone = sum(each.path.parent == run.path.parent for each in runs) == 1
    return run.path.parent.name if alone else f"{run.path.parent.name}/{run.path.name}"


def _head(run: SavedRun, runs: list[SavedRun], reader: str | None) -> Json:
    info = run.info
    head: Json = {"format": FORMAT, "title": info.scenario, "run": info.id, "eyes": reader, "started": info.started}
    if reader is not None:
        return head | {"run": "", "facts": [], "status": "done" if run.status == "done" else "", "started": ""}
    config = info.config
    if len(runs) > 1:
        head |= {"run": run.path.parent.parent.name}
    facts = {
        "model": config.model,
        "mode": config.mode if len(runs) == 1 else "several",
        "leakage": config.leakage if len(runs) == 1 and config.mode == "choreographed" else None,
        "seed": str(config.seed),
        "games": str(len(config.numbers)),
        **{f"option {name}": str(value) for name, value in info.options.items()},
    }
    return head | {
        "status": _status(runs),
        "ended": info.ended,
        "facts": [[name, value] for name, value in facts.items() if value],
    }


def _status(runs: Iterable[SavedRun]) -> str:
    """That of the run which is furthest from its end."""
    order = ("running", "died", "failed", "interrupted", "done")
    return min((run.status for run in runs), key=order.index)


def _talks(run: SavedRun, chosen: Chosen, group: str) -> Iterator[Talk]:
    finished = run.finished()
    for game, entries in run.attempts().items():
        if chosen.game not in (None, game):
            continue
        attempts = by_attempt(entries)
        for said in attempts:
            title = f"game {game}" if said is attempts[-1] else f"game {game}, attempt {said[0].attempt}"
            over = finished.get(game) if said is attempts[-1] else None
            yield _talk(run, said, {"title": title, "group": group}, over, chosen.eyes)


def _talk(run: SavedRun, said: list[Entry], head: Json, over: Over | None, reader: str | None) -> Talk:
    cast = run.info.cast
    if reader is not None:
        return Talk(head | {"messages": len(readable(said, reader))}, partial(eyes, said, reader, cast))
    return Talk(head | {"messages": len(said)} | _ending(over), partial(talk, said, cast, run.info.models))


def _ending(over: Over | None) -> Json:
    if over is None:
        return {}
    return {name: _plain(value) for name, value in over._asdict().items() if name not in ("game", "traceback")}


def _plain(value: Any) -> Any:
    """A value in which every number is one that JSON has."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
