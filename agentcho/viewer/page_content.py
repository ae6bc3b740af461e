"""The content of a page: a run, or the runs of a folder, game by game and attempt by attempt, and results over all
runs.

With `eyes` only what one agent may know of it. Independent of HTML and HTTP; `talk` finds what reached whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.errors import AudienceError, ConfigError, RecordNotFound
from agentcho.records.names import INFO
from agentcho.records.record import GameOver, SavedRun, find, folders
from agentcho.records.transcript import TranscriptEntry, by_attempt
from agentcho.viewer.compact_lists import Json
from agentcho.viewer.costs import GameCosts, game_costs, summed
from agentcho.viewer.figures import UNNAMED, PageFigures
from agentcho.viewer.reader_view import readable, reader_view
from agentcho.viewer.talk import agents_of, talk

FORMAT = "agentcho-view/1"
TOLD = ("running", "done")
"""The statuses of a run that a reader is shown. How it failed may reveal what others did."""
DEEP = 2
"""How many levels below a folder records are searched: a sweep has them in the folders of its cells."""


class GameAttempt(NamedTuple):
    """The location of an attempt at a game in a record."""

    run: Path
    game: int
    attempt: int


def no_costs() -> None:
    """The costs of a game that is in no sum."""


class ShownGame(NamedTuple):
    """One attempt at a game: its entry in the list of games, its data and its costs, made on request, and its location
    in a record, if any. If `basis` is equal, data and costs are."""

    head: Json
    data: Callable[[], Json]
    of: GameAttempt | None = None
    costs: Callable[[], GameCosts | None] = no_costs
    basis: tuple[Any, ...] = ()


class PageContent(NamedTuple):
    """The content of a page. `head` is what is known before any game is read."""

    head: Json
    talks: tuple[ShownGame, ...]

    def heads(self) -> Json:
        """The head, with those of all games, and what the games of each group cost together."""
        return self.head | {"talks": [talk.head for talk in self.talks], "costs": self._costs()}

    def _costs(self) -> list[Json]:
        """The sums of the groups that have several games with costs."""
        groups: dict[str, list[GameCosts]] = {}
        for game in self.talks:
            found = game.costs()
            if found is not None:
                groups.setdefault(game.head["group"], []).append(found)
        return [
            {"group": group, "games": len(games), "rows": summed(games)}
            for group, games in groups.items()
            if len(games) > 1
        ]


class PageSelection(NamedTuple):
    """Which part of a run is shown: the eyes of an agent (None for everything), and one game (None for all)."""

    eyes: str | None = None
    game: int | None = None


EVERYTHING = PageSelection()


def target(named: str, out: Path) -> list[SavedRun]:
    """The run with that path, id, or beginning of an id; or all runs in a folder, as written by `agentcho compare
    --out` and `agentcho sweep --out`, in the order of their paths. Raises `RecordNotFound` if there is none."""
    folder = folder_of_runs(named)
    if folder is None:
        return [find(named, out)]
    found = records_in(folder)
    if not found:
        raise RecordNotFound(named, folder, remedy="that folder has no runs; `agentcho run SCENARIO` records one")
    return [SavedRun(path) for path in found]


class NamedRuns:
    """A run, or the runs of a folder, of which there may be more each time. Raises what `target` raises."""

    def __init__(self, named: str, out: Path) -> None:
        self._began = [run.path for run in target(named, out)]
        self.folder = folder_of_runs(named)

    @property
    def name(self) -> str:
        """The name of the folder; empty for a single run."""
        return "" if self.folder is None else self.folder.resolve().name

    def paths(self) -> list[Path]:
        """The records that exist so far."""
        return self._began if self.folder is None else records_in(self.folder)

    def runs(self) -> list[SavedRun]:
        """The runs that exist so far."""
        return [SavedRun(path) for path in self.paths()]


def folder_of_runs(named: str) -> Path | None:
    """The folder with that path if it may contain several runs, or None if it is a run's, or not a folder."""
    folder = Path(named)
    return folder if folder.is_dir() and not (folder / INFO).is_file() else None


def records_in(folder: Path, deep: int = DEEP) -> list[Path]:
    """The records in a folder and its subfolders, `deep` levels down."""
    found = folders(folder)
    for each in sorted(path for path in folder.glob("*") if path.is_dir() and path not in found) if deep else ():
        found += records_in(each, deep - 1)
    return found


def page_content(
    runs: Iterable[SavedRun], chosen: PageSelection = EVERYTHING, live: bool = False, figures: PageFigures | None = None
) -> PageContent:
    """The content of a page for these runs; `live`: more may come; `figures`: results over all of them. Raises
    `RecordBroken` for an invalid line, `ConfigError` if there is no such game, and `AudienceError` if no agent has that
    name."""
    names = UNNAMED if figures is None else figures.names
    order = {folder: place for place, folder in enumerate(names)}
    runs = sorted(runs, key=lambda run: order.get(run.path.parent.resolve(), len(order)))
    if chosen.eyes is not None and not live:
        _check(runs, chosen.eyes)
    groups = _groups(runs, names, chosen.eyes)
    heads: list[Json] = [{"group": group} for group in groups]
    if chosen.eyes is None:
        heads = [head | {"run": number} for number, head in enumerate(heads)]
    found = [talk for run, head in zip(runs, heads, strict=True) for talk in _talks(run, chosen, head)]
    if not found and chosen.game is not None:
        raise ConfigError(f"there is no game {chosen.game} in {', '.join(run.info.id for run in runs)}")
    return PageContent(page_head(runs, figures, chosen.eyes), tuple(found))


def figures_page(figures: PageFigures) -> PageContent:
    """The content of a page for results whose runs are not available."""
    head: Json = {"format": FORMAT, "title": figures.scenario, "run": figures.kind, "status": "", "started": ""}
    return PageContent(head | {"facts": [], "eyes": None, "figures": figures.json()}, ())


def _check(runs: Iterable[SavedRun], reader: str) -> None:
    """Raise `AudienceError` if no agent has that name."""
    names = {name for run in runs for name in (*run.info.cast, *agents_of(run.entries()))}
    if reader not in names:
        raise AudienceError(f"no agent named {reader!r}", names)


def _groups(runs: Sequence[SavedRun], names: Mapping[Path, str], reader: str | None) -> list[str]:
    """The heading of each run's games among those of other runs: the name of its folder. With a reader it is a number,
    because a folder's name reveals the options of its games."""
    if len(runs) < 2:
        return ["" for _ in runs]
    inside = [run.path.parent.resolve() for run in runs]
    if reader is not None:
        numbers = {folder: number for number, folder in enumerate(dict.fromkeys(inside), start=1)}
        return [f"part {numbers[folder]}" for folder in inside]
    called = [names.get(folder, folder.name) for folder in inside]
    return [
        name if inside.count(folder) == 1 else f"{name}/{run.path.name}"
        for name, folder, run in zip(called, inside, runs, strict=True)
    ]


def page_head(runs: Sequence[SavedRun], figures: PageFigures | None, reader: str | None) -> Json:
    """What is known of all these runs before any game is read; for a reader, next to nothing."""
    run = runs[0]
    head: Json = {"format": FORMAT, "title": run.info.scenario, "run": "", "eyes": reader, "facts": []}
    if reader is not None:
        status = _status(runs[:1])
        return head | {"status": status if status in TOLD else "", "started": ""}
    known = [_facts(each) for each in runs]
    facts = {name: value for name, value in known[0].items() if all(each.get(name) == value for each in known)}
    several = {"mode": "several"} if any(each["mode"] != known[0]["mode"] for each in known) else {}
    each = [(run.info.id, run.status, list(facts.items())) for run, facts in zip(runs, known, strict=True)]
    return (
        head
        | ({"runs": each} if len(runs) > 1 else {})
        | {
            "run": run.info.id if len(runs) == 1 else run.path.parent.parent.name if figures is None else figures.kind,
            "started": run.info.started,
            "status": _status(runs),
            "ended": run.info.ended,
            "facts": [[name, value] for name, value in (facts | several).items() if value],
            "figures": None if figures is None else figures.json(),
        }
    )


def _facts(run: SavedRun) -> dict[str, str | None]:
    config = run.info.config
    return {
        "model": config.model,
        "mode": config.mode,
        "leakage": config.leakage if config.mode == "choreographed" else None,
        "seed": str(config.seed),
        "games": str(len(config.numbers)),
        **{f"option {name}": str(value) for name, value in run.info.options.items()},
    }


def _status(runs: Iterable[SavedRun]) -> str:
    """The status of the run that is furthest from its end."""
    order = ("running", "died", "failed", "interrupted", "done")
    return min((run.status for run in runs), key=order.index)


def _talks(run: SavedRun, chosen: PageSelection, head: Json) -> Iterator[ShownGame]:
    finished = run.finished()
    for game, entries in run.attempts().items():
        if chosen.game not in (None, game):
            continue
        attempts = by_attempt(entries)
        for said in attempts:
            title = f"game {game}" if said is attempts[-1] else f"game {game}, attempt {said[0].attempt}"
            over = finished.get(game) if said is attempts[-1] else None
            shown = _talk(run, said, head | {"title": title}, over=over, reader=chosen.eyes)
            counts = chosen.eyes is None and said is attempts[-1]
            yield shown._replace(
                of=GameAttempt(run.path, game, said[0].attempt if said else 1),
                costs=cache(partial(game_costs, said)) if counts else no_costs,
                basis=(said, run.info.cast, run.info.models, counts),
            )


def _talk(
    run: SavedRun, said: list[TranscriptEntry], head: Json, *, over: GameOver | None, reader: str | None
) -> ShownGame:
    cast = run.info.cast
    if reader is not None:
        return ShownGame(head | {"messages": len(readable(said, reader))}, partial(reader_view, said, reader, cast))
    return ShownGame(head | {"messages": len(said)} | _ending(over), partial(talk, said, cast, run.info.models))


def _ending(over: GameOver | None) -> Json:
    if over is None:
        return {}
    return {name: _plain(value) for name, value in over._asdict().items() if name not in ("game", "traceback")}


def _plain(value: Any) -> Any:
    """A value in which numbers that JSON does not have are strings."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
