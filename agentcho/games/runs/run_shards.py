"""Merges parts of one run, played by several processes, into one record.

Independent of how games are played and of who starts the processes.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from agentcho.errors import RecordBroken, RecordError, ResumeMismatch
from agentcho.games.runs.resume import (
    MODEL,
    THREADS,
    differences,
    engine_differences,
    others_differences,
    source_differences,
    threads_differences,
)
from agentcho.records import writer_lock
from agentcho.records.files import check_folder, replace_whole, write_errors
from agentcho.records.names import LINES
from agentcho.records.record import RunInfo, SavedRun, Status, new_folder, write_info

Missing = Literal["refuse", "accept"]
"""What to do if games of the run are in no part, or not over in their part."""
FEW = 10
"""The maximum number of games that an error lists."""


def merge(parts: Sequence[SavedRun], out: Path, missing: Missing = "refuse") -> SavedRun:
    """Write one record in a new folder of `out` with the games of all `parts`, as one process would have written it.

    The parts are read and left unchanged. Of an unfinished part, the finished games count. A run that lacks games is
    "interrupted", and can be resumed.

    Raises:
        ResumeMismatch: The parts are not of one run.
        RecordError: A game is in two parts, or in none.
        RecordInUse: A part is still being written.
        RecordBroken: A part cannot be read.
    """
    if not parts:
        raise RecordError("there are no parts to merge; name the records of all parts")
    for part in parts:
        writer_lock.check(part.path / writer_lock.NAME)
        _check_alike(parts[0].info, part.info)
    _check_apart(parts)
    left = _missing(parts)
    if left and missing == "refuse":
        raise RecordError(
            f"no part has finished {_numbers(left)} of {parts[0].info.config.games}; name all parts, "
            "finish them with `agentcho run --resume`, or leave these games out with --missing accept"
        )
    check_folder(out)
    return _written(parts, out, "interrupted" if left else _status(parts))


def _check_alike(one: RunInfo, other: RunInfo) -> None:
    """Raise `ResumeMismatch` if two parts are not of the same run."""
    whole = other.config.model_copy(update={"part": one.config.part})
    found = differences(info=one, scenario=other.scenario, options=other.options, config=whole, tasks=other.tasks)
    found += engine_differences(one.engine, other.engine)
    found += others_differences(one.engines, other.engines)
    for model in (None, *one.engines):
        found += _rest(one, other, model)
    found += source_differences(one.sources, other.sources)
    names = sorted({*one.versions, *other.versions} - {"python"})
    found += [f"the version of {name}" for name in names if one.versions.get(name) != other.versions.get(name)]
    if found:
        raise ResumeMismatch(f"{one.id} and {other.id} are not parts of the same run; what differs: {'; '.join(found)}")


def _rest(one: RunInfo, other: RunInfo, model: str | None) -> list[str]:
    """Return the other differences in a model's fingerprint, which do not affect its output but are used by audits.

    The number of threads counts only in the deterministic profile, where bits depend on it.
    """
    mine, theirs = (part.engine if model is None else part.engines.get(model, {}) for part in (one, other))
    whose = "the model's" if model is None else f"the model {model}'s"
    rest = sorted({*mine, *theirs} - {*MODEL, THREADS})
    found = [f"{whose} {name}" for name in rest if mine.get(name) != theirs.get(name)]
    return found + (threads_differences(mine, theirs, whose) if one.config.deterministic else [])


def _check_apart(parts: Iterable[SavedRun]) -> None:
    """Raise `RecordError` if a game is in two parts, and `RecordBroken` if a part has a game outside its numbers.

    It reads every line.
    """
    seen: dict[int, SavedRun] = {}
    for part in parts:
        own = part.info.config.numbers
        if twice := sorted(seen.keys() & set(own)):
            raise RecordError(
                f"both {seen[twice[0]].path} and {part.path} contain {_numbers(twice)}; name each part once, "
                "and only parts of one division"
            )
        seen |= dict.fromkeys(own, part)
        if strange := sorted(part.games().keys() - set(own)):
            raise RecordBroken(part.path, f"it contains {_numbers(strange)}, outside its part {part.info.config.part}")


def _check_still(parts: Iterable[SavedRun]) -> None:
    """Raise `RecordError` if a part was resumed meanwhile, because its files may have been read before or after."""
    for part in parts:
        writer_lock.check(part.path / writer_lock.NAME)
        if SavedRun(part.path).info != part.info:
            raise RecordError(f"{part.path} continued while it was being merged; merge again when it is over")


def _missing(parts: Sequence[SavedRun]) -> list[int]:
    over = {number for part in parts for number in part.finished()}
    return [number for number in range(parts[0].info.config.games) if number not in over]


def _numbers(games: Sequence[int]) -> str:
    """Return the numbers of games in words, at most the first few."""
    more = f" and {len(games) - FEW} more" if len(games) > FEW else ""
    return f"{'game' if len(games) == 1 else 'games'} {', '.join(map(str, games[:FEW]))}{more}"


def _status(parts: Iterable[SavedRun]) -> Status:
    """Return the status of a run whose games are all over: the worst status of its parts."""
    found = {part.status for part in parts}
    return "done" if found == {"done"} else "failed" if found <= {"done", "failed"} else "interrupted"


def _written(parts: Sequence[SavedRun], out: Path, status: Status) -> SavedRun:
    """Write and return the record of all parts. If writing fails, its folder is removed."""
    path = new_folder(out, parts[0].info.scenario, datetime.now(UTC))
    try:
        for name, always in LINES.items():
            if there := [part for part in parts if always or (part.path / name).exists()]:
                replace_whole(path / name, b"".join(_whole_lines(part, name) for part in there))
        write_info(path, _info(path.name, [part.info for part in parts], status))
        _check_still(parts)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return SavedRun(path)


def _whole_lines(part: SavedRun, name: str) -> bytes:
    """Return the complete lines of a part's file. Raises `RecordBroken` if the last line of a finished part is torn."""
    file = part.path / name
    if not file.exists():
        raise RecordBroken(file, "the file is missing", "restore the file")
    with write_errors(file):
        data = file.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data) and part.status == "done":
        raise RecordBroken(file, "its last line is incomplete although the run was over")
    return whole


def _info(id: str, parts: Sequence[RunInfo], status: Status) -> RunInfo:
    """Return the contents of `run.json` of the merged record."""
    first = parts[0]
    at_once = {part.at_once for part in parts}
    most = [part.most for part in parts if part.most]
    cast: dict[str, str] = {}
    clients: dict[str, tuple[str, ...]] = {}
    for part in parts:
        cast |= part.cast
        clients |= {key: tuple(dict.fromkeys((*clients.get(key, ()), *names))) for key, names in part.clients.items()}
    return first.model_copy(
        update={
            "format": "agentcho-run/2",
            "id": id,
            "config": first.config.model_copy(update={"part": None}),
            "started": min(part.started for part in parts),
            "ended": max((part.ended for part in parts if part.ended is not None), default=None),
            "status": status,
            "cast": cast,
            "clients": clients,
            "key": secrets.token_hex(16),
            "at_once": first.at_once if len(at_once) == 1 else None,
            "most": max(most, default=None),
            "resumed": tuple(again for part in parts for again in part.resumed),
            "parts": tuple(part.id for part in parts),
        }
    )
