"""Runs a reproduction of the paper's tables from its request to its result: rows are played, adapters trained, and
workflows timed, phase by phase. Work of earlier commands is not repeated.

`ExtraMissing` if the libraries of `agentcho[lab]` are not installed. Independent of the command line and the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agentcho.errors import ConfigError, ExtraMissing, ModelError, RecordBroken, TaskError, TuneError
from agentcho.events import Counting
from agentcho.extras import require
from agentcho.games.play.turn import Forced
from agentcho.games.runs.runtime import tasks_of, teach_recorded_words
from agentcho.lab.collect import Games, Playing, adapted, check_played, collected, completed, over
from agentcho.lab.compare.compare import forced_words, judged_texts
from agentcho.lab.compare.comparison import Preference
from agentcho.lab.compare.judge import JudgePort, TextPair, prefer
from agentcho.lab.paper import loaders, times
from agentcho.lab.paper.found import HeldOut, LoadedFound, PaperFound, SetFound, TableFound, TimesFound
from agentcho.lab.paper.modules import modules
from agentcho.lab.paper.phases import Phases, Spent
from agentcho.lab.paper.rows import Rows, World, column_of, digest
from agentcho.lab.paper.sets import PUBLISHED, Data, Sets, texts
from agentcho.lab.paper.tables import NAMED, SETS, TABLES, Name, Row, Table, table_named
from agentcho.lab.paper.tabulated import Played, tabulated
from agentcho.protocol.progress import counted
from agentcho.records.environment import machine_info, source_digests, versions
from agentcho.records.files import replace_whole, write_errors
from agentcho.records.frozen import Frozen
from agentcho.records.trace import Workflow
from agentcho.tasks import TaskSet

require("to compare and to measure", "lab")
F = TypeVar("F", bound=Frozen)
QUICK = "needs training: left out by --quick"
LEFT = "left over by --budget: the same command goes on"
FAKE = "the fake engine has no weights to train and no times"
TIMED: Mapping[str, tuple[Name, str]] = {
    "multi-qa": ("1", "baseline, serial"),
    "branch-solve-merge": ("2", "baseline, serial"),
    "prisoners-dilemma": ("3", "free, baseline"),
    "tree-of-thoughts": ("4", "ToT, baseline"),
    "debate": ("4", "MADiter, baseline"),
    "parallel-debate": ("4", "MADpar, baseline"),
    NAMED: ("4", "MADpar with names, baseline"),
}
"""The row whose games provide the texts on which a workflow is timed."""


class PaperRequest(NamedTuple):
    """The request: tables by name, games per row, `quick`: without training, tasks. `command` repeats it."""

    tables: tuple[Name, ...]
    games: int
    quick: bool
    data: Data
    sets: Mapping[str, Sets]
    command: str


@dataclass
class Reproduction:
    """The state of one reproduction."""

    world: World
    asked: PaperRequest
    phases: Phases
    judge: JudgePort | None = None
    _played: dict[tuple[Name, str], Played] = field(default_factory=dict)
    _why: dict[tuple[Name, str], str] = field(default_factory=dict)
    _forced: dict[tuple[Name, str], dict[int, Forced]] = field(default_factory=dict)

    @property
    def rows(self) -> Rows:
        """All rows."""
        return Rows(self.world, self.asked.games, self.asked.data, self.asked.sets)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The requested tables of scores."""
        return tuple(table for table in TABLES if table.name in self.asked.tables)

    def check(self) -> None:
        """`TaskError`, `ExtraMissing`: tasks cannot be obtained, or are too few. `ConfigError`: a row has other tasks
        than its reference. Plays nothing."""
        trains = not (self.asked.quick or self.world.fake)
        for table in self.tables:
            for row in table.rows:
                if trains or row.adapter == "none":
                    self._check_same_tasks(table, row)
        asked = [row for table in self.tables for row in table.rows]
        timed = [table_named(name).row(label) for name, label in TIMED.values()] if "5" in self.asked.tables else []
        for row in (*asked, *timed):
            tasks_of(self.rows.scenario(row), self.rows.config(row))
            if row.adapter != "none" and trains:
                require("to train adapters", "tune", "lab")

    def _check_same_tasks(self, table: Table, row: Row) -> None:
        """`ConfigError`: the row has other tasks than its reference."""
        if row.against is None:
            return
        reference = table.row(row.against)
        own, other = (self.rows.config(each).tasks for each in (row, reference))
        if own != other:
            raise ConfigError(
                f"{_called(table)}: {row.label!r} would play {own}, but is compared with {row.against!r}, which plays "
                f"{other}; give {row.scenario} and {reference.scenario} the same --tasks"
            )

    def run(self) -> PaperFound:
        """Do all remaining work until the budget is used up, and return what is known. `Interrupted`: Ctrl-C; finished
        work is kept."""
        for table in self.tables:
            for row in table.rows:
                if row.adapter == "none":
                    self._one(table, row, None)
        for table in self.tables:
            for row in table.rows:
                if row.adapter != "none":
                    self._trained(table, row)
        found = tuple(map(self._table, self.tables))
        timed = tuple(self._times())
        config, asked = self.world.config, self.asked
        sampled: dict[str, Any] = config.model_dump(include={"seed", "temperature", "max_tokens"})
        return PaperFound(
            command=asked.command,
            quick=asked.quick,
            games=asked.games,
            data=asked.data,
            model=self._fingerprint(),
            machine=machine_info() | versions() | source_digests(),
            modules=modules(),
            judge={} if self.judge is None else self.judge.fingerprint,
            tables=found,
            times=timed,
            sets=self._sets(),
            phases=self.phases.found(),
            left=tuple(self.phases.left),
            top_p=self.world.top_p,
            **sampled,
        ).signed()

    def _fingerprint(self) -> dict[str, str]:
        first = TABLES[0].rows[0]
        return dict(self.world.open(self.rows.scenario(first), self.rows.config(first)).engine.fingerprint)

    # -- rows

    def _one(self, table: Table, row: Row, adapter: Path | None, games: int | None = None) -> None:
        """Play a row's games, or read them."""
        column = column_of(row, adapter)
        playing = self.rows.playing(row, column, games)
        folder, reference = self.rows.folder(row, column, playing), self._reference(table, row)
        if row.against is not None and reference is None:
            self._why[table.name, row.label] = LEFT
            return
        forced = {} if reference is None else self._forced.get(reference, {})
        with suppress(Spent):
            found = self._games(
                phase=f"{_called(table)}: {row.label}", playing=playing, adapter=adapter, folder=folder, forced=forced
            )
            self._keep(table, row, playing, found)
            return
        self._why[table.name, row.label] = LEFT

    def _reference(self, table: Table, row: Row) -> tuple[Name, str] | None:
        """The reference of the row, once that is played."""
        key = (table.name, row.against or "")
        return key if key in self._played else None

    def _games(
        self, phase: str, playing: Playing, adapter: Path | None, folder: Path, forced: Mapping[int, Forced]
    ) -> Games:
        count = playing.config.games
        check_played(playing, folder)
        if len(there := over(folder, count) if folder.is_dir() else frozenset()) == count:
            return collected(folder)
        own = None if adapter is None else str(adapter)
        with adapted(playing.engine, own) as engine, self.phases.begin(phase):
            counting = Counting(self.world.tell, count, len(there))
            counting.what = f"games ({phase})"
            return completed(playing._replace(engine=engine), folder, forced, counting)

    def _keep(self, table: Table, row: Row, playing: Playing, found: Games) -> None:
        """Keep what is needed later of a row's games: scores, texts for timing, texts to force, texts to judge."""
        count = playing.config.games
        scenario = playing.scenario
        key = (table.name, row.label)
        ended = {n: found.finished[n] for n in range(count) if found.finished[n].outcome is not None}
        scores = {
            n: {name: each.score[name] for name in table.scores if name in each.score} for n, each in ended.items()
        }
        words = [found.workflows[n].whole for n in list(ended)[: self.effort.problems]] if row.against is None else []
        tasks = tasks_of(scenario, playing.config)
        self._played[key] = Played(
            scores=scores,
            games=count,
            without=count - len(ended),
            tasks=playing.config.tasks,
            digest=None if tasks is None else tasks.digest,
            words=tuple(words),
            texts=judged_texts(scenario, found, count) if self.judge is not None else {},
        )
        if row.against is None:
            self._forced[key] = forced_words(scenario, found)
            teach_recorded_words(playing.engine, (entry for said in found.said.values() for entry in said))

    def _trained(self, table: Table, row: Row) -> None:
        """Train the adapter of a row, and play the row."""
        key = (table.name, row.label)
        if self.asked.quick or self.world.fake:
            self._why[key] = QUICK if self.asked.quick else FAKE
            return
        try:
            lesson = self.rows.lesson(table, row)
        except TaskError as error:
            self._why[key] = f"no tasks are left to train on: {error}"
            return
        try:
            if not lesson.done:
                with self.phases.begin(f"traces for {_called(table)}: {row.label}"):
                    lesson.sample(self.world.tell)
                with self.phases.begin(f"training for {_called(table)}: {row.label}"):
                    lesson.train(self.world.here, self.world.tell)
        except Spent:
            self._why[key] = LEFT
            return
        except (TuneError, ModelError) as error:
            self._why[key] = f"cannot be trained: {error}"
            return
        self._one(table, row, lesson.folder)
        if key in self._played:
            self._played[key] = self._played[key]._replace(held_out=self._held_out(row, lesson.held_out))

    def _held_out(self, row: Row, count: Callable[[Sequence[str]], HeldOut]) -> HeldOut:
        scenario, config = self.rows.scenario(row), self.rows.config(row)
        tasks = tasks_of(scenario, config)
        return count([] if tasks is None else texts(tasks, config.games * scenario.draws()))

    # -- tables

    def _table(self, table: Table) -> TableFound:
        played = {row.label: self._played.get((table.name, row.label)) for row in table.rows}
        why = {label: self._why.get((table.name, label), LEFT) for label in played}
        preferred = self._preferred(table, {label: each for label, each in played.items() if each is not None})
        return tabulated(table=table, played=played, why=why, preferred=preferred, seed=self.world.config.seed)

    def _preferred(self, table: Table, played: Mapping[str, Played]) -> dict[str, Preference]:
        """The judge's preferences between each row's texts and its reference's, asked in both orders."""
        found: dict[str, Preference] = {}
        for row in table.rows if self.judge is not None else ():
            if row.label not in played or row.against is None or row.against not in played:
                continue
            first, other = played[row.against].texts, played[row.label].texts
            pairs = [TextPair(first[n], other[n]) for n in sorted(first.keys() & other.keys())]
            told = self._judged(f"judging {_called(table)}: {row.label}", pairs) if pairs else None
            found |= {} if told is None else {row.label: told}
        return found

    def _judged(self, phase: str, pairs: Sequence[TextPair]) -> Preference | None:
        judge = self.judge
        assert judge is not None
        asked = {"judge": judge.fingerprint, "pairs": pairs}
        told = partial(counted, self.world.tell, f"pairs judged ({phase})", len(pairs))
        return self._once(
            kind="judged", asked=asked, what=Preference, phase=phase, make=lambda: prefer(judge, pairs, told())
        )

    def _once(self, kind: str, asked: Mapping[str, Any], what: type[F], phase: str, make: Callable[[], F]) -> F | None:
        """The result of a phase: read from a file if an earlier command made it, else made now; None if the budget is
        used up."""
        file = self.world.folder / kind / f"{digest(asked)}.json"
        if file.exists():
            try:
                return what.model_validate_json(file.read_bytes())
            except ValueError:
                why = "is not what `agentcho paper` has kept of this"
                raise RecordBroken(f"{file}:1", why, "delete it to make it again") from None
        with suppress(Spent):
            with self.phases.begin(phase):
                found = make()
            with write_errors(file):
                file.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(file, found.model_dump_json(indent=1) + "\n")
            return found
        return None

    # -- tasks

    def _sets(self) -> tuple[SetFound, ...]:
        return tuple(map(self._set, self.asked.sets)) if SETS in self.asked.tables else ()

    def _set(self, name: str) -> SetFound:
        table, row = next((table, row) for table in TABLES for row in table.rows if row.scenario == name)
        tasks, two = tasks_of(self.rows.scenario(row), self.rows.config(row)), self.asked.sets[name]
        assert tasks is not None
        return SetFound(
            scenario=name,
            compared=two.compared,
            trained=two.trained,
            draws=self.rows.scenario(row).draws(),
            digest=tasks.digest,
            loaded=self._loaded(table, row, tasks) if self.asked.data == "generators" else None,
        )

    @property
    def tried(self) -> int:
        """The number of games of a workflow on which a loader is tried."""
        return min(self.asked.games, loaders.FEW if self.asked.quick else loaders.SOME)

    def _loaded(self, table: Table, row: Row, tasks: TaskSet) -> LoadedFound:
        """The first games of a row, compared with the same through the loader of the paper's set for it."""
        games = self.tried
        spec = loaders.formed(row.scenario, tasks, games * self.rows.scenario(row).draws(), self.world.folder / "tasks")
        loader = PUBLISHED[row.scenario].partition(":")[0]
        try:
            both = [
                self._first(row, games, f"tasks: {row.scenario} {how}", given)
                for how, given in (("as it is", None), (f"through {loader}", spec))
            ]
        except ExtraMissing as error:
            return LoadedFound(loader=loader, left_out=str(error))
        except Spent:
            return LoadedFound(loader=loader, left_out=LEFT)
        return loaders.compared(loader, table.scores[0], games, *both)

    def _first(self, row: Row, games: int, phase: str, tasks: str | None) -> Games:
        """The first games of a row, on its own tasks or others. `Spent`."""
        column = column_of(row, None)
        tasks_of(self.rows.scenario(row), self.rows.config(row, games, tasks))
        playing = self.rows.playing(row, column, games, tasks)
        return self._games(
            phase=phase, playing=playing, adapter=None, folder=self.rows.folder(row, column, playing), forced={}
        )

    # -- times

    @property
    def effort(self) -> times.Effort:
        """The amount of timing."""
        return times.QUICK if self.asked.quick else times.Effort()

    def _times(self) -> list[TimesFound]:
        """Table 5 and Figure 4, if requested."""
        effort = self.effort
        seed = self.world.config.seed
        found = list[TimesFound]()
        if "5" in self.asked.tables:
            words = {} if self.world.fake else self._words()
            asked = {name: (len(each), self._played[TIMED[name]].digest) for name, each in words.items()}
            missing = LEFT if len(words) < len(TIMED) else None
            make = partial(times.by_workflow, self.world.here, words, self.world.tell)
            found.append(self._timed("5", asked, make, missing))
        if "f4" in self.asked.tables:
            found.append(self._timed("f4", {}, partial(times.sweep, self.world.here, effort, seed, self.world.tell)))
        return found

    def _timed(
        self, name: Name, words: Mapping[str, Any], make: Callable[[], TimesFound], missing: str | None = None
    ) -> TimesFound:
        title = {"5": "Table 5: times on forced words", "f4": "Figure 4: trees of thoughts, end to end"}[name]
        if why := FAKE if self.world.fake else missing:
            return TimesFound(name=name, title=title, left_out=why)
        config = self.world.config.model_dump(include={"seed", "temperature", "max_tokens"})
        config |= {"top_p": self.world.top_p}
        asked: dict[str, Any] = {"name": name, "words": words, "effort": self.effort, "model": self._fingerprint()}
        asked |= {"machine": machine_info()["machine"], "modules": modules(), **versions()}
        made = self._once(
            kind="times", asked=asked | config, what=TimesFound, phase=title.partition(":")[0].lower(), make=make
        )
        return made or TimesFound(name=name, title=title, left_out=LEFT)

    def _words(self) -> dict[str, Sequence[Workflow]]:
        """The texts of played games, by workflow. Games that no other table has played are played now; those that the
        budget left over are missing."""
        for name, label in TIMED.values():
            if (name, label) not in self._played:
                table, games = table_named(name), min(self.asked.games, self.effort.problems)
                self._one(table, table.row(label), None, games)
        return {name: self._played[key].words for name, key in TIMED.items() if key in self._played}


def _called(table: Table) -> str:
    """The table's name in lower case, such as "table 1" or "figure 8"."""
    return table.title.partition(":")[0].lower()
