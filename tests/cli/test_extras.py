"""The base package suffices for games: commands in a process where the libraries of an extra cannot be imported, those
that work without them and those that say what to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from agentcho.errors import AgentchoError, ExtraMissing
from agentcho.extras import LIBRARIES, require
from agentcho.records.trace import write_traces
from tests.audit.talks import talk

ROOT = Path(__file__).parent.parent.parent
WITHOUT = f"""
import contextlib, io, json, sys
for name in {list(LIBRARIES["lab"])}:
    sys.modules[name] = None
from agentcho.cli import main
ran = []
for words in json.load(sys.stdin):
    sys.argv, code, out, err = ["agentcho", *words], 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    ran.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(ran))
"""
REPLAY = """
import json, sys
for name in ("matplotlib", "scipy", "sklearn"):
    sys.modules[name] = None
import agentcho
from agentcho.testing import FakeEngine
workflow = json.load(sys.stdin)
for message in workflow["messages"]:
    message.pop("tokens", None)  # those of another process
replayed = agentcho.replay(workflow, FakeEngine(), logits=False)
decodes = [message["id"] for message in workflow["messages"] if message["kind"] == "decode"]
assert decodes and all(replayed[id].receipt is not None for id in decodes)
"""
FAKE = ("--model", "fake", "--max-tokens", "4")
PLAYING = [
    ("ls",),
    ("run", "prisoners-dilemma", "--seed", "1", "--leakage", "audit", *FAKE),
    ("show", "last"),
    ("show", "last", "--svg", "played.svg"),
    ("show", "last", "--trace", "played.jsonl"),
    ("trace", "debate", "-n", "2", "--out", "sampled.jsonl", *FAKE),
    ("bench", "games", "--games", "2", *FAKE),
    ("sweep", "debate", "--grid", "rounds=1,2", "-n", "2", "--out", "swept", *FAKE),
    ("audit", "last", "--html", "a.html", "--json", "a.json", "--sarif", "a.sarif", "--junit", "a.xml"),
    ("audit", "played.jsonl"),
]
REFUSED = {
    ("compare", "debate", "-n", "2", *FAKE): "lab",
    ("audit", "played.jsonl", "--measure"): "lab",
    ("tune", "debate", "--traces", "sampled.jsonl", "--out", "tuned"): "lab",
    ("bench", "workflows", "--repeats", "5"): "lab",
    ("bench", "workflows", "--repeats", "1", "--plot", "whole.png"): "lab",
}
MODEL = [
    ("run", "prisoners-dilemma", "--max-tokens", "16"),
    ("prove", "played.jsonl"),
    ("doctor", "understudy"),
    ("bench", "workflows", "--workflow", "multi-qa", "--scale", "0.05", "--repeats", "1"),
]


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def without_lab(folder: Path, *commands: tuple[str, ...]) -> list[Ran]:
    """Runs commands one after another in a process without the libraries of the extra."""
    words = json.dumps(commands)
    ran = subprocess.run([sys.executable, "-c", WITHOUT], cwd=folder, input=words, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    return [Ran(*each) for each in json.loads(ran.stdout)]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Ran]]:
    """A folder in which all of `PLAYING` were run, and the result of each."""
    folder = tmp_path_factory.mktemp("core")
    return folder, without_lab(folder, *PLAYING)


@pytest.mark.slow
def test_games_are_played_shown_sampled_and_audited(played: tuple[Path, list[Ran]]) -> None:
    codes = [ran.code for ran in played[1]]
    assert codes == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1], played[1]  # both audits find what `--leakage audit` permits
    for name in ("played.svg", "played.jsonl", "sampled.jsonl", "a.html", "a.json", "a.sarif", "a.xml"):
        assert (played[0] / name).stat().st_size > 0
    swept = next(ran.out for words, ran in zip(PLAYING, played[1], strict=False) if words[0] == "sweep")
    assert "note: matplotlib, scipy, scikit-learn are needed for the intervals, tests and picture of a sweep" in swept
    assert (played[0] / "swept" / "games.csv").stat().st_size > 0
    assert not (played[0] / "swept" / "sweep.png").exists()


@pytest.mark.slow
def test_what_needs_more_says_what_to_install_before_work_starts(tmp_path: Path) -> None:
    write_traces(tmp_path / "played.jsonl", [talk(0)])
    for (words, extra), ran in zip(REFUSED.items(), without_lab(tmp_path, *REFUSED), strict=True):
        assert (ran.code, ran.out) == (2, ""), words
        assert ran.err.startswith("error: matplotlib, scipy, scikit-learn are needed "), words
        assert ran.err.endswith(f": pip install 'agentcho[{extra}]' (from a clone: pip install '.[{extra}]')\n"), words
    assert not (tmp_path / "tuned").exists()


@pytest.mark.slow
def test_traces_are_replayed(played: tuple[Path, list[Ran]]) -> None:
    traces = (played[0] / "played.jsonl").read_text()
    subprocess.run([sys.executable, "-c", REPLAY], input=traces, text=True, check=True)


@pytest.mark.slow
def test_a_model_is_proved_and_timed(played: tuple[Path, list[Ran]]) -> None:
    found = without_lab(played[0], *MODEL)
    assert [ran.code for ran in found] == [0, 0, 0, 0], found


def test_what_is_missing_of_several_extras_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ExtraMissing) as found:
        require("to train adapters", "tune", "lab", "math")
    assert str(found.value) == (
        "peft, scipy are needed to train adapters: pip install 'agentcho[tune,lab]' (from a clone: pip install "
        "'.[tune,lab]')"
    )
    assert isinstance(found.value, AgentchoError)
    assert isinstance(found.value, ImportError)


def test_what_is_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    require("to train adapters", "tune", "lab")
    monkeypatch.setitem(sys.modules, "peft", None)
    require("to compare", "lab")


def test_each_extra_installs_its_libraries_and_the_core_none_of_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = set(map(_named, project["dependencies"]))
    for extra, libraries in LIBRARIES.items():
        assert set(libraries.values()) <= set(map(_named, project["optional-dependencies"][extra]))
        assert not set(libraries.values()) & core


def _named(requirement: str) -> str:
    return re.split(r"[\[<>=]", requirement)[0]


def test_the_command_line_is_there_before_anything_that_computes() -> None:
    """Torch is loaded only with a model; help and lists of runs need neither torch nor numpy."""
    names = {"torch", "transformers", "numpy", "agentcho.lab.prove", "agentcho.lab.measure"}
    asked = f"import sys; from agentcho.cli.app import app; app(); print(sorted({names!r} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
