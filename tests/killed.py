"""Records as a kill leaves them: a run is recorded write by write, and can be laid out again up to any write."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho.records.files import LineFile
from agentcho.records.record import SavedRun

FILES = ("transcript.jsonl", "heard.jsonl", "outcomes.jsonl")


class Written:
    """The writes to the files of one record, in order; `first` is the content of its run.json at that time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.writes: list[tuple[str, bytes]] = []
        self.first = b""
        write, written = LineFile.write, self

        def noted(lines: LineFile, given: bytes) -> None:
            size = lines.path.stat().st_size
            write(lines, given)
            written._note(lines.path, lines.path.read_bytes()[size:])

        patch.setattr(LineFile, "write", noted)

    def _note(self, path: Path, data: bytes) -> None:
        if path.name in FILES:
            self.first = self.first or (path.parent / "run.json").read_bytes()
            self.writes.append((path.name, data))

    def left(self, folder: Path, count: int, torn: bool = False) -> SavedRun:
        """The record after `count` writes; `torn`: the last one is cut in the middle."""
        folder.mkdir()
        (folder / "run.json").write_bytes(self.first)
        for name in FILES:
            parts = [data for file, data in self.writes[:count] if file == name]
            if torn and self.writes[count - 1][0] == name:
                parts[-1] = parts[-1][: len(parts[-1]) // 2]
            (folder / name).write_bytes(b"".join(parts))
        return SavedRun(folder)
