"""Every code block of docs/ works.

Quick: what the fake engine can play, and parsing every other command line. Slow: all commands, with few games, on the
bundled model where that makes a difference.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
import yaml

import agentcho
import agentcho.provenance
import agentcho.testing
from agentcho import errors
from agentcho.cli import main
from agentcho.cli.app import app
from agentcho.config import RunConfig
from agentcho.games.play.game_models import LoadedEngines
from agentcho.runner.engine import Engine
from agentcho.testing import FakeEngine
from tests.commands import commands as commands_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts]
LOADS = "agentcho.games.runs.runtime.load_engine"
TOGETHER = "agentcho.games.runs.runtime.load_together"
PLAYED = {"run", "merge", "audit", "show", "ls", "cp"}
"""Commands that finish in a moment on the fake engine."""
NEEDED = {"vllm": "vllm"}
"""Pages whose commands need a library that tests do not have."""
REAL = "on the bundled model"
SHOWN = {"quickstart", "read-a-report"}
"""Pages that show the output of their commands, also on the fake engine."""
TRAINED = DOCS / "how-to" / "tune.md"
THEIRS = {DOCS / "clients.md", DOCS / "how-to" / "textarena.md"}
"""Pages whose code needs separate environments: see `tests/clients` and `tests/arena`."""
FOREIGN = {"agentleak.five-models.jsonl", "games.jsonl", "my-scenario.py"}
"""Files of the reader's own that pages mention and tests do not have."""


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, and the paragraph before it."""

    language: str
    text: str
    before: str


class Line(NamedTuple):
    """A command in a console block, with what its comment states: its exit code and the engine to try it on."""

    words: tuple[str, ...]
    exits: int
    real: bool


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in re.finditer(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE):
        before = text[: found.start()].rstrip().rpartition("\n\n")[2]
        indented = re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE)
        yield Block(found[2], indented, before)


def lines(block: Block) -> Iterator[Line]:
    starts = {"console": "$ agentcho ", "sh": "agentcho ", "yaml": "- run: agentcho "}[block.language]
    for line in block.text.splitlines():
        if line.strip().startswith(starts):
            command, _, told = line.strip()[len(starts) :].partition("  #")
            exits = re.search(r"exits (\d)", told)
            yield Line(tuple(shlex.split(command)), int(exits[1]) if exits else 0, REAL in told)


def commands(page: Path) -> list[Line]:
    return [line for block in blocks(page) if block.language in ("console", "sh", "yaml") for line in lines(block)]


def saved(block: Block) -> str | None:
    """The file name under which a page tells the reader to save a block."""
    found = re.search(r"[Ss]ave (?:this|it) as\s+`(\w+\.(?:py|toml|yaml))`", block.before)
    return found[1] if found else None


def test_there_is_something_to_test_and_blocks_are_of_a_known_kind() -> None:
    known = {"python", "console", "sh", "yaml", "nginx", "json", "toml", "text", ""}
    kinds = {block.language for page in PAGES for block in blocks(page)}
    assert {kind for kind in kinds if not kind.startswith("{")} <= known
    assert sum(len(commands(page)) for page in PAGES) > 60
    unnamed = [page for page in PAGES for block in blocks(page) if not block.language]
    assert unnamed in ([], [DOCS / "structure.md"])


def test_every_command_line_can_be_read() -> None:
    whole = typer.main.get_command(app())
    for line in (line for page in PAGES for line in commands(page)):
        command, words = whole, list(line.words)
        while inner := commands_of(command):
            command = inner[words.pop(0)]
        command.make_context("agentcho", words)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LOADS, lambda config, tell=None: FakeEngine())
    monkeypatch.setattr(TOGETHER, lambda config, *given: LoadedEngines(FakeEngine(), fakes(config)))
    return tmp_path


def fakes(config: RunConfig) -> dict[str, FakeEngine]:
    """Fake engines for a run's models other than its own."""
    return {name: FakeEngine() for name in config.models}


def execute(block: Block, page: Path, folder: Path) -> None:
    """Save a block where the page says so; run it otherwise."""
    if name := saved(block):
        (folder / name).write_text(block.text)
    else:
        exec(compile(block.text, f"{page.name}: a block", "exec"), {"__name__": "__main__"})


def called(line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command, with two games where the page has more, and without measuring, which has tests of its own."""
    asked = [word for word in line.words if word != "--measure"]
    words = ["2" if before in ("-n", "--games") else word for before, word in zip(["", *asked], asked, strict=False)]
    monkeypatch.setattr(sys, "argv", ["agentcho", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code or 0) == line.exits, f"agentcho {shlex.join(words)}: {capsys.readouterr().err}"


def runnable(*languages: str) -> list[Path]:
    pages = [page for page in PAGES if page not in THEIRS]
    return [page for page in pages if any(block.language in languages for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable("python", "console"), ids=lambda page: page.stem)
def test_what_the_fake_can_play_works(
    page: Path, there: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: set[str] = set()
    for block in blocks(page):
        if saved(block) or (block.language == "python" and "Engine.load" not in block.text):
            execute(block, page, there)
        for line in lines(block) if block.language == "console" else ():
            if line.words[0] in PLAYED and not line.real and not FOREIGN & set(line.words):
                called(line, monkeypatch, capsys)
                heard |= {text.strip() for text in capsys.readouterr().out.splitlines()}
        if block.language == "text" and page.stem in SHOWN:
            assert {text.strip() for text in block.text.splitlines()} <= heard | {""}


@pytest.fixture(scope="module")
def understudy() -> Engine:
    return Engine.load("understudy", device="cpu")


def embedded(patch: pytest.MonkeyPatch, engine: Engine) -> None:
    """Make every load give the bundled model, with its own store."""
    patch.setattr(LOADS, lambda config, tell=None: engine.adapted(None))
    patch.setattr(Engine, "load", classmethod(lambda cls, *args, **options: engine.adapted(None)))


LENGTHY = (DOCS / "speed.md",)
"""Pages whose commands take many minutes: `make nightly` runs these."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.nightly if page in LENGTHY else [])
        for page in runnable("python", "console")
        if page != TRAINED
    ],
    ids=lambda page: page.stem,
)
def test_all_commands_and_blocks_work(
    page: Path, there: Path, understudy: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page on training is tested in `test_pages.py`."""
    needed = NEEDED.get(page.stem)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} has an environment of its own, in which tests/clients runs these commands")
    for block in blocks(page):
        if block.language == "python" or saved(block):
            with monkeypatch.context() as patch:
                embedded(patch, understudy)
                execute(block, page, there)
        for line in lines(block) if block.language == "console" else ():
            if FOREIGN & set(line.words):
                continue
            with monkeypatch.context() as patch:
                if line.real or line.words[0] in ("prove", "doctor", "bench"):
                    embedded(patch, understudy)
                called(line, patch, capsys)


def test_data_can_be_read_and_what_is_installed_and_made_is_there() -> None:
    makefile, project = (ROOT / "Makefile").read_text(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for page in PAGES:
        for block in blocks(page):
            if block.language == "json":
                assert [json.loads(line) for line in block.text.splitlines()]
            elif block.language == "toml":
                assert tomllib.loads(block.text)
            elif block.language == "yaml":
                assert yaml.safe_load(block.text)
            for target in re.findall(r"^make (\S+)", block.text, re.MULTILINE) if block.language == "sh" else ():
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: make {target}"
        for extra in re.findall(r"pip install [^`\n]*(?<!transformers)\[(\w+)\]", page.read_text()):
            assert extra in project["optional-dependencies"], f"{page}: {extra}"


def test_errors_that_pages_name_are_there() -> None:
    for page in PAGES:
        for name in re.findall(r"^\| `([A-Z]\w+)` \|", page.read_text(), re.MULTILINE):
            assert hasattr(errors, name), f"{page.name}: {name}"


def test_the_reference_has_every_public_name_once() -> None:
    text = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    found = re.findall(r"^\.\. auto(?:class|function|data|exception):: (\S+)", text, re.MULTILINE)
    public = {f"agentcho.{name}" for name in agentcho.__all__}
    for room in (agentcho.provenance, agentcho.testing):
        public |= {f"{room.__name__}.{name}" for name in room.__all__}
    public |= {f"agentcho.lab.{result}" for result in ("compare.comparison.Comparison", "sweep.result.SweepResult")}
    assert sorted(found) == sorted(public)


def test_every_page_stands_in_the_table_of_contents_and_every_link_leads_somewhere() -> None:
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for block in blocks(page):
            if block.language == "{toctree}":
                names = re.findall(r"^(?:[^:<\n]*<)?([\w/-]+)>?$", block.text, re.MULTILINE)
                listed |= {page.parent / f"{name}.md" for name in names}
                for notebook in re.findall(r"^[^:<\n]*<([\w/-]+\.ipynb)>$", block.text, re.MULTILINE):
                    assert (page.parent / notebook).is_file(), f"{page.name}: {notebook}"
        for target in re.findall(r"\]\((?!http)([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
    assert listed == set(PAGES)
