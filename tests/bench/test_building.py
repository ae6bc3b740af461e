"""`make llama` checks for missing tools and for a source file other than the pinned one before it builds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import llama


def test_a_machine_without_tools_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SystemExit, match="lacks cmake and a C\\+\\+ compiler; install it, such as by `apt-get install"):
        llama.check_tools()
    for name in ("cmake", "g++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    llama.check_tools()


def test_another_file_than_the_pinned_one_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / llama.FILE
    file.write_bytes(b"other")
    with pytest.raises(SystemExit, match=f"and {llama.SHA256} is pinned: nothing of it is used"):
        llama.check_hash(file)
    assert re.fullmatch(r"[0-9a-f]{64}", llama.SHA256)
