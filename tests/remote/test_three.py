"""A game with three local servers, as on the page on models: two of ours, and one of transformers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentcho.cli import main
from agentcho.config import ModelConfig
from agentcho.records.record import SavedRun
from tests.test_site import Block, blocks

from .served import agentcho_served, transformers_served
from .test_page import PATH

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("one_command_line")]
ROUNDS = 2


def section() -> dict[str, Block]:
    """The code blocks of the section, by language."""
    found = [
        block for block in blocks(PATH) if "three_servers" in block.text + block.before or "[second]" in block.text
    ]
    return {block.language: block for block in found}


def served(text: str, servers: list[ModelConfig]) -> str:
    """The page's text with the addresses of these servers."""
    for number, server in enumerate(servers, 1):
        text = text.replace(f"http://127.0.0.1:800{number}/v1", str(server.base_url))
    return text.replace("openai:FOLDER", servers[2].model)


def called(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", line.split())
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_a_game_of_three_local_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = section()
    with agentcho_served() as first, agentcho_served() as second, transformers_served() as third:
        servers = [first, second, third]
        monkeypatch.chdir(tmp_path)
        (tmp_path / "models.toml").write_text(served(page["toml"].text, servers))
        (tmp_path / "three_servers.py").write_text(page["python"].text)
        for line in served(page["sh"].text, servers).splitlines():
            assert called(line, monkeypatch) == 0, capsys.readouterr().err
    assert "TEXTS CLEAN" in capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    run = SavedRun(folder)
    said = [entry for entry in run.entries() if entry.message.kind == "decode"]
    assert [(each.message.author, each.engine) for each in said] == [
        (name, model) for name, model in (("ann", None), ("ben", "second"), ("cal", "third")) for _ in range(2)
    ] * ROUNDS
    assert all(each.message.text and each.usage.spent is not None for each in said)
    assert {run.info.engine["kind"], *(each["kind"] for each in run.info.engines.values())} == {"endpoint"}
    costs = {each.engine: each.usage.spent.cost for each in said if each.usage.spent}
    assert costs["second"] is None
    assert (costs["third"] or 0) > 0
