"""The code and commands on the TextArena page work, on the fake engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.test_site import DOCS, PLAYED, blocks, lines, saved

PAGE = DOCS / "how-to" / "textarena.md"
FEW = {"8": "2"}


@pytest.mark.clients
@pytest.mark.usefixtures("textarena")
def test_what_the_page_shows_works(agentcho: Command, here: Path) -> None:
    ran = 0
    for block in blocks(PAGE):
        if name := saved(block):
            (here / name).write_text(block.text)
        for line in lines(block) if block.language == "console" else ():
            words = [FEW.get(word, word) for word in line.words]
            fake = ["--model", "fake"] if words[0] == "run" else []
            done = agentcho(*words, *fake)
            assert (words[0] in PLAYED, done.code) == (True, line.exits), done.err
            ran += 1
    assert ran >= 4
    assert "textarena" in sys.modules
