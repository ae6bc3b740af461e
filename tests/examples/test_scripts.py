"""The examples of pictures and of Inspect are shell scripts, whose commands run in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from ..viewer.pages import blocks

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(name: str, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", str(EXAMPLES / name)], cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_one_page_has_every_word_and_the_other_what_ben_may_read(tmp_path: Path) -> None:
    ran("pictures.sh", tmp_path)
    whole, his = (blocks((tmp_path / f"{name}.html").read_text())["talk-0"]["messages"] for name in ("werewolf", "ben"))
    others = {message["id"] for message in whole} - {message["id"] for message in his}
    assert others
    assert {message["id"] for message in his} < {message["id"] for message in whole}


@pytest.mark.slow
def test_a_debate_is_a_log_of_inspect(tmp_path: Path) -> None:
    ran("inspect.sh", tmp_path)
    with ZipFile(tmp_path / "debate.eval") as log:
        assert json.loads(log.read("header.json"))["eval"]["task"] == "debate"
        assert "samples/0_epoch_1.json" in log.namelist()
