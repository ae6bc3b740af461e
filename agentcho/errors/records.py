"""A file of runs, traces or reports cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentcho.errors.base import AgentchoError


class RecordError(AgentchoError):
    """A run record or trace cannot be used."""


class RecordNotFound(RecordError):
    """No run of that id or path."""

    def __init__(self, run: str, folder: Path) -> None:
        super().__init__(f"no run {run!r} in {folder}; `agentcho ls --runs` lists them")


class RecordBroken(RecordError):
    """A record is damaged somewhere else than in its last line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        super().__init__(f"{path}:{line}: {what}; restore the file or delete that line")


class ResumeOther(RecordError):
    """A run is to go on that was played otherwise."""

    def __init__(self, run: str, changed: Sequence[str]) -> None:
        source = any("source" in each for each in changed)
        ask = "; --changed accept goes on with the source as it is" if source else ""
        super().__init__(
            f"{run} was played otherwise: {'; '.join(changed)} differ. Leave those options out, or begin a run of its "
            f"own without --resume{ask}"
        )


class RecordInUse(RecordError):
    """Somebody else is writing: two writers would lose each other's lines."""

    def __init__(self, what: Path, pid: int, host: str, since: str) -> None:
        super().__init__(
            f"{what} is being written by process {pid} on {host}, since {since}; wait for it to end, or stop it"
        )
        self.pid, self.host, self.since = pid, host, since


class CannotWrite(RecordError):
    """The system refused a write. What was finished before is whole."""

    code = 1

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot write {path}: {error.strerror or error}. What was finished before is kept; the same command, or "
            "--resume, goes on from there"
        )
        self.path = path


class OutUnusable(RecordError, ValueError):
    """Where results were to go, nothing can be written. Said before anything is begun."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"nothing can be written to {path}: {reason}; give another --out")


class ReaderGone(RecordError):
    """Whoever read standard output has closed it; `kept` says what there is all the same."""

    code = 1

    def __init__(self, kept: str) -> None:
        super().__init__(f"whoever read the output has gone; {kept}")


class BadTrace(RecordError, ValueError):
    """A trace that is not `agentcho-trace/1`, or whose messages do not fit together."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}; the format is agentcho-trace/1")


class ComparisonOther(RecordError):
    """A folder holds the games of a comparison that was asked for otherwise."""

    def __init__(self, folder: Path, changed: Sequence[str]) -> None:
        super().__init__(
            f"{folder} holds the games of another comparison: {', '.join(changed)} differ. Give another --out, or "
            "ask as before"
        )


class TracesOther(RecordError):
    """A file holds traces of games that were asked for otherwise."""

    def __init__(self, file: Path, changed: Sequence[str]) -> None:
        super().__init__(
            f"{file} holds other traces: {', '.join(changed)} differ. Give another --out, or ask as before"
        )


class BadReport(RecordError, ValueError):
    """A file that should be an earlier audit's JSON and is none."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}; give a file that `agentcho audit --json` wrote (agentcho-audit/1)")


class BadSuppression(RecordError, ValueError):
    """A file of suppressions that is no TOML, or an entry in it that says too little or too much."""

    def __init__(self, path: Path, entry: int | None, what: str) -> None:
        where = str(path) if entry is None else f"{path}: suppression {entry}"
        super().__init__(
            f"{where}: {what}; each [[suppress]] needs owner, reason and expires, and either a fingerprint or a rule "
            "with its reader, secret_of and carrier"
        )
