"""The record of a run: one folder with the request, every message, and every outcome.

    DIR/<id>/run.json          versions, digests, seed, options, cast; status last, replaced whole
    DIR/<id>/transcript.jsonl  one line per message, and lines of encodings that were made later, each appended whole
    DIR/<id>/heard.jsonl       every piece of a message, as it is generated, before any other code sees it
    DIR/<id>/calls.jsonl       a line before each call of a tool, and one after it; absent if there were no calls
    DIR/<id>/outcomes.jsonl    one line per finished game, appended whole
    DIR/<id>/typed.jsonl       the words of people who play agents, as they are given, before they are encoded
    DIR/<id>/writer.json       the process that writes the record, its host, since when; removed at the end

A record can be opened after a kill at any byte: if no process writes it any more, its status is "died". Independent of
how games are played, of engines and of the terminal.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError, WrapValidator

from agentcho.config import RECORDED, RunConfig
from agentcho.errors import CannotWrite, RecordBroken, RecordError, RecordNotFound, shown
from agentcho.message import AgentName
from agentcho.protocol.forward_costs import ForwardCosts, validated_costs
from agentcho.records import writer_lock
from agentcho.records.calls import CallLine, CallLines, begun_calls
from agentcho.records.environment import versions
from agentcho.records.files import LineFile, read_lines, replace_whole, write_errors
from agentcho.records.interrupted_messages import died
from agentcho.records.line_models import Count, TypedLine, read
from agentcho.records.models import RecordedModels
from agentcho.records.names import CALLS, HEARD, INFO, OUTCOMES, TRANSCRIPT, TYPED
from agentcho.records.trace import UNFINISHED, Workflow, exported
from agentcho.records.transcript import (
    AllSeals,
    EncodingsEntry,
    HeardLines,
    TranscriptEntry,
    by_attempt,
    read_transcript,
)
from agentcho.records.writer_lock import WriterIdentity, WriterLock

NO_FILE, LONGEST = re.compile(r"[^\w.-]+"), 60
"""Characters of a scenario's name that are replaced in a folder's name, and the most characters of it that are used."""
SECOND = len("20261128-070100")
"""The length of the part of a run's name that is its start time."""
DATED = re.compile(r"\d{8}-\d{6}-")
"""The beginning of a run's name, unless it was renamed."""
MOST_SPOKEN_FOR, OTHERS = 1000, "and others"
"""The most agents of one client, and of one society, that are named, and what stands for the rest: an unnamed agent
gets a new name with each new system message, and the file is rewritten for each name."""
FORMAT = 2
"""The number of the newest format that can be read."""
Status = Literal["running", "done", "interrupted", "failed"]
Points = Annotated[float, WrapValidator(lambda value, check: value if type(value) is int else check(value))]
"""A score: integers stay integers, however large."""


class Resumed(BaseModel):
    """A resumption of the run: its time, versions and sources."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    at: str
    versions: dict[str, str]
    sources: dict[str, str] = {}


class RunInfo(BaseModel):
    """The content of `run.json`. Times are ISO 8601 in UTC; `cast` is role by agent.

    `key` (hex) is random, for digests of the run's words in reports: these can then not be guessed, or compared with
    those of other runs. `tasks` is the digest of the task set, if there was one. `at_once` is the limit on concurrent
    games (None: as many as the store has room for), `most` the largest number that ran at once. `asked` is the scenario
    as it was named, or its file; `sources` are digests of its file and of those of agents that it casts by name;
    `resumed` lists the resumptions, `parts` the records from which it was merged. `clients`, for a society on a server,
    are the agents that each key spoke for; a key is named by the first digits of its digest. `engine` is the
    fingerprint of the run's own model, `engines` are those of the models beside it, by name. `costs`, for a run that
    speculates, are the measured costs of forwards by model name, the run's own as "default". Records of format 1 will
    always be readable; see `transcript`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["agentcho-run/1", "agentcho-run/2"] = "agentcho-run/2"
    id: str
    scenario: str
    options: dict[str, Any]
    config: RunConfig
    engine: dict[str, str]
    versions: dict[str, str]
    started: str
    ended: str | None = None
    status: Status = "running"
    cast: dict[AgentName, str] = {}
    key: str = ""
    tasks: str | None = None
    at_once: int | None = None
    most: int | None = None
    asked: str | None = None
    sources: dict[str, str] = {}
    resumed: tuple[Resumed, ...] = ()
    clients: dict[str, tuple[AgentName, ...]] = {}
    parts: tuple[str, ...] = ()
    engines: dict[str, dict[str, str]] = {}
    costs: dict[str, Annotated[ForwardCosts, AfterValidator(validated_costs)]] = {}

    @property
    def models(self) -> RecordedModels:
        """The run's models by name, and those of them that are behind APIs."""
        found: dict[str | None, dict[str, str]] = {None: self.engine}
        found.update(self.engines)
        return RecordedModels.of(found)


class GameOver(NamedTuple):
    """The end of a game, as an event of a run and as a line of its record. Time in seconds.

    If `outcome` is None, `ended` says which limit or error ended the game early.

    `error` (class and text) and `traceback` are those of an error, in full: the record holds every word, reports do
    not; `where` ("file:line") is the line of the user's code that it came through, if known. `raced`: the order of the
    messages depended on which of several decodes ended first, so that the same game may be played differently when its
    calls are scheduled differently. `departed`: the number of the attempt, if it departed from what was on record; what
    it said counts in no later attempt.
    """

    game: Count
    outcome: dict[str, Any] | None
    score: dict[str, Points]
    ended: str | None
    seconds: float
    error: str | None = None
    traceback: str | None = None
    raced: bool = False
    where: str | None = None
    departed: Count | None = None

    @property
    def failed(self) -> bool:
        """Whether an error ended it."""
        return (self.ended or "").startswith("error: ")


OVER = TypeAdapter(GameOver, config=ConfigDict(strict=True))
TYPING = TypeAdapter(TypedLine)


class RunRecord:
    """A record being written. As a context manager, it gets the status "failed" after an error, and "interrupted" after
    Ctrl-C or a cancellation. Each call returns when its line is with the kernel. `before`: what the information of a
    record that is continued must still be."""

    def __init__(self, path: Path, info: RunInfo, before: RunInfo | None = None) -> None:
        self.path, self.info = path, info
        self.most: int | None = None
        self._files = ExitStack()
        with ExitStack() as claimed:  # releases the claim if the record cannot be opened
            self._writer = claimed.enter_context(WriterLock(path / writer_lock.NAME))
            claimed.push(self._files)
            if before is not None and SavedRun(path).info != before:
                raise RecordError(f"{path} was continued by another process meanwhile; look at it, and resume it again")
            write_info(path, info)
            self._transcript = self._files.enter_context(LineFile(path / TRANSCRIPT))
            self._outcomes = self._files.enter_context(LineFile(path / OUTCOMES))
            self._calls = CallLines(path / CALLS)
            self._files.callback(self._calls.close)
            self._heard = HeardLines(path / HEARD)
            self._files.callback(self._heard.close)
            claimed.pop_all()
        self._seals = AllSeals()
        self._typed: LineFile | None = None

    @classmethod
    def create(
        cls,
        folder: Path,
        scenario: str,
        options: dict[str, Any],
        config: RunConfig,
        engine: dict[str, str],
        tasks: str | None = None,
        at_once: int | None = None,
        asked: str | None = None,
        sources: dict[str, str] | None = None,
        engines: dict[str, dict[str, str]] | None = None,
        costs: dict[str, ForwardCosts] | None = None,
    ) -> RunRecord:
        """Make `folder`/<id> and begin. The id is the time and the scenario, numbered if that exists."""
        now = datetime.now(UTC)
        path = new_folder(folder, scenario, now)
        info = RunInfo(
            id=path.name,
            scenario=scenario,
            options=options,
            config=config,
            engine=engine,
            versions=versions(),
            started=now.isoformat(timespec="seconds"),
            key=secrets.token_hex(16),
            tasks=tasks,
            at_once=at_once,
            asked=asked,
            sources=sources or {},
            engines=engines or {},
            costs=costs or {},
        )
        return cls(path, info)

    @classmethod
    def go_on(cls, run: SavedRun, sources: dict[str, str]) -> RunRecord:
        """Continue to write a recorded run; a torn last line is cut. Raises `RecordInUse` if another process writes it,
        and `RecordError` if another one has written it since it was read."""
        again = Resumed(at=datetime.now(UTC).isoformat(timespec="seconds"), versions=versions(), sources=sources)
        fresh = {"format": "agentcho-run/2", "status": "running", "ended": None, "resumed": (*run.info.resumed, again)}
        record = cls(run.path, run.info.model_copy(update=fresh), run.info)
        record.most = run.info.most
        return record

    def joined(self, agent: str, role: str) -> None:
        """Note a member of the cast; it is written when the run ends. Of a society on a server the first ones."""
        full = self.info.asked == "serve" and len(self.info.cast) >= MOST_SPOKEN_FOR
        name = OTHERS if full and agent not in self.info.cast else agent
        self.info = self.info.model_copy(update={"cast": self.info.cast | {name: role}})

    def spoke_for(self, key: str, agent: str) -> None:
        """Write at once which agent a client spoke for: an audit of a run in progress needs it."""
        before = self.info.clients.get(key, ())
        if agent not in before and OTHERS not in before:
            clients = self.info.clients | {key: (*before, agent if len(before) < MOST_SPOKEN_FOR else OTHERS)}
            self.info = self.info.model_copy(update={"clients": clients})
            write_info(self.path, self.info)

    def said(self, entry: TranscriptEntry) -> None:
        """Append a message that has ended, complete or not."""
        self._transcript.append(entry.to_json(self._seals.of(entry)))

    def called(self, line: CallLine) -> None:
        """Append a tool call, before it is made or once it has ended."""
        self._calls.write(line)

    def begun(self, entry: TranscriptEntry) -> None:
        """Add a message whose first token was generated; the next `flush` writes it."""
        self._heard.begun(entry, self._seals.of(entry))

    def heard(self, game: int, id: str, token: int | None, text: str) -> None:
        """Add a piece of a message that a step generated; the next `flush` writes it."""
        self._heard.said(game, id, token, text)

    def typed(self, game: int, id: str, text: str) -> None:
        """Append the words that a person has given for a message."""
        if self._typed is None:
            self._typed = self._files.enter_context(LineFile(self.path / TYPED))
        self._typed.append({"game": game, "id": id, "text": text})

    def flush(self) -> None:
        """Write what was generated. No other code may see it before this has returned."""
        self._heard.flush()

    def encoded(self, encodings: EncodingsEntry) -> None:
        """Append encodings that are on no message's line."""
        self._transcript.append(encodings.to_json(self._seals[encodings.game, encodings.attempt]))

    def wrote(self, lines: bytes) -> None:
        """Append lines of a game that is played in another process."""
        self._transcript.write(lines)

    def played(self, cast: Mapping[str, str], lines: bytes, finished: GameOver) -> None:
        """Append the end of a game played in another process: its cast (role by agent), its last lines, and how it
        ended."""
        self.info = self.info.model_copy(update={"cast": self.info.cast | dict(cast)})
        self.wrote(lines)
        self.over(finished)

    def over(self, finished: GameOver) -> None:
        """Append one finished game."""
        self._outcomes.append(finished._asdict())
        for game, attempt in [key for key in self._seals if key[0] == finished.game]:
            del self._seals[game, attempt]

    def close(self, status: Status) -> None:
        """Flush everything and write how the run ended. A second call is a no-op."""
        if self.info.status != "running":
            return
        try:
            self._files.close()
            ended = datetime.now(UTC).isoformat(timespec="seconds")
            over = self.info.model_copy(update={"status": status, "ended": ended, "most": self.most})
            write_info(self.path, over)
            self.info = over
        finally:
            self._writer.close()

    def __enter__(self) -> RunRecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close("done")
            return
        stopped = not issubclass(kind, Exception) or issubclass(kind, BrokenPipeError)
        with suppress(CannotWrite):  # the error that ended the run is more important
            self.close("interrupted" if stopped else "failed")


def free_names(what: str, now: datetime) -> Iterator[str]:
    """Names for a new folder, from the time and what is played, preferred one first."""
    name = f"{now:%Y%m%d-%H%M%S}-{NO_FILE.sub('-', what)[:LONGEST]}"
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def new_folder(folder: Path, scenario: str, now: datetime) -> Path:
    """Make an empty folder for a record in `folder`; its name is the run's id."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in free_names(scenario, now):
            with suppress(FileExistsError):
                (folder / name).mkdir()
                return folder / name
    raise AssertionError("there is always another name")


def write_info(path: Path, info: RunInfo) -> None:
    """Write `run.json` of a record atomically."""
    whole = json.dumps(info.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    replace_whole(path / INFO, whole.encode(errors="replace"))


class SavedRun:
    """A record on disk, finished or not. It reads files on each call, so a run in progress can be inspected."""

    def __init__(self, path: Path) -> None:
        self.path = path
        file = path / INFO
        try:
            self.info = RunInfo.model_validate_json(file.read_bytes(), context=RECORDED)
        except (FileNotFoundError, NotADirectoryError):
            raise RecordNotFound(path.name, path.parent) from None
        except ValidationError as error:
            _check_format(file)
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise RecordBroken(f"{file}:1", f"{place} {first['msg']}".strip()) from None

    @property
    def status(self) -> str:
        """How it ended; "running" while a process writes it, "died" if none does and no ending was written."""
        ended = self.info.status != "running" or writer_lock.alive(self.path / writer_lock.NAME)
        return self.info.status if ended else "died"

    @property
    def writer(self) -> WriterIdentity | None:
        """The process that writes it, or died writing it."""
        return writer_lock.read(self.path / writer_lock.NAME)

    def entries(self) -> list[TranscriptEntry]:
        """Every message of all games and all their attempts, in the order of their lines. Some are unfinished
        (`TranscriptEntry.ended`): their call was cancelled or failed, or, at the end, the process died meanwhile."""
        file, pieces = self.path / TRANSCRIPT, self.path / HEARD
        seals = AllSeals()
        entries = read_transcript(file, seals) if file.exists() else []
        return [*entries, *(died(pieces, entries, seals) if pieces.exists() else [])]

    def games(self) -> dict[int, list[TranscriptEntry]]:
        """The messages of the last attempt of each game; a game that ended without messages has an empty list. Code
        that replays these words skips unfinished messages (`TranscriptEntry.ended`): no call read them."""
        return {game: by_attempt(entries)[-1] for game, entries in self.attempts().items()}

    def attempts(self) -> dict[int, list[TranscriptEntry]]:
        """The messages by game, of every attempt at it."""
        found: dict[int, list[TranscriptEntry]] = {game: [] for game in sorted(self.finished())}
        for entry in self.entries():
            found.setdefault(entry.message.game, []).append(entry)
        return dict(sorted(found.items()))

    def begun_calls(self, every: bool = False) -> dict[int, frozenset[str]]:
        """The tool calls that were begun, by game, except those that may be made twice; with `every` all of them."""
        return begun_calls(self.path / CALLS, every)

    def kept(self) -> dict[int, list[TranscriptEntry]]:
        """The messages by game that a further attempt repeats: those of every attempt but the departed ones."""
        departed = self.departed()
        return {
            game: [entry for entry in entries if entry.attempt not in departed.get(game, ())]
            for game, entries in self.attempts().items()
        }

    def departed(self) -> dict[int, set[int]]:
        """The numbers of the attempts that departed from the record, by game."""
        found: dict[int, set[int]] = {}
        for over in self._ends():
            if over.departed is not None:
                found.setdefault(over.game, set()).add(over.departed)
        return found

    def begun(self) -> dict[int, int]:
        """How often each game has begun."""
        departed = self.departed()
        return {
            game: max((*(entry.attempt for entry in said), *departed.get(game, ())), default=0)
            for game, said in self.attempts().items()
        }

    def finished(self) -> dict[int, GameOver]:
        """The games that ended, by number."""
        return {over.game: over for over in self._ends()}

    def _ends(self) -> Iterator[GameOver]:
        """Every end of a game, in order; a game that was resumed may have several."""
        file = self.path / OUTCOMES
        for number, line in read_lines(file) if file.exists() else ():
            try:
                over = read(OVER, {name: line[name] for name in GameOver._fields if name in line})
            except ValueError as error:
                raise RecordBroken(f"{file}:{number}", f"not a valid line of a game ({error})") from None
            yield over

    def typed(self) -> dict[int, dict[str, str]]:
        """What people typed, by game and message, whether or not the message was completed."""
        file = self.path / TYPED
        found: dict[int, dict[str, str]] = {}
        for number, line in read_lines(file) if file.exists() else ():
            try:
                said = read(TYPING, line)
            except ValueError as error:
                raise RecordBroken(f"{file}:{number}", f"not a valid line of what a person typed ({error})") from None
            found.setdefault(said.game, {})[said.id] = said.text
        return found

    def export(self, only: Container[int] | None = None) -> list[Workflow]:
        """Every game, or `only` these, as a workflow of `agentcho-trace/1`, with its tokens and their tokenizer's
        digest. An unfinished game is included up to its last message (`Workflow.unfinished`)."""
        finished, games = self.finished(), self.games().items()
        return [self._export(n, said, finished.get(n)) for n, said in games if only is None or n in only]

    def _export(self, game: int, said: list[TranscriptEntry], over: GameOver | None) -> Workflow:
        info = self.info
        meta = {"run": info.id, "game": game, "seed": info.config.seed, "options": info.options}
        if over is None:
            meta |= {"ended": UNFINISHED + self.status}
        else:
            meta |= {"outcome": over.outcome, "score": over.score, "ended": over.ended}
        others = {name: engine.get("tokenizer") for name, engine in info.engines.items()}
        own = info.engine.get("tokenizer")
        return exported(
            scenario=info.scenario,
            id=f"{info.id}-{game}",
            meta=meta,
            cast=info.cast,
            entries=said,
            tokenizer=own,
            others=others,
        )


def _check_format(file: Path) -> None:
    """Raise `RecordError` for a record in a format of a newer version."""
    try:
        told = json.loads(file.read_bytes())
        number = re.fullmatch(r"agentcho-run/([0-9]{1,6})", told["format"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return
    if number is not None and int(number[1]) > FORMAT:
        by = told.get("versions")
        wrote = by.get("agentcho") if isinstance(by, dict) else None
        raise RecordError(
            f"{file.parent} was written by agentcho {shown(wrote) if wrote else 'of a newer version'}, in "
            f"the format {number[0]}; this is agentcho {versions()['agentcho']}, which reads formats up "
            f"to agentcho-run/{FORMAT}; install the version that wrote the run, or a later one"
        )


def folders(folder: Path) -> list[Path]:
    """The folder of every run in a folder, oldest first, whether or not its record can be read."""
    return [file.parent for file in sorted(folder.glob(f"*/{INFO}"))]


def runs(folder: Path) -> list[SavedRun]:
    """Every run in a folder, oldest first."""
    return [SavedRun(path) for path in folders(folder)]


def find(run: str, folder: Path) -> SavedRun:
    """The run with that path, with that id, the only one whose id begins with it, or the newest for "last"."""
    if run and (Path(run) / INFO).is_file():
        return SavedRun(Path(run))
    names = sorted(file.parent.name for file in folder.glob(f"*/{INFO}"))
    matches = _last(folder, names) if run == "last" else [n for n in names if n == run] or _begins(names, run)
    if len(matches) > 1:
        raise RecordNotFound(run, folder, several=matches)
    if not matches:
        places = ("*", "*/*") if run else ()
        below = sorted(file.parent.as_posix() for place in places for file in Path(run).glob(f"{place}/{INFO}"))
        if names or below:
            raise RecordNotFound(run, folder, below)
        state = "has no runs" if folder.is_dir() else "does not exist"
        remedy = (
            f"that folder {state}; `agentcho run SCENARIO` records a run, and --runs-dir (in Python `out`) names "
            "another folder"
        )
        raise RecordNotFound(run, folder, remedy=remedy)
    return SavedRun(folder / matches[0])


def _last(folder: Path, names: list[str]) -> list[str]:
    """The newest of these runs, whose names begin with the second in which each began: among those of the same second
    the one whose folder changed last. Renamed runs count only if there are no others, by when they began. Empty if
    there are no names."""
    dated = [name for name in names if DATED.match(name)]
    if names and not dated:
        return [max(names, key=lambda name: (SavedRun(folder / name).info.started, name))]
    newest = [name for name in dated if name[:SECOND] == dated[-1][:SECOND]]
    return [max(newest, key=lambda name: (_changed(folder / name), name))] if newest else []


def _changed(folder: Path) -> int:
    """When the entries of a folder last changed, in nanoseconds; 0 if it was just removed."""
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _begins(names: list[str], run: str) -> list[str]:
    return [name for name in names if run and name.startswith(run)]
