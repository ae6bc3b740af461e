"""Plays baseline games and writes each as one line, a trace, into a file. Games that the file has are not played again.
Independent of training and of the command line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.errors import TRACE, RecordBroken, TuneError
from agentcho.events import Counting, Encoded, Ended, Event, GameOver, Sink
from agentcho.games.play.turn import Forced
from agentcho.games.runs import library
from agentcho.games.runs.resume import Changed
from agentcho.lab.collect import Playing, check_played, check_same
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.files import LineFile, read_lines, replace_whole, write_errors
from agentcho.records.trace import Workflow, exported, read_traces, workflow, write_traces
from agentcho.records.transcript import TranscriptEntry, carry

ASKED = "asked.json"
BEGINNING = b'{"format": "agentcho-trace/1"'
"""The beginning of every line that is written."""

LATER = {"default_prompt", "thoughts", "words", "leak_budget", "deterministic", "sources"}
"""What files of earlier versions do not say of their games."""


class Sampled(NamedTuple):
    """The result of `sample`: the number of games in the file, the number that ended without an outcome and are left
    out, and whether Ctrl-C stopped it."""

    games: int
    without: int
    interrupted: bool


def sample(
    playing: Playing, numbers: range, file: Path, tell: ProgressCallback, finals: Iterable[Workflow] | None = None
) -> Sampled:
    """Play those of these games that the file lacks, and append each when it is over; at the end the file is sorted.
    With `finals`, nothing is sampled: each game, of one step, is forced to end like the workflow with its number (the
    paper's distilled baseline).

    Raises `ResumeMismatch` if the file was sampled with other settings, and `GamesFailed` if games failed.
    """
    question = _asked(playing)
    there = _there(file, question, playing.changed)
    with LineFile(file) as lines:
        writing = _Writing(question, playing.engine, lines)
        left = [number for number in numbers if number not in there]
        forced = {} if finals is None else _final_words(finals, playing.engine, question)
        if missing := [number for number in left if finals is not None and number not in forced]:
            raise TuneError("--final-of", f"has no workflow of game {missing[0]}")
        counting = Counting(tell, len(numbers), len(numbers) - len(left))
        check_played(playing, beside(file))
        asked = {name: value for name, value in question.items() if name != "sources"}
        played = playing.play(left, forced, _both(writing, counting), _records(file, asked)) if left else None
    if played is not None:
        if isinstance(played.error, TuneError):
            raise played.error
        played.check(len(left))
    found = sorted(read_traces(file), key=lambda each: int(each.meta["game"]))
    write_traces(file, found)
    if {each.meta["game"] for each in found}.issuperset(numbers):
        shutil.rmtree(beside(file), ignore_errors=True)
    return Sampled(len(found), writing.without, played is not None and played.interrupted)


def beside(file: Path) -> Path:
    """The folder in which the games of a trace file are recorded while it lacks some."""
    return file.with_name(f".{file.name}.games")


def _records(file: Path, asked: Mapping[str, Any]) -> Path:
    """The folder, created if missing, in which games are recorded while they are played: a game that has called tools
    is resumed, not restarted. `ResumeMismatch`: it belongs to another sampling."""
    folder, question = beside(file), json.loads(json.dumps(asked))
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    if (there := folder / ASKED).exists():
        earlier = {name: question[name] for name in LATER & question.keys()} | json.loads(there.read_text())
        check_same(folder, "games that were begun for other traces", earlier, question)
    else:
        replace_whole(there, json.dumps(question))
    return folder


def _asked(playing: Playing) -> dict[str, Any]:
    """Everything that determines the traces."""
    config = playing.config.model_dump(mode="json", include=LATER)
    sources = library.sources(playing.scenario, playing.find_agent)
    return playing.asked | config | {"sources": sorted(sources.values())}


def _there(file: Path, asked: Mapping[str, Any], changed: Changed) -> set[int]:
    """The games that a file has. `ResumeMismatch`: they are from another sampling. `RecordBroken`: it is not a trace
    file. `changed`: whether they may be of other code. A last line without its newline gets it, unless it is torn."""
    found, sources = set[int](), {"sources": asked["sources"]}
    if not file.exists():
        return found
    data = file.read_bytes()
    last = data[data.rfind(b"\n") + 1 :]
    torn = bool(last.strip()) and not _is_json(last)
    if torn and not BEGINNING.startswith(last[: len(BEGINNING)]):
        raise RecordBroken(f"{file}:{len(data.splitlines())}", "not a JSON line", TRACE)
    for number, line in read_lines(file, None if torn else TRACE):
        meta = workflow(line, f"{file}:{number}").meta
        if not isinstance(meta.get("game"), int):
            raise RecordBroken(f"{file}:{number}", "is a trace that was not written by `agentcho trace`")
        earlier = {name: meta.get(name, asked[name] if name in LATER else None) for name in asked}
        check_same(file, "other traces", earlier if changed == "refuse" else earlier | sources, asked)
        found.add(meta["game"])
    if last and not torn:
        with write_errors(file), file.open("ab") as end:
            end.write(b"\n")
    return found


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _both(one: Sink, other: Sink) -> Sink:
    """A sink that passes every event to both."""

    def hear(event: Event) -> None:
        one(event)
        other(event)

    return hear


class _Writing:
    """Writes each game when it is over. `without` counts those without an outcome."""

    def __init__(self, asked: Mapping[str, Any], engine: EnginePort, lines: LineFile) -> None:
        self._asked = dict(asked)
        self._tokenizer = engine.fingerprint.get("tokenizer")
        self._lines = lines
        self._said: dict[int, list[TranscriptEntry]] = {}
        self.without = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Ended):
            self._said.setdefault(event.entry.message.game, []).append(event.entry)
        if isinstance(event, Encoded):
            carry(self._said[event.encodings.game], event.encodings)
        if isinstance(event, GameOver):
            self._write(event, self._said.pop(event.game, []))

    def _write(self, over: GameOver, said: list[TranscriptEntry]) -> None:
        if over.outcome is None:
            self.without += 1
            return
        meta = self._asked | {"game": over.game, "outcome": over.outcome, "score": over.score}
        scenario = self._asked["scenario"]
        id = f"{scenario}-{self._asked['seed']}-{over.game}"
        self._lines.append(
            exported(scenario=scenario, id=id, meta=meta, cast=(), entries=said, tokenizer=self._tokenizer).to_json()
        )


class _Final(Mapping[str, tuple[int, ...]]):
    """The text for the only message that a game says. `TuneError`: it says another."""

    def __init__(self, words: tuple[int, ...], scenario: str) -> None:
        self._words = words
        self._scenario = scenario
        self._said = set[str]()

    def __getitem__(self, id: str) -> tuple[int, ...]:
        self._said.add(id)
        if len(self._said) > 1:
            raise TuneError("--final-of", f"needs a scenario of one step, but {self._scenario} says several things")
        return self._words

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 1


def _final_words(finals: Iterable[Workflow], engine: EnginePort, asked: Mapping[str, Any]) -> dict[int, Forced]:
    """The final text of each workflow, by game: the answer of its outcome, or else its last message."""
    found: dict[int, Forced] = {}
    for each in finals:
        if changed := [name for name in ("tasks", "digest", "seed") if each.meta.get(name) != asked[name]]:
            raise TuneError("--final-of", f"its games have other tasks; what differs: {', '.join(changed)}")
        words = tuple(engine.framing.content.encode(_final(each)))
        found[int(each.meta["game"])] = _Final(words, asked["scenario"])
    return found


def _final(ended: Workflow) -> str:
    answer = (ended.meta.get("outcome") or {}).get("answer")
    said = [message.text for message in ended.whole.messages if message.kind == "decode"]
    return f"{answer}." if isinstance(answer, str) and answer else said[-1] if said else ""
